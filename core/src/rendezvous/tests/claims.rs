//! Groups of one name, one after another in a store that stands.

use super::*;
use crate::rendezvous::RankClaim;
use crate::store::Store;
use crate::store::member::member_key;

const BASE: &str = "polyrank/world/g";

/// What rank `rank` of 2 found in `store`.
fn met(store: &Arc<dyn Store>, rank: u32, run_id: Option<&str>) -> Rendezvous {
    let mut met = Rendezvous::new(store.clone(), rank, 2).unwrap();
    met.run_id = run_id.map(str::to_owned);
    met
}

fn take(store: &Arc<dyn Store>, rank: u32) -> Result<RankClaim> {
    block_on(RankClaim::take(&met(store, rank, None), "g"))
}

/// A server that stands, and a way to connect to it.
fn standing() -> (TcpStore, impl Fn() -> Arc<dyn Store>) {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).wait_for_workers(false);
    let server = TcpStore::new(options).unwrap();
    let port = server.port();
    let connect = move || -> Arc<dyn Store> {
        Arc::new(TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap())
    };
    (server, connect)
}

/// Another process takes the place of `rank` in generation 0, over `store`.
fn take_elsewhere(store: &dyn Store, rank: u32) {
    let token = format!("{:032x}", 0xfeed_0000_u32 + rank);
    for scope in [BASE, &format!("{BASE}/0")] {
        store.add(&member_key(scope, &token), 1).unwrap();
    }
    store.compare_set(&format!("{BASE}/generation"), b"", b"0").unwrap();
    let place = format!("{BASE}/0/place/{rank}");
    assert_eq!(store.compare_set(&place, b"", token.as_bytes()).unwrap(), token.as_bytes());
}

/// Rank `rank` meets the other in their group, as `init_process_group` does it.
fn join_group(claim: &RankClaim, rank: u32) -> Result<()> {
    let options = crate::process_group::GroupOptions::default().timeout(LIMIT);
    crate::process_group::ProcessGroup::new(claim.scoped_store(), rank, 2, "g", options).map(drop)
}

/// Both ranks of a group meet.
fn join_both(claims: &[RankClaim; 2]) -> [Result<()>; 2] {
    std::thread::scope(|scope| {
        let join = |rank: usize| {
            let claim = &claims[rank];
            scope.spawn(move || join_group(claim, rank as u32))
        };
        [0, 1].map(join).map(|thread| thread.join().unwrap())
    })
}

#[test]
fn the_name_of_a_group_that_ended_is_free_again_and_its_keys_are_gone() {
    let (server, connect) = standing();
    for _ in 0..3 {
        let stores = [connect(), connect()];
        let claims = [take(&stores[0], 0).unwrap(), take(&stores[1], 1).unwrap()];
        assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
        assert!(server.num_keys().unwrap() > 4);
        for claim in &claims {
            block_on(claim.release()).unwrap();
        }
        assert_eq!(server.list_keys().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn ranks_that_are_gone_without_a_word_leave_their_names_and_no_keys() {
    let (server, connect) = standing();
    for _ in 0..3 {
        let (first, second) = (connect(), connect());
        take_elsewhere(&*first, 0);
        take_elsewhere(&*second, 1);
        drop((first, second));
        let stores = [connect(), connect()];
        let claims = [take(&stores[0], 0).unwrap(), take(&stores[1], 1).unwrap()];
        assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
        drop((stores, claims));
        // The server learns of each end in its own time.
        while server.num_keys().unwrap() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_rank_that_comes_anew_takes_those_along_who_wait() {
    let (_server, connect) = standing();
    let gone = connect();
    take_elsewhere(&*gone, 0);
    let stores = [connect(), connect()];
    let early = take(&stores[1], 1).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| join_group(&early, 1));
        drop(gone);
        let first = take(&stores[0], 0).unwrap();
        let error = waits.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("has joined again"), "{error}");
        assert!(block_on(async { Ok(early.is_superseded().await) }).unwrap());
        block_on(early.release()).unwrap();
        let claims = [first, take(&stores[1], 1).unwrap()];
        assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
    });
}

#[test]
fn who_left_may_come_back_before_the_others_have_left() {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let slow = take(&store, 0).unwrap();
    let quick = take(&store, 1).unwrap();
    block_on(quick.release()).unwrap();
    let quick = take(&store, 1).unwrap();
    block_on(slow.release()).unwrap();
    let claims = [take(&store, 0).unwrap(), quick];
    assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
    for claim in &claims {
        block_on(claim.release()).unwrap();
    }
    assert_eq!(store.num_keys().unwrap(), 0);
    // A claim that is dropped, as when a group is aborted, is nobody's either.
    drop(take(&store, 0).unwrap());
    take(&store, 0).unwrap();
}

#[test]
fn a_rank_that_is_there_is_told_apart_from_one_that_is_gone() {
    let (_server, connect) = standing();
    let (other, store) = (connect(), connect());
    take_elsewhere(&*other, 0);
    let waiting = take(&store, 1).unwrap();
    let error = take(&store, 0).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("rank 0 joined twice: another process"), "{error}");
    let waits = join_group(&waiting, 1).unwrap_err().to_string();
    assert_eq!(waits, error);
}

