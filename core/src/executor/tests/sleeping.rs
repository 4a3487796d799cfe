//! A thread that sleeps for a group while another thread moves it: later events wake it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::boards::barrier;
use super::drivers::PATIENCE;
use super::world::memory;
use crate::completion::Completion;
use crate::executor::{Envelope, Executor, GroupIdentity, Message, SmallAttempt, SmallOperation};
use crate::generated::dtype::DType;
use crate::spin::SpinBudget;
use crate::tensor::{LentMemory, Region};
use crate::transport::shm::board::in_one_process;
use crate::transport::shm::{Listener, ShmTransport};
use crate::transport::{Interest, Membership, wait};
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

fn is_awake(interests: &[Interest]) -> bool {
    wait::wait(interests, Some(Duration::ZERO))
}

/// What a thread of `sleeper` waits for, once both ranks have nothing to do.
fn fall_asleep(sleeper: &mut Executor, other: &mut Executor) -> Vec<Interest> {
    let mut interests = Vec::new();
    loop {
        other.advance(Instant::now());
        while sleeper.advance(Instant::now()).moved {}
        interests.clear();
        let sleepy = sleeper.prepare_to_sleep(&mut interests);
        if !other.advance(Instant::now()).moved && sleepy && !is_awake(&interests) {
            return interests;
        }
    }
}

#[test]
fn a_rank_that_sleeps_is_woken_although_another_thread_took_the_last_call() {
    let [mut sleeper, mut other] = pair();
    let interests = fall_asleep(&mut sleeper, &mut other);
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

#[test]
fn a_rank_that_sleeps_for_the_board_is_woken_at_once_and_needs_no_frame() {
    let mut boards = in_one_process(2).into_iter();
    let [mut sleeper, mut other] = pair().map(|it| it.with_board(boards.next().unwrap()));
    let (operation, completion) = barrier(0, 2).into_operation(1, Instant::now());
    sleeper.submit(operation, Instant::now());
    let interests = fall_asleep(&mut sleeper, &mut other);
    let call = barrier(1, 2);
    let (fingerprint, small) = (call.fingerprint, call.small.unwrap());
    let operation = SmallOperation { sequence: 1, fingerprint, small };
    let mut memory = LentMemory::InPlace(&mut []);
    let attempt = other.try_small(&operation, &mut memory, SpinBudget::NONE, &mut |_| {});
    assert_eq!(attempt, SmallAttempt::Done);
    assert!(is_awake(&interests), "the other rank has returned to its own work");
    assert!(sleeper.advance(Instant::now()).unfinished, "frames are still to be read");
    let mut finished = Vec::new();
    sleeper.take_finished(&mut finished);
    finished.into_iter().for_each(crate::executor::FinishedOperation::settle);
    assert!(completion.is_done() && is_awake(&interests));
}
