//! What only shared memory can get wrong: strangers, mad peers, crossing connections, sleep.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

const TOKEN: Token = Token([9; 16]);
const GENERATION: u32 = 5;

/// The transports of a group on this host.
pub(in crate::transport) fn group(size: u32, options: Options) -> Vec<ShmTransport> {
    let listeners: Vec<_> = (0..size).map(|_| Listener::bind().unwrap()).collect();
    let card = |listener: &Listener| listener.sign(Card::new("here", 1, Vec::new()));
    let cards: Vec<_> = listeners.iter().map(card).collect();
    let transport = |(rank, listener)| {
        ShmTransport::new(listener, rank, &cards, TOKEN, GENERATION, options).unwrap()
    };
    (0..).zip(listeners).map(transport).collect()
}