#[test]
fn ranks_of_another_run_are_refused_with_both_names() {
    let (_server, connect) = standing();
    let (ours, theirs) = (connect(), connect());
    let first = block_on(RankClaim::take(&met(&ours, 0, Some("A")), "g")).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| join_group(&first, 0));
        let stranger = block_on(RankClaim::take(&met(&theirs, 1, Some("B")), "g"));
        let told = stranger.map(drop).unwrap_err().to_string();
        assert!(told.starts_with("rank 1 of run 'B' came to group 'g' of run 'A'"), "{told}");
        assert_eq!(waits.join().unwrap().unwrap_err().to_string(), told);
    });
    block_on(first.release()).unwrap();
    // A run that is over is in nobody's way, and who does not know its run belongs to any.
    for ids in [[Some("B"), Some("B")], [None, Some("C")], [Some("D"), None]] {
        let stores = [ours.clone(), theirs.clone()];
        let [zero, one] = [0, 1].map(|rank: u32| {
            let met = met(&stores[rank as usize], rank, ids[rank as usize]);
            block_on(RankClaim::take(&met, "g")).unwrap()
        });
        let claims = [zero, one];
        assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
        claims.iter().for_each(|claim| block_on(claim.release()).unwrap());
    }
}

#[test]
fn a_host_that_is_refused_stays_until_the_others_have_heard_why() {
    for (run_ids, restarts, says) in [
        ([Some("A"), Some("B")], [None, None], "rank 0 of run 'A' came to group 'g' of run 'B'"),
        ([None, None], [Some(0), Some(1)], "rank 0 of restart 0 (TORCHELASTIC_RESTART_COUNT)"),
    ] {
        let (server, connect) = standing();
        let hosts: Arc<dyn Store> = Arc::new(server);
        let of_rank = |store: &Arc<dyn Store>, rank: u32| {
            let mut met = met(store, rank, run_ids[rank as usize]);
            (met.hosting, met.restart_count) = (rank == 0, restarts[rank as usize]);
            met
        };
        let first = connect();
        let waiting = block_on(RankClaim::take(&of_rank(&first, 1), "g")).unwrap();
        drop(first);
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || join_group(&waiting, 1).unwrap_err().to_string());
            let refused = block_on(RankClaim::take(&of_rank(&hosts, 0), "g")).map(drop);
            // The store ends with its host.
            drop(hosts);
            let told = refused.unwrap_err().to_string();
            assert!(told.starts_with(says), "{told}");
            assert_eq!(waits.join().unwrap(), told);
        });
    }
}

#[test]
fn a_generation_of_another_world_size_whose_ranks_are_gone_is_in_nobodys_way() {
    for (old, new) in [(2, 3), (3, 2)] {
        let (_server, connect) = standing();
        // Another member keeps what the ranks wrote, as a session does that may come back.
        let keeps = connect();
        keeps.add(&member_key(&format!("{BASE}/0"), &"a".repeat(32)), 1).unwrap();
        keeps.add(&member_key(BASE, &"a".repeat(32)), 1).unwrap();
        let gone = connect();
        (0..old).for_each(|rank| take_elsewhere(&*gone, rank));
        let size = format!("{BASE}/0/world_size");
        gone.compare_set(&size, b"", old.to_string().as_bytes()).unwrap();
        drop(gone);
        let stores: Vec<_> = (0..new).map(|_| connect()).collect();
        // The server learns of each end in its own time.
        while !keeps.list_keys().unwrap().iter().all(|key| !key.contains("feed")) {
            std::thread::yield_now();
        }
        // The rank that the old group may not have had comes first.
        for rank in (0..new).rev() {
            let met = Rendezvous::new(stores[rank as usize].clone(), rank, new).unwrap();
            let claim = block_on(RankClaim::take(&met, "g")).unwrap();
            let here = format!("{BASE}/1/place/{rank}");
            assert!(keeps.check(&[&here]).unwrap(), "rank {rank} of {new} after {old}");
            std::mem::forget(claim);
        }
    }
}

