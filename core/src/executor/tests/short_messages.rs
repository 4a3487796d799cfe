//! Short messages that are sent and received immediately, among messages that are not: the order of
//! messages, and nothing is lost or done twice.

use std::sync::Arc;
use std::time::Instant;

use super::network::Random;
use super::sleeping::{envelope, message, pair};
use super::with_seeds;
use super::world::{memory, values};
use crate::completion::Completion;
use crate::executor::{Envelope, Executor, Message};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::spin::{Pause, SpinBudget};
use crate::tensor::Region;

const SPIN: SpinBudget = SpinBudget { spins: 16, pause: Pause::Spin };

fn move_all(executors: &mut [Executor; 2]) {
    let mut moved = true;
    while moved {
        moved = executors.iter_mut().any(|executor| executor.advance(Instant::now()).moved);
    }
    for executor in executors {
        let mut finished = Vec::new();
        executor.take_finished(&mut finished);
        finished.into_iter().for_each(|over| drop(over.mark_done()));
    }
}

/// Two ranks whose connection stands.
pub(super) fn connected() -> [Executor; 2] {
    let mut executors = pair();
    while !executors[0].send_short(envelope(1, 9), &[], Instant::now()) {
        move_all(&mut executors);
    }
    assert_eq!(receive(&mut executors[1], Some(0), 9, &mut []), Some(0));
    executors
}

fn receive(executor: &mut Executor, from: Option<u32>, tag: u32, into: &mut [u8]) -> Option<u32> {
    let from = Envelope { peer: from, tag, dtype: DType::U8 };
    executor.receive_short(from, into, SPIN, Instant::now())
}

pub(super) fn with_tag(message: Message, tag: u32) -> (Message, Arc<Completion>) {
    let completion = message.completion.clone();
    (Message { tag, ..message }, completion)
}

#[test]
fn tags_senders_and_lengths_are_told_apart() {
    let mut ranks = connected();
    assert!(ranks[0].send_short(envelope(1, 1), &[1, 2, 3], Instant::now()));
    assert!(ranks[0].send_short(envelope(1, 2), &[4], Instant::now()));
    let mut three = [0; 3];
    assert_eq!(receive(&mut ranks[1], Some(0), 3, &mut three), None, "another tag");
    assert_eq!(receive(&mut ranks[1], Some(0), 2, &mut three), None, "another length");
    assert_eq!(receive(&mut ranks[1], None, 1, &mut three), Some(0), "from any rank");
    assert_eq!(three, [1, 2, 3]);
    assert_eq!(receive(&mut ranks[1], Some(0), 1, &mut three), None, "it came once");
    let mut one = [0];
    assert_eq!(receive(&mut ranks[1], Some(0), 2, &mut one), Some(0));
    assert_eq!(one, [4], "what did not fit stayed");
    for peer in [0, 2, u32::MAX] {
        assert!(
            !ranks[0].send_short(envelope(peer, 1), &[1], Instant::now()),
            "no other rank: {peer}"
        );
    }
}

#[test]
fn a_message_of_another_length_is_an_error_of_the_receive_that_takes_it() {
    let mut ranks = connected();
    assert!(ranks[0].send_short(envelope(1, 1), &[1, 2, 3], Instant::now()));
    assert_eq!(receive(&mut ranks[1], Some(0), 1, &mut [0; 4]), None);
    let (late, completion) = with_tag(message(0, &Region::zeroed(4)), 1);
    ranks[1].recv(late, Instant::now());
    move_all(&mut ranks);
    let error = completion.result().unwrap().unwrap_err();
    assert!(matches!(error, Error::MessageSize { sent_bytes: 3, buffer_bytes: 4, .. }), "{error}");
}

#[test]
fn messages_of_all_lengths_keep_their_order() {
    with_seeds(|seed| {
        let mut random = Random::new(seed);
        let mut ranks = connected();
        let (mut sent, mut received, mut at_once) = (0, 0, [0, 0]);
        let mut posted: Vec<(Arc<Completion>, Region)> = Vec::new();
        while received < 2000 {
            if sent < received + random.below(10) && sent < 2000 {
                // While a long one is under way, nothing overtakes it.
                let elements = match random.below(40) {
                    0 => 200_000,
                    // Beside their header, in one piece, and in several.
                    _ => [1, 3, 900, 2000, 5001, 8192][random.below(6)],
                };
                let payload: Vec<i32> = vec![sent as i32; elements];
                let bytes: Vec<u8> = payload.iter().flat_map(|it| it.to_le_bytes()).collect();
                let length = (elements as u32).to_le_bytes();
                // The receiver learns the length from the message before.
                for (tag, bytes) in [(1, &length[..]), (2, &bytes[..])] {
                    if ranks[0].send_short(envelope(1, tag), bytes, Instant::now()) {
                        at_once[0] += 1;
                    } else {
                        let region = Region::from_vec(bytes.to_vec());
                        let (message, _) = with_tag(message(1, &region), tag);
                        ranks[0].send(message, Instant::now());
                    }
                }
                sent += 1;
                if random.below(3) == 0 {
                    move_all(&mut ranks);
                }
            } else if sent > received {
                let elements =
                    u32::from_le_bytes(get(&mut ranks, 1, 4, &mut at_once).try_into().unwrap());
                let bytes = 4 * elements as usize;
                if random.below(4) == 0 {
                    let region = Region::zeroed(bytes);
                    let (message, completion) = with_tag(message(0, &region), 2);
                    ranks[1].recv(message, Instant::now());
                    move_all(&mut ranks);
                    assert_eq!(values(&region), vec![received as i32; elements as usize]);
                    posted.push((completion, region));
                } else {
                    let got = get(&mut ranks, 2, bytes, &mut at_once);
                    assert_eq!(got, (received as i32).to_le_bytes().repeat(elements as usize));
                }
                received += 1;
            }
        }
        assert!(posted.iter().all(|(completion, _)| completion.result() == Some(Ok(()))));
        assert!(at_once.iter().all(|&count| count > 1000), "{at_once:?} went at once");
    });
}

