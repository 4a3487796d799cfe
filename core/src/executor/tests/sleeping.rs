//! A thread that sleeps for a group while another thread moves it: later events wake it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::drivers::PATIENCE;
use super::world::memory;
use crate::completion::Completion;
use crate::executor::{Envelope, Executor, GroupIdentity, Message};
use crate::generated::dtype::DType;
use crate::tensor::Region;
use crate::transport::shm::{Listener, ShmTransport};
use crate::transport::{Membership, wait};
use crate::wire::card::Card;
use crate::wire::handshake::Token;

/// The executors of a group of two that share memory.
pub(super) fn pair() -> [Executor; 2] {
    let listeners = [0, 1].map(|_| Listener::bind().unwrap());
    let cards = listeners.each_ref().map(|it| it.sign(Card::new("here", 1, Vec::new())));
    let mut rank = 0;
    listeners.map(|listener| {
        let membership = Membership { rank, cards: &cards, token: Token([4; 16]), generation: 0 };
        let transport =
            ShmTransport::new(listener, membership, Default::default(), Default::default())
                .unwrap();
        rank += 1;
        let group = GroupIdentity { name: "sleepers".to_owned(), generation: 0 };
        Executor::new(Box::new(transport), group, Instant::now())
    })
}

pub(super) fn message(peer: u32, memory: &Region) -> Message {
    Message {
        peer: Some(peer),
        tag: 1,
        dtype: crate::generated::dtype::DType::U8,
        memory: memory.clone(),
        deadline: Instant::now() + PATIENCE,
        finish: None,
        completion: Arc::new(Completion::new()),
    }
}

/// A short message of bytes to a rank, or from it.
pub(super) fn envelope(peer: u32, tag: u32) -> Envelope {
    Envelope { peer: Some(peer), tag, dtype: DType::U8 }
}

#[test]
fn a_rank_that_sleeps_is_woken_although_another_thread_took_the_last_call() {
    let [mut sleeper, mut other] = pair();
    let is_awake = |interests: &[_]| wait::wait(interests, Some(Duration::ZERO));
    let mut interests = Vec::new();
    loop {
        other.advance(Instant::now());
        while sleeper.advance(Instant::now()).moved {}
        interests.clear();
        let sleepy = sleeper.prepare_to_sleep(&mut interests);
        if !other.advance(Instant::now()).moved && sleepy && !is_awake(&interests) {
            break;
        }
    }
    // One thread sleeps; another starts something and takes what was to wake the first.
    other.send(message(0, &memory([1])), Instant::now());
    let into = [Region::zeroed(4), Region::zeroed(4)];
    sleeper.recv(message(1, &into[0]), Instant::now());
    while sleeper.advance(Instant::now()).moved {}
    sleeper.recv(message(1, &into[1]), Instant::now());
    assert!(sleeper.let_others_wake());
    assert!(!is_awake(&interests), "nothing is left to do");
    other.send(message(0, &memory([2])), Instant::now());
    assert!(is_awake(&interests), "the second message came while it slept");
}
