//! Short messages of several threads of a rank, one of which may sleep for all: nobody is left
//! asleep, nothing is lost, and messages of one tag keep their order. And how soon a rank that only
//! sends learns that there is nobody any more.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::drivers::{PATIENCE, SPINS, on_threads, wait};
use super::short_messages::{connected, with_tag};
use super::sleeping::{envelope, message};
use super::world::{memory, values};
use crate::completion::{Completion, WaitIntent};
use crate::executor::Driver;
use crate::generated::error::Error;
use crate::spin::SpinPolicy;
use crate::tensor::Region;
use crate::wire::abort::Abort;

/// Messages of each tag.
const MESSAGES: i32 = 400;

/// The drivers of two ranks whose connection stands.
fn pair_of_drivers(spin: SpinPolicy) -> Vec<Arc<Driver>> {
    let driver = |executor| Driver::new(executor, spin).unwrap();
    connected().map(driver).into()
}

/// Receives, in flight, what comes with `tag`.
fn post(driver: &Driver, peer: u32, tag: u32, bytes: usize) -> (Region, Arc<Completion>) {
    let region = Region::zeroed(bytes);
    let (message, completion) = with_tag(message(peer, &region), tag);
    drop(driver.recv(message, WaitIntent::Soon));
    (region, completion)
}

/// Sends immediately, or else in flight.
fn send(driver: &Driver, peer: u32, tag: u32, payload: &[u8]) {
    let (sent, deferred_completions) = driver.send_short(envelope(peer, tag), payload);
    drop(deferred_completions);
    if !sent {
        let (message, completion) =
            with_tag(message(peer, &Region::from_vec(payload.to_vec())), tag);
        drop(driver.send(message, WaitIntent::Soon));
        wait(driver, &completion);
        assert_eq!(completion.result(), Some(Ok(())));
    }
}

/// Receives immediately, or else in flight.
fn receive(driver: &Driver, peer: u32, tag: u32, bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    let (sender, deferred_completions) = driver.receive_short(envelope(peer, tag), &mut memory);
    drop(deferred_completions);
    if sender.is_some() {
        return memory;
    }
    let (region, completion) = post(driver, peer, tag, bytes);
    wait(driver, &completion);
    assert_eq!(completion.result(), Some(Ok(())));
    region.read(<[u8]>::to_vec)
}

/// Bytes of a message; the long ones ask first.
fn bytes_of(number: i32) -> usize {
    [4, 4, 4, 400, 4, 4, 70_000][number as usize % 7]
}

#[test]
fn messages_of_several_threads_keep_their_order_and_none_is_lost() {
    for spin in SPINS {
        for tags in [1, 3] {
            let drivers = pair_of_drivers(spin);
            on_threads(&drivers, |rank, driver| {
                let peer = 1 - rank;
                thread::scope(|scope| {
                    for tag in 1..=tags {
                        scope.spawn(move || {
                            for number in 0..MESSAGES {
                                let got = receive(driver, peer, tag, bytes_of(number));
                                let expected = number.to_le_bytes().repeat(got.len() / 4);
                                assert!(got == expected, "{number} of tag {tag}, {spin:?}");
                            }
                        });
                    }
                    for number in 0..MESSAGES {
                        let payload = number.to_le_bytes().repeat(bytes_of(number) / 4);
                        (1..=tags).for_each(|tag| send(driver, peer, tag, &payload));
                    }
                });
            });
            assert!(drivers.iter().all(|driver| !driver.is_busy()), "{tags} tags, {spin:?}");
        }
    }
}

#[test]
fn turns_are_taken_while_another_thread_waits_for_the_last_message() {
    for spin in SPINS {
        let drivers = pair_of_drivers(spin);
        on_threads(&drivers, |rank, driver| {
            let peer = 1 - rank;
            let (last, completion) = post(driver, peer, 9, 4);
            thread::scope(|scope| {
                scope.spawn(|| wait(driver, &completion));
                for number in 0..MESSAGES {
                    send(driver, peer, 1, &number.to_le_bytes());
                    assert_eq!(receive(driver, peer, 1, 4), number.to_le_bytes(), "{spin:?}");
                }
                send(driver, peer, 9, &7_i32.to_le_bytes());
            });
            assert_eq!(values(&last), [7]);
        });
    }
}

#[test]
fn who_sleeps_is_woken_by_a_message_that_is_sent_at_once() {
    for spin in [SpinPolicy::Sleep, SpinPolicy::Yield(Duration::from_micros(50))] {
        let drivers = pair_of_drivers(spin);
        let (into, completion) = post(&drivers[1], 0, 1, 4);
        let (woken, is_woken) = mpsc::channel();
        let (sleeper, until) = (drivers[1].clone(), Instant::now() + 2 * PATIENCE);
        thread::spawn(move || woken.send(sleeper.wait(&completion, Some(until))));
        while !drivers[1].is_leader_asleep() {
            thread::yield_now();
        }
        let (sent, deferred_completions) =
            drivers[0].send_short(envelope(1, 1), &5_i32.to_le_bytes());
        drop(deferred_completions);
        assert!(sent, "the connection stands");
        assert_eq!(is_woken.recv_timeout(PATIENCE), Ok(true), "{spin:?}");
        assert_eq!(values(&into), [5]);
    }
}

/// How many messages rank 0 sends after what rank 1 did until one cannot be sent immediately, and
/// what that one ends with.
fn sent_in_vain(end: fn(&Driver)) -> (usize, Error) {
    let drivers = pair_of_drivers(SpinPolicy::Sleep);
    send(&drivers[0], 1, 1, &[1]);
    end(&drivers[1]);
    let sends = |_: &usize| {
        let (sent, deferred_completions) = drivers[0].send_short(envelope(1, 1), &[1]);
        drop(deferred_completions);
        sent
    };
    let sent = (0..).take_while(sends).count();
    let (message, completion) = with_tag(message(1, &memory([1])), 1);
    drop(drivers[0].send(message, WaitIntent::Soon));
    wait(&drivers[0], &completion);
    (sent, completion.error().unwrap())
}

#[test]
fn who_only_sends_hears_soon_of_an_abort_and_at_last_of_a_death() {
    let (sent, error) = sent_in_vain(|driver| {
        driver.break_with(Abort::User { rank: 1, why: "enough".to_owned() });
    });
    assert!(matches!(&error, Error::Aborted { rank: 1, .. }), "{error}");
    assert!(sent <= 64, "{sent} messages went to nobody");
    let (_, error) = sent_in_vain(Driver::vanish);
    assert!(matches!(&error, Error::RankFailed { rank: 1, .. }), "{error}");
}
