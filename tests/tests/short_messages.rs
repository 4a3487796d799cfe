//! Short messages of a group that ended: what cannot be sent or received immediately is not, and
//! the longer way says why. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::process_group::Envelope;
use polyrank::{DType, Error, ProcessGroup};
use polyrank_tests::ranks;

/// A group of two whose ranks have each had a message of the other.
fn connected(rank_main: impl Fn(&ProcessGroup, u32) + Sync) {
    ranks(2, |group| {
        let peer = 1 - group.rank();
        group.send(&[7_u8], peer, 1).unwrap();
        group.recv(&mut [0_u8], peer, 1).unwrap();
        group.get_group_store().barrier("both had one", 2, None).unwrap();
        rank_main(&group, peer);
    });
}

/// What sending again and again ends with.
fn send_until_it_fails(group: &ProcessGroup, peer: u32) -> Error {
    loop {
        if let Err(error) = group.send(&[1_u8; 100], peer, 1) {
            return error;
        }
    }
}

/// Nothing goes immediately, and every longer way ends with an error that `is_right`.
fn assert_all_fail(group: &ProcessGroup, peer: u32, is_right: impl Fn(&Error) -> bool) {
    let with = |peer| Envelope { peer, tag: 1, dtype: DType::U8 };
    assert!(!group.send_short(&[1], with(Some(peer))));
    assert_eq!(group.receive_short(&mut [0], with(Some(peer))), None);
    assert_eq!(group.receive_short(&mut [0], with(None)), None);
    let errors = [
        group.send(&[1_u8], peer, 1).unwrap_err(),
        group.recv(&mut [0_u8], peer, 1).unwrap_err(),
        group.recv_anysource(&mut [0_u8], 1).unwrap_err(),
    ];
    for error in errors {
        assert!(is_right(&error), "{error}");
    }
}

#[test]
fn after_an_abort_both_ranks_say_who_called_it() {
    connected(|group, peer| {
        let is_right = |error: &Error| matches!(error, Error::Aborted { rank: 0, .. });
        match group.rank() {
            0 => group.abort(),
            _ => {
                let error = send_until_it_fails(group, peer);
                assert!(is_right(&error), "{error}");
            }
        }
        assert_all_fail(group, peer, is_right);
    });
}

#[test]
fn after_it_was_left_a_group_has_no_messages() {
    connected(|group, peer| {
        group.shutdown().expect("the ranks agree");
        let is_right = |error: &Error| match error {
            Error::InvalidGroup { message } => message.contains("was destroyed"),
            _ => false,
        };
        assert_all_fail(group, peer, is_right);
    });
}

#[test]
fn who_is_left_alone_is_told_who_left() {
    connected(|group, peer| {
        if group.rank() == 1 {
            group.shutdown().expect("the ranks agree");
            return;
        }
        let is_right = |error: &Error| matches!(error, Error::RankFailed { rank: 1, .. });
        let error = send_until_it_fails(group, peer);
        assert!(is_right(&error), "{error}");
        assert_all_fail(group, peer, is_right);
    });
}

#[test]
fn a_receive_from_who_left_fails_too() {
    connected(|group, peer| {
        if group.rank() == 1 {
            group.shutdown().expect("the ranks agree");
            return;
        }
        let error = group.recv(&mut [0_u8], peer, 1).unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error}");
    });
}
