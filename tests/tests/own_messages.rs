//! Messages of a rank to itself and messages that are issued together, from Rust: what is sent is
//! what comes. Ranks are threads, and over MPI processes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::distributed::{P2POp, batch_isend_irecv};
use polyrank::{Error, ProcessGroup, SplitOptions};
use polyrank_tests::mpi::{HUNG, Mpi, ranks as mpi_ranks};
use polyrank_tests::ranks;

const SIZES: [u32; 4] = [1, 2, 3, 5];

/// To itself in both orders of the calls, and back from any rank.
fn to_itself(group: &ProcessGroup) {
    let rank = group.rank();
    for count in [0, 5, 500_000] {
        let receiving = group.recv_async(vec![0_u32; count], Some(rank), 2).unwrap();
        let sending = group.send_async(vec![rank; count], rank, 2).unwrap();
        sending.wait(None).unwrap();
        let got = receiving.into_result().unwrap().remove(0).into_vec::<u32>().unwrap();
        assert_eq!(got, vec![rank; count]);
    }
    let sending = group.send_async(vec![1_u8, 2, 3], rank, 3).unwrap();
    let mut bytes = [0_u8; 3];
    assert_eq!(group.recv_anysource(&mut bytes, 3).unwrap(), rank);
    assert_eq!(bytes, [1, 2, 3]);
    sending.wait(None).unwrap();
    assert_eq!(sending.duration(), sending.duration());
}

#[test]
fn what_a_rank_sends_to_itself_is_what_it_receives() {
    for size in SIZES {
        ranks(size, |group| {
            to_itself(&group);
            // It is held, so that the send does not wait.
            group.send(&[group.rank(), 7], group.rank(), 1).unwrap();
            let mut into = [0_u32; 2];
            group.recv(&mut into, group.rank(), 1).unwrap();
            assert_eq!(into, [group.rank(), 7]);
        });
    }
}

#[test]
fn over_mpi_too() {
    for mpi in Mpi::ALL {
        for size in [1, 3] {
            let job = mpi_ranks(mpi, "over_mpi_too", size, &[], |group| to_itself(&group));
            let Some(job) = job else { continue };
            assert_ne!(job.code, Some(HUNG), "{mpi:?}: {}", job.output);
            assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        }
    }
}

#[test]
fn messages_that_are_issued_together_are_what_was_given() {
    for size in SIZES {
        ranks(size, |group| {
            let rank = group.rank();
            let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
            let operations = vec![
                P2POp::irecv(vec![0_u64; 3], left, Some(&group)).unwrap().tag(4),
                P2POp::isend(vec![u64::from(rank); 3], right, Some(&group)).unwrap().tag(4),
                P2POp::irecv(vec![0_f32], rank, Some(&group)).unwrap(),
                P2POp::isend(vec![rank as f32], rank, Some(&group)).unwrap(),
            ];
            assert_eq!(operations[0].message().peer, Some(left));
            assert_eq!(operations[0].message().tag, 4);
            assert_eq!(operations[1].global_peer().unwrap(), right);
            assert_eq!(operations[2].group().identity(), group.identity());
            let mut works = batch_isend_irecv(operations).unwrap();
            let own = works.remove(2).into_result().unwrap().remove(0);
            assert_eq!(own.into_vec::<f32>().unwrap(), [rank as f32]);
            let from_left = works.remove(0).into_result().unwrap().remove(0);
            assert_eq!(from_left.into_vec::<u64>().unwrap(), [u64::from(left); 3]);
            works.into_iter().for_each(|work| work.wait(None).unwrap());
        });
    }
}

#[test]
fn messages_of_several_groups_are_not_issued_together() {
    ranks(2, |group| {
        let other = group.split_group(&[0, 1], SplitOptions::default()).unwrap().unwrap();
        let (rank, peer) = (group.rank(), 1 - group.rank());
        let operations = vec![
            P2POp::isend(vec![7_u8], peer, Some(&group)).unwrap(),
            P2POp::irecv(vec![0_u8], peer, Some(&other)).unwrap(),
        ];
        let refused = batch_isend_irecv(operations).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }));
        assert!(refused.to_string().contains("All ops need to use the same group"), "{refused}");
        // Nothing was sent: the next message is the first.
        let sent = group.send_async(vec![rank], peer, 0).unwrap();
        let receiving = group.recv_async(vec![0_u32], Some(peer), 0).unwrap();
        let received = receiving.into_result().unwrap().remove(0);
        assert_eq!(received.into_vec::<u32>().unwrap(), [peer]);
        sent.wait(None).unwrap();
    });
}

#[test]
fn a_message_that_is_none_is_refused() {
    ranks(1, |group| {
        let two = vec![vec![1_u8], vec![2]];
        assert!(matches!(P2POp::isend(two, 0, Some(&group)), Err(Error::InvalidArgument { .. })));
        let nobody = P2POp::isend(vec![1_u8], 1, Some(&group)).unwrap();
        assert!(matches!(nobody.global_peer(), Err(Error::RankNotInGroup { .. })));
        let refused = batch_isend_irecv(vec![nobody]);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
        assert!(batch_isend_irecv(Vec::new()).unwrap().is_empty());
        let without = P2POp::irecv(vec![0_u8], 0, None);
        assert!(matches!(without, Err(Error::NotInitialized)));
    });
}
