//! What is counted when algorithms are run, against what the literature says of them:
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
//! (2005), for all but the dissemination barrier (Hensgen, Finkel, Manber, 1988).

#![allow(clippy::unwrap_used)]

use super::rehearsal::{Rehearsal, TrafficCount};
use polyrank::Collective;
use polyrank::schedule::Topology;

/// Powers of two, and others.
const POWERS: [u32; 4] = [16, 64, 256, 1024];
const OTHERS: [u32; 4] = [3, 17, 100, 500];

fn rehearse(collective: Collective, name: &str, ranks: u32, bytes: u64) -> TrafficCount {
    let algorithm = collective.algorithms().iter().find(|known| known.name == name).unwrap();
    let on = &Topology::one_host(ranks);
    let counted = Rehearsal { collective, algorithm, on, bytes }.run(&mut |_| ());
    let counted = counted.unwrap_or_else(|why| panic!("{name}, {ranks} ranks: {why}"));
    assert_eq!(counted.wrong, 0, "{name}, {ranks} ranks");
    counted
}

/// Rounds, messages and bytes.
fn sent(counted: &TrafficCount) -> (u64, u64, u64) {
    (counted.rounds, counted.messages, counted.bytes)
}

#[test]
fn recursive_doubling_has_one_message_a_round_and_as_many_rounds_as_the_logarithm() {
    for ranks in POWERS {
        let counted = rehearse(Collective::Allreduce, "recursive_doubling", ranks, 1024);
        let rounds = u64::from(ranks.ilog2());
        assert_eq!(sent(&counted), (rounds, rounds, rounds * 1024));
        // The partners, and the neighbours on the ring of all ranks: one of them is a partner.
        assert_eq!(counted.connections, rounds as usize + 1);
        assert_eq!(counted.frames, counted.messages, "nothing else is sent");
    }
}

#[test]
fn halving_and_doubling_sends_the_least_bytes_in_twice_the_logarithm_of_rounds() {
    for ranks in POWERS {
        let bytes = u64::from(ranks) * 8;
        let counted = rehearse(Collective::Allreduce, "halving_doubling", ranks, bytes);
        let rounds = 2 * u64::from(ranks.ilog2());
        assert_eq!(sent(&counted), (rounds, rounds, 2 * (bytes - 8)));
    }
}

#[test]
fn a_ring_has_two_neighbours_and_twice_as_many_messages_as_other_ranks() {
    for ranks in [16, 64, 100, 256] {
        let (bytes, others) = (u64::from(ranks) * 8, u64::from(ranks - 1));
        let counted = rehearse(Collective::Allreduce, "ring", ranks, bytes);
        assert_eq!(sent(&counted), (2 * others, 2 * others, 2 * (bytes - 8)));
        assert_eq!(counted.connections, 2);
    }
}

#[test]
fn trees_and_barriers_take_the_logarithm_of_rounds_with_any_number_of_ranks() {
    for ranks in POWERS.into_iter().chain(OTHERS) {
        let rounds = u64::from((ranks - 1).ilog2() + 1);
        // The root sends to so many; a message passes as many ranks as its receiver's number has
        // ones, and the root's messages are under way at the same time.
        let counted = rehearse(Collective::Broadcast, "binomial", ranks, 64);
        let depth = u64::from((0..ranks).map(u32::count_ones).max().unwrap());
        assert_eq!((counted.rounds, counted.messages), (depth, rounds), "{ranks} ranks");
        let counted = rehearse(Collective::Barrier, "dissemination", ranks, 0);
        assert_eq!((counted.rounds, counted.messages), (rounds, rounds), "{ranks} ranks");
    }
}

#[test]
fn everybody_sends_to_everybody_in_an_alltoall() {
    for ranks in [16, 64, 100] {
        let others = u64::from(ranks - 1);
        let counted = rehearse(Collective::Alltoall, "pairwise", ranks, u64::from(ranks) * 8);
        assert_eq!((counted.messages, counted.bytes), (others, others * 8));
        assert_eq!(counted.connections as u64, others);
    }
}

/// What a rank keeps of peers and schedules grows with what it does, not with the number of ranks.
#[test]
fn memory_grows_as_messages_and_connections_do() {
    for name in ["recursive_doubling", "halving_doubling", "double_tree", "ring"] {
        let memory = |ranks| {
            let counted = rehearse(Collective::Allreduce, name, ranks, 64);
            let kept = counted.messages as usize + counted.connections;
            (counted.memory_bytes as f64, kept as f64)
        };
        let (few, many) = (memory(16), memory(256));
        assert!(many.0 / few.0 <= 1.1 * many.1 / few.1, "{name}: {few:?}, {many:?}");
    }
}

/// Figures of algorithms are what is counted, wherever ranks are: no rank sends more than they say,
/// and nothing takes more rounds.
#[test]
fn no_algorithm_sends_more_than_its_figures_say() {
    for on in [Topology::one_host(24), Topology::blocks(5, 4), Topology::one_host(32)] {
        for collective in Collective::ALL {
            for algorithm in collective.algorithms() {
                let bytes = u64::from(on.size()) * 8;
                let rehearsal = Rehearsal { collective, algorithm, on: &on, bytes };
                let counted = rehearsal.run(&mut |_| ()).unwrap();
                let says = (algorithm.load)(&on).total();
                let place = format!("{collective:?} {} {} ranks", algorithm.name, on.size());
                assert_eq!(counted.wrong, 0, "{place}");
                assert!(counted.rounds <= u64::from(says.rounds), "{place}: {counted:?}");
                assert!(counted.messages <= u64::from(says.messages), "{place}: {counted:?}");
            }
        }
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let collective = Collective::Allreduce;
    let ring = collective.algorithms().iter().find(|known| known.name == "ring").unwrap();
    let on = &Topology::one_host(4096);
    let refused =
        |bytes| Rehearsal { collective, algorithm: ring, on, bytes }.run(&mut |_| ()).unwrap_err();
    assert!(refused(1 << 10).contains("steps"));
    assert!(refused(1 << 30).contains("less --bytes"));
    assert!(refused(u64::MAX).contains("less --bytes"));
}