/// The next message for rank 1, immediately if that can be.
fn get(ranks: &mut [Executor; 2], tag: u32, bytes: usize, at_once: &mut [usize; 2]) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    if receive(&mut ranks[1], Some(0), tag, &mut memory).is_some() {
        at_once[1] += 1;
        return memory;
    }
    let region = Region::zeroed(bytes);
    let (message, completion) = with_tag(message(0, &region), tag);
    ranks[1].recv(message, Instant::now());
    move_all(ranks);
    assert_eq!(completion.result(), Some(Ok(())));
    region.read(<[u8]>::to_vec)
}

#[test]
fn an_earlier_receive_comes_first() {
    let mut ranks = connected();
    let into = memory([0]);
    let (first, completion) = with_tag(message(0, &into), 1);
    ranks[1].recv(first, Instant::now());
    for number in [1_i32, 2] {
        assert!(ranks[0].send_short(envelope(1, 1), &number.to_le_bytes(), Instant::now()));
    }
    let mut second = [0; 4];
    while receive(&mut ranks[1], Some(0), 1, &mut second).is_none() {
        move_all(&mut ranks);
    }
    move_all(&mut ranks);
    assert_eq!((completion.result(), values(&into)), (Some(Ok(())), vec![1]));
    assert_eq!(second, 2_i32.to_le_bytes());
}

#[test]
fn a_receiver_that_does_not_come_is_not_flooded() {
    for bytes in [4096, 20_001, 32 << 10] {
        let mut ranks = connected();
        let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        let mut sent = 0;
        while ranks[0].send_short(envelope(1, 1), &payload, Instant::now()) {
            sent += 1;
            assert!(sent < 1 << 20, "sending never stops");
            ranks[1].advance(Instant::now());
        }
        let mut into = vec![0; bytes];
        for _ in 0..sent {
            into.fill(9);
            assert_eq!(receive(&mut ranks[1], Some(0), 1, &mut into), Some(0));
            assert_eq!(into, payload);
        }
        move_all(&mut ranks);
        let fits = ranks[0].send_short(envelope(1, 1), &payload, Instant::now());
        assert!(fits, "there is room again for {bytes} bytes");
    }
}

#[test]
fn what_the_receiver_has_not_read_leaves_no_room() {
    for bytes in [1, 4096, 20_001, 32 << 10] {
        let mut ranks = connected();
        let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        // The receiver does not look, so that the lane fills up before the window does, or after.
        let sent = (0..1 << 20)
            .take_while(|_| ranks[0].send_short(envelope(1, 1), &payload, Instant::now()))
            .count();
        assert!(sent > 8, "{sent} of {bytes} bytes");
        let mut into = vec![0; bytes];
        for _ in 0..sent {
            into.fill(9);
            while receive(&mut ranks[1], Some(0), 1, &mut into).is_none() {
                move_all(&mut ranks);
            }
            assert_eq!(into, payload);
        }
        move_all(&mut ranks);
        assert_eq!(receive(&mut ranks[1], Some(0), 1, &mut into), None, "none came twice");
    }
}

#[test]
fn element_types_are_told_apart() {
    let mut ranks = connected();
    let to = |dtype| Envelope { dtype, ..envelope(1, 1) };
    let from = |dtype| Envelope { dtype, ..envelope(0, 1) };
    assert!(ranks[0].send_short(to(DType::F64), &[1; 8], Instant::now()));
    assert!(ranks[0].send_short(to(DType::F64), &[2; 8], Instant::now()));
    let mut short =
        |dtype, into: &mut [u8]| ranks[1].receive_short(from(dtype), into, SPIN, Instant::now());
    let mut into = [0; 8];
    // The longer way says what is wrong.
    assert_eq!(short(DType::I64, &mut into), None);
    assert_eq!(into, [0; 8]);
    assert_eq!(short(DType::F64, &mut into), Some(0));
    assert_eq!(into, [1; 8]);
    assert_eq!(short(DType::U8, &mut into), Some(0));
    assert_eq!(into, [2; 8]);
}
