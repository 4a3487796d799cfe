//! WebSockets that break, and come back or do not, under a group of one rank that listens and one
//! that dials.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::{Dialer, NativeDialer, Options, Socket, SocketClose, SocketEvent, close_code};
use super::groups::{connect, means};
use crate::generated::error::Result;
use crate::transport::suite::world::World;
use crate::transport::{Interest, LossReason};

/// Opens WebSockets that break when they are told to.
#[derive(Clone, Default)]
struct FragileDialer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Sockets dialled before this many cuts are broken.
    cuts: AtomicU32,
    /// Whether nobody answers any more.
    is_alone: AtomicBool,
    dials: AtomicU32,
    /// Code with which the page closes its sockets.
    page_closes: Mutex<Option<u16>>,
}

struct FragileSocket {
    inner: Option<Box<dyn Socket>>,
    shared: Arc<Shared>,
    born: u32,
    told: VecDeque<SocketEvent>,
}

impl Dialer for FragileDialer {
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>> {
        self.0.dials.fetch_add(1, Ordering::Relaxed);
        let mut socket = FragileSocket {
            inner: Some(NativeDialer.dial(url)?),
            shared: self.0.clone(),
            born: self.0.cuts.load(Ordering::Relaxed),
            told: VecDeque::new(),
        };
        if self.0.is_alone.load(Ordering::Relaxed) {
            socket.cut();
        }
        Ok(Box::new(socket))
    }
}

impl FragileSocket {
    fn cut(&mut self) {
        if self.inner.take().is_some() {
            let reason = "it was cut".to_owned();
            let closed = SocketClose { clean: false, code: close_code::ABNORMAL, reason };
            self.told.push_back(SocketEvent::Closed(closed));
        }
    }

    fn look(&mut self) {
        if self.shared.cuts.load(Ordering::Relaxed) > self.born {
            self.cut();
        }
        if let Some(code) = *self.shared.page_closes.lock().unwrap()
            && let Some(inner) = &mut self.inner
        {
            inner.close(code, "");
        }
    }
}

impl Socket for FragileSocket {
    fn send(&mut self, packet: Bytes) {
        self.look();
        if let Some(inner) = &mut self.inner {
            inner.send(packet);
        }
    }

    fn buffered(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.buffered())
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        self.look();
        self.told.pop_front().or_else(|| self.inner.as_mut()?.receive())
    }

    fn close(&mut self, code: u16, reason: &str) {
        if let Some(inner) = &mut self.inner {
            inner.close(code, reason);
        }
    }

    fn interest(&self) -> Option<Interest> {
        self.inner.as_ref()?.interest()
    }
}

/// Rank 0 listens, rank 1 dials fragile sockets.
fn fragile(options: Options) -> (World, Arc<Shared>) {
    let fragile = FragileDialer::default();
    let shared = fragile.0.clone();
    let dialer: Arc<dyn Dialer> = Arc::new(fragile);
    let transports = connect(means(2, |rank| rank == 1, &dialer), options);
    (World::new(transports, Box::new(std::thread::yield_now)), shared)
}

/// A small generator of pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as u32 % limit
    }
}

#[test]
fn a_break_loses_and_doubles_nothing() {
    for seed in 1..20_u64 {
        let mut random = Random(seed * 0x9E37_79B9);
        let (mut world, shared) = fragile(Options { grace_ms: 60_000, ..Options::default() });
        world.send(0, 1, 1, 10);
        world.send(1, 0, 1, 10);
        world.drive_until_all_arrived();
        let mut breaks = 0;
        for number in 2..60 {
            let bytes = [0, 5, 300, 70_000, 300_000][random.below(5) as usize];
            let from = random.below(2);
            world.send(from, 1 - from, number, bytes);
            for _ in 0..random.below(6) {
                world.turn(random.below(2));
            }
            if random.below(5) == 0 {
                shared.cuts.fetch_add(1, Ordering::Relaxed);
                breaks += 1;
            }
        }
        world.drive_until_all_arrived();
        world.check_order_and_contents();
        assert!(world.lost(0, 1).is_empty() && world.lost(1, 0).is_empty(), "seed {seed}");
        let dials = shared.dials.load(Ordering::Relaxed);
        assert!(breaks > 0 && dials > 1, "seed {seed}: {breaks} breaks, {dials} dials");
    }
}

#[test]
fn a_break_that_lasts_is_a_death_on_both_sides() {
    let (mut world, shared) = fragile(Options { grace_ms: 150, ..Options::default() });
    world.send(0, 1, 1, 10);
    world.send(1, 0, 1, 10);
    world.drive_until_all_arrived();
    shared.is_alone.store(true, Ordering::Relaxed);
    shared.cuts.fetch_add(1, Ordering::Relaxed);
    world.drive_until("both deaths", |world| {
        !world.lost(0, 1).is_empty() && !world.lost(1, 0).is_empty()
    });
    for lost in [world.lost(0, 1), world.lost(1, 0)] {
        let within = |why: &str| why.contains("was not resumed within 150ms");
        assert!(matches!(&lost[..], [LossReason::Died(why)] if within(why)), "{lost:?}");
    }
}

#[test]
fn a_break_in_time_is_resumed_after_several_attempts() {
    let (mut world, shared) = fragile(Options { grace_ms: 60_000, ..Options::default() });
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    shared.is_alone.store(true, Ordering::Relaxed);
    shared.cuts.fetch_add(1, Ordering::Relaxed);
    world.send(0, 1, 4, 500_000);
    world.send(1, 0, 4, 500_000);
    let attempted = shared.dials.load(Ordering::Relaxed) + 4;
    world.drive_until("attempts", |_| shared.dials.load(Ordering::Relaxed) >= attempted);
    shared.is_alone.store(false, Ordering::Relaxed);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

#[test]
fn a_page_that_gives_its_socket_up_comes_back() {
    let (mut world, shared) = fragile(Options { grace_ms: 60_000, ..Options::default() });
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    let dials = shared.dials.load(Ordering::Relaxed);
    // Browsers have no other way to break a socket off than to close it.
    *shared.page_closes.lock().unwrap() = Some(3000 + close_code::ABNORMAL);
    world.drive_until("another socket", |_| shared.dials.load(Ordering::Relaxed) > dials);
    *shared.page_closes.lock().unwrap() = None;
    world.send(0, 1, 4, 500_000);
    world.send(1, 0, 4, 500_000);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    assert!(world.lost(0, 1).is_empty() && world.lost(1, 0).is_empty());
}

#[test]
fn a_closed_tab_is_a_death_at_once() {
    // Browsers say 1001 themselves; a page that wants to say it adds 3000.
    for code in [close_code::GOING_AWAY, 3000 + close_code::GOING_AWAY] {
        let (mut world, shared) = fragile(Options { grace_ms: 60_000, ..Options::default() });
        world.send(0, 1, 1, 10);
        world.drive_until_all_arrived();
        for number in 0..30 {
            world.send(0, 1, number * 3, 300_000);
            world.send(1, 0, number * 3, 300_000);
        }
        world.turn(0);
        world.turn(1);
        *shared.page_closes.lock().unwrap() = Some(code);
        // Rank 1 is a page that is gone: it only says that it goes.
        world.turn(1);
        // The end of the grace would be a death too, for another reason than the one below.
        while world.lost(0, 1).is_empty() {
            world.turn(0);
        }
        let lost = world.lost(0, 1);
        let says = |why: &str| why.contains("1001");
        assert!(matches!(&lost[..], [LossReason::Died(why)] if says(why)), "{lost:?}");
    }
}
