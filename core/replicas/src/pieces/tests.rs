//! States between the ranks of real groups.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyrank::store::HashStore;
use polyrank::{GroupOptions, Work};

use super::wire::{BATCH, DATA, DIGEST, DIGESTS, Hello, Link, PIECE, Question, piece_length};
use super::*;

/// How long anything may take that does not fail.
const LIMIT: Duration = Duration::from_secs(60);
const STEP: i64 = 7;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn peers(ranks: &[u32]) -> Vec<StatePeer<'static>> {
    ranks.iter().map(|rank| StatePeer { rank: *rank, replica: NAMES[*rank as usize] }).collect()
}

fn later() -> Instant {
    Instant::now() + LIMIT
}

/// Runs `body` on the ranks of a group.
fn in_group<T: Send>(size: u32, body: impl Fn(u32, GroupTransport) -> T + Sync) -> Vec<T> {
    let store = Arc::new(HashStore::new());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (store, body) = (store.clone(), &body);
                scope.spawn(move || {
                    let options = GroupOptions::default().timeout(LIMIT);
                    let group = ProcessGroup::new(store, rank, size, "healing", options).unwrap();
                    let outcome = body(rank, GroupTransport::new(group.clone()));
                    drop(group.shutdown());
                    outcome
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn state(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// What a source of a test does with a question.
enum Act {
    /// What it should.
    Answer,
    /// As that, but a byte of a piece is another one.
    Damage,
    Ignore,
    /// Ends the group, as a process that dies.
    Die,
}

/// A source that may do what it should not.
fn serve(
    transport: &GroupTransport,
    taker: u32,
    state: &[u8],
    length: i64,
    mut act: impl FnMut(Question) -> Act,
) {
    let [peer] = peers(&[taker]).try_into().unwrap();
    let link = Link { group: &transport.group, peer, step: STEP, deadline: later() };
    let mut works: Vec<Work> = Vec::new();
    loop {
        let work = link.receive_question().unwrap();
        work.wait(None).unwrap();
        let question = Link::question(work).unwrap().1.unwrap();
        let is_damaged = match (question, act(question)) {
            (Question::Done, _) => break,
            (_, Act::Ignore) => continue,
            (_, Act::Die) => return transport.group.abort(),
            (_, act) => matches!(act, Act::Damage),
        };
        let range = |number: u64| {
            let start = number as usize * PIECE;
            start..start + piece_length(state.len() as u64, number).unwrap_or(0)
        };
        works.push(match question {
            Question::Piece(number) => {
                let mut piece = state[range(number)].to_vec();
                piece[0] ^= u8::from(is_damaged);
                link.send(piece.into(), DATA).unwrap()
            }
            Question::Digests(first) => {
                let digests = (first..first + BATCH).map(|number| {
                    let piece = range(number);
                    state.get(piece).map_or([0; DIGEST], |piece| *blake3::hash(piece).as_bytes())
                });
                link.send(digests.flatten().collect::<Vec<u8>>().into(), DIGESTS).unwrap()
            }
            _ => {
                let hello = Hello { asked: STEP, step: STEP, length, piece: PIECE as i64 };
                link.say_hello(hello).unwrap()
            }
        });
    }
    works.iter().for_each(|work| drop(work.wait(Some(LIMIT))));
}

#[test]
fn states_of_any_length_come_whole_from_all_sources_to_several_at_once() {
    let lengths = [0, 1, PIECE, PIECE + 1, 9 * PIECE + 3];
    for (size, takers) in [(2, &[0][..]), (3, &[0]), (3, &[0, 2]), (5, &[1, 3])] {
        in_group(size, |rank, transport| {
            let sources: Vec<u32> = (0..size).filter(|rank| !takers.contains(rank)).collect();
            for (step, length) in (0..).zip(lengths) {
                if takers.contains(&rank) {
                    let (came, outcome) = transport.take(&peers(&sources), step, later());
                    let came = came.unwrap();
                    assert!(came == state(length), "{length} bytes came as {}", came.len());
                    let pieces: u64 = outcome.pieces.iter().sum();
                    assert_eq!(pieces, wire::pieces_of(length as u64), "each comes once");
                    assert!(outcome.differing.is_empty() && outcome.damaged == 0);
                } else {
                    transport.send(&peers(takers), step, state(length), later()).unwrap();
                }
            }
        });
    }
}

#[test]
fn a_state_of_another_step_is_refused() {
    let outcomes = in_group(2, |rank, transport| {
        if rank == 1 {
            transport.send(&peers(&[0]), 3, Vec::new(), later()).unwrap();
            return None;
        }
        transport.receive(&peers(&[1]), "", 4, later()).err()
    });
    let error = outcomes[0].as_ref().unwrap();
    assert!(matches!(error, TransportError::Step { sent: 3, expected: 4 }), "{error}");
}

#[test]
fn who_waits_in_vain_says_for_what() {
    let soon = || Instant::now() + Duration::from_millis(50);
    let outcomes = in_group(3, |rank, transport| match rank {
        0 => transport.receive(&peers(&[1]), "", STEP, soon()).err(),
        1 => {
            serve(&transport, 0, &[], 0, |_| Act::Ignore);
            None
        }
        _ => transport.send(&peers(&[1]), STEP, Vec::new(), soon()).err(),
    });
    let text = |rank: usize| outcomes[rank].as_ref().unwrap().to_string();
    assert_eq!(
        text(0),
        "0 bytes of 0 had been moved when its time was over, what replica b says of its state; \
         raise state_timeout"
    );
    assert!(text(2).contains("over, the next question of replica b; raise"), "{}", text(2));
}

#[test]
fn a_source_with_another_state_is_noticed_and_the_first_one_counts() {
    let mut other = state(8 * PIECE);
    // In whatever piece it is asked for.
    (0..8).for_each(|piece| other[piece * PIECE + 5] ^= 1);
    for other in [other, state(8 * PIECE + 1)] {
        // The first one may have given all before the other one has answered.
        let is_noticed = AtomicBool::new(false);
        in_group(3, |rank, transport| {
            for step in 0.. {
                match rank {
                    0 => {
                        let (came, outcome) = transport.take(&peers(&[1, 2]), step, later());
                        assert!(came.unwrap() == state(8 * PIECE));
                        assert_eq!((outcome.pieces, outcome.damaged), (vec![8, 0], 0));
                        is_noticed.store(outcome.differing == [2].into(), Ordering::SeqCst);
                    }
                    1 => {
                        transport.send(&peers(&[0]), step, state(8 * PIECE), later()).unwrap();
                    }
                    _ => transport.send(&peers(&[0]), step, other.clone(), later()).unwrap(),
                }
                transport.group.barrier(()).unwrap();
                let is_over = is_noticed.load(Ordering::SeqCst);
                transport.group.barrier(()).unwrap();
                if is_over {
                    break;
                }
            }
        });
    }
}

/// Does what it should, but for the first piece, whose digest is right.
fn serve_damaged_once(transport: &GroupTransport, own: &[u8]) {
    let mut pieces = 0;
    serve(transport, 0, own, own.len() as i64, |question| {
        pieces += u32::from(matches!(question, Question::Piece(_)));
        if pieces == 1 { Act::Damage } else { Act::Answer }
    });
}

#[test]
fn a_piece_that_comes_damaged_is_taken_again() {
    let own = state(3 * PIECE);
    in_group(2, |rank, transport| match rank {
        0 => {
            let (came, outcome) = transport.take(&peers(&[1]), STEP, later());
            assert!(came.unwrap() == own);
            assert_eq!((outcome.damaged, outcome.differing.len()), (1, 0));
        }
        _ => serve_damaged_once(&transport, &own),
    });
}

#[test]
fn a_piece_that_comes_damaged_from_another_source_does_not_count_as_another_state() {
    let own = state(8 * PIECE);
    // The first one may have given all before the other one has answered.
    let is_noticed = AtomicBool::new(false);
    in_group(3, |rank, transport| {
        loop {
            match rank {
                0 => {
                    let (came, outcome) = transport.take(&peers(&[1, 2]), STEP, later());
                    assert!(came.unwrap() == own && outcome.differing.is_empty());
                    is_noticed.store(outcome.damaged > 0, Ordering::SeqCst);
                }
                1 => transport.send(&peers(&[0]), STEP, own.clone(), later()).unwrap(),
                _ => serve_damaged_once(&transport, &own),
            }
            transport.group.barrier(()).unwrap();
            let is_over = is_noticed.load(Ordering::SeqCst);
            transport.group.barrier(()).unwrap();
            if is_over {
                break;
            }
        }
    });
}

#[test]
fn a_piece_that_always_comes_damaged_is_an_error_with_its_source() {
    let errors = in_group(2, |rank, transport| {
        let own = state(3 * PIECE);
        if rank == 0 {
            return transport.take(&peers(&[1]), STEP, later()).0.err();
        }
        serve(&transport, 0, &own, own.len() as i64, |question| match question {
            Question::Piece(1) => Act::Damage,
            _ => Act::Answer,
        });
        None
    });
    let error = errors[0].as_ref().unwrap().to_string();
    assert!(
        error.starts_with("piece 2 of 3 came damaged from replica b (rank 1) 3 times"),
        "{error}"
    );
}

#[test]
fn a_length_that_cannot_be_takes_no_memory() {
    for (length, expected) in [(-1, "-1 bytes"), (i64::MAX, "came damaged from replica b")] {
        let errors = in_group(2, |rank, transport| {
            if rank == 0 {
                return transport.take(&peers(&[1]), STEP, later()).0.err();
            }
            // What it announces it does not have.
            let own = state(12 * PIECE);
            serve(&transport, 0, &own, length, |question| match question {
                Question::Piece(number) if number > 1 => Act::Damage,
                _ => Act::Answer,
            });
            None
        });
        let error = errors[0].as_ref().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_source_that_falls_silent_is_replaced_by_another() {
    in_group(3, |rank, transport| {
        let own = state(40 * PIECE);
        let length = own.len() as i64;
        let mut pieces = 0;
        match rank {
            0 => {
                let (came, outcome) = transport.take(&peers(&[1, 2]), STEP, later());
                assert!(came.unwrap() == own);
                assert_eq!(outcome.pieces.iter().sum::<u64>(), 40);
            }
            1 => transport.send(&peers(&[0]), STEP, own, later()).unwrap(),
            _ => serve(&transport, 0, &own, length, |question| {
                pieces += u32::from(matches!(question, Question::Piece(_)));
                if pieces > 1 { Act::Ignore } else { Act::Answer }
            }),
        }
    });
}

#[test]
fn after_a_source_has_died_only_the_rest_is_taken_from_another() {
    let length = 12 * PIECE + 1;
    let mut before = in_group(3, |rank, transport| {
        let own = state(length);
        let mut pieces = 0;
        match rank {
            0 => {
                let (came, outcome) = transport.take(&peers(&[1, 2]), STEP, later());
                let error = came.unwrap_err();
                assert!(matches!(error, TransportError::Lost { .. }), "{error}");
                assert_eq!(outcome.pieces[0], 0);
                let kept = transport.kept.lock().unwrap().take();
                return Some((kept, outcome.pieces[1]));
            }
            // Only the one that dies gives pieces, so that there are some when it does.
            1 => {
                let group = transport.group.clone();
                let [peer] = peers(&[0]).try_into().unwrap();
                let link = Link { group: &group, peer, step: STEP, deadline: later() };
                while let Ok(work) = link.receive_question()
                    && work.wait(None).is_ok()
                {
                    match Link::question(work).unwrap().1.unwrap() {
                        Question::Hello => {
                            let (length, piece) = (length as i64, PIECE as i64);
                            let hello = Hello { asked: STEP, step: STEP, length, piece };
                            drop(link.say_hello(hello));
                        }
                        Question::Digests(first) => {
                            let all = own.chunks(PIECE).skip(first as usize);
                            let digests = all.flat_map(|piece| *blake3::hash(piece).as_bytes());
                            let mut digests: Vec<u8> = digests.collect();
                            digests.resize(BATCH as usize * DIGEST, 0);
                            drop(link.send(digests.into(), DIGESTS));
                        }
                        _ => {}
                    }
                }
            }
            _ => serve(&transport, 0, &own, length as i64, |question| {
                // The first is verified before the fourth is asked for.
                pieces += u32::from(matches!(question, Question::Piece(_)));
                if pieces > 3 { Act::Die } else { Act::Answer }
            }),
        }
        None
    });
    let (kept, there) = before.swap_remove(0).unwrap();
    assert!((1..=3).contains(&there));
    let kept = Mutex::new(kept);
    in_group(2, |rank, transport| {
        if rank == 1 {
            return transport.send(&peers(&[0]), STEP, state(length), later()).unwrap();
        }
        *transport.kept.lock().unwrap() = kept.lock().unwrap().take();
        let (came, outcome) = transport.take(&peers(&[1]), STEP, later());
        assert!(came.unwrap() == state(length));
        assert_eq!(outcome.kept, there * PIECE as u64);
        assert_eq!(outcome.pieces, [13 - there]);
    });
}