#[test]
fn the_last_rank_to_come_takes_all_along_if_one_is_gone_meanwhile() {
    let (_server, connect) = standing();
    let gone = connect();
    take_elsewhere(&*gone, 0);
    for key in ["world_size", "came"] {
        gone.add(&format!("{BASE}/0/{key}"), if key == "came" { 1 } else { 2 }).unwrap();
    }
    let stores = [connect(), connect()];
    let early = Rendezvous::new(stores[1].clone(), 1, 2).unwrap();
    for scope in [BASE, &format!("{BASE}/0")] {
        stores[1].add(&member_key(scope, &"a".repeat(32)), 1).unwrap();
    }
    drop(gone);
    let owner = member_key(&format!("{BASE}/0"), &format!("{:032x}", 0xfeed_0000_u32));
    while stores[1].check(&[&owner]).unwrap() {
        std::thread::yield_now();
    }
    let claims = [1, 0].map(|rank| {
        let met = if rank == 1 { &early } else { &met(&stores[0], 0, None) };
        block_on(RankClaim::take(met, "g")).unwrap()
    });
    let [one, zero] = claims;
    assert_eq!(join_both(&[zero, one]), [Ok(()), Ok(())]);
}

#[test]
fn ranks_of_an_earlier_restart_hear_at_once_that_it_is_over() {
    let (_server, connect) = standing();
    let of_restart = |store: &Arc<dyn Store>, rank, restart_count| {
        let mut met = met(store, rank, Some("run"));
        met.restart_count = restart_count;
        block_on(RankClaim::take(&met, "g"))
    };
    let stores = [connect(), connect()];
    let early = of_restart(&stores[0], 0, Some(0)).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| join_group(&early, 0));
        let later = of_restart(&stores[1], 1, Some(1)).unwrap();
        let superseded = waits.join().unwrap().unwrap_err().to_string();
        assert!(superseded.contains("has joined again"), "{superseded}");
        block_on(early.release()).unwrap();
        let told = of_restart(&stores[0], 0, Some(0)).map(drop).unwrap_err().to_string();
        let says = "rank 0 of restart 0 (TORCHELASTIC_RESTART_COUNT) came to group 'g', whose \
                    ranks are of restart 1 by now";
        assert!(told.starts_with(says), "{told}");
        // Its agent starts it again; a rank that knows no restart belongs to any.
        for count in [Some(1), None] {
            let again = of_restart(&stores[0], 0, count).unwrap();
            block_on(again.release()).unwrap();
        }
        block_on(later.release()).unwrap();
    });
    // Another job begins to count anew.
    let claims = [0, 1].map(|rank| of_restart(&stores[rank as usize], rank, Some(0)).unwrap());
    assert_eq!(join_both(&claims), [Ok(()), Ok(())]);
}

#[test]
fn a_group_of_one_is_in_nobodys_way() {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let alone = || {
        let met = Rendezvous::new(store.clone(), 0, 1).unwrap();
        block_on(RankClaim::take(&met, "g")).unwrap()
    };
    let (one, two) = (alone(), alone());
    let both = [take(&store, 0).unwrap(), take(&store, 1).unwrap()];
    assert_eq!(join_both(&both), [Ok(()), Ok(())]);
    for claim in [&one, &two, &both[0], &both[1]] {
        block_on(claim.release()).unwrap();
    }
    assert_eq!(store.num_keys().unwrap(), 0);
}

#[test]
fn names_of_groups_do_not_run_into_one_another() {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let take = |name: &str| block_on(RankClaim::take(&met(&store, 0, None), name)).unwrap();
    let (outer, inner) = (take("a"), take("a/0"));
    inner.scoped_store().set("key", b"value").unwrap();
    block_on(outer.release()).unwrap();
    assert!(inner.scoped_store().check(&["key"]).unwrap());
}
