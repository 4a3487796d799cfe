//! Each rule by an example from hand, and what holds whatever happens.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn options(min_replicas: usize, join_timeout: Duration) -> QuorumOptions {
    QuorumOptions { min_replicas, join_timeout, ..QuorumOptions::default() }
}

fn member(id: &str) -> QuorumMember {
    QuorumMember { replica_id: id.to_owned(), step: 1, world_size: 1, ..QuorumMember::default() }
}

/// Replicas that ask under these ids.
fn asking(ids: &[&str], now: Duration, options: &QuorumOptions) -> Replicas {
    let mut replicas = Replicas::default();
    ask(&mut replicas, ids, now, options);
    replicas
}

fn ask(replicas: &mut Replicas, ids: &[&str], now: Duration, options: &QuorumOptions) {
    for id in ids {
        replicas.join(member(id), now, options).unwrap();
    }
}

fn settle(replicas: &mut Replicas, now: Duration, options: &QuorumOptions) -> Option<Quorum> {
    replicas.settle(now, at(1_700_000_000), options).ok()
}

fn ids(quorum: &Quorum) -> Vec<&str> {
    quorum.participants.iter().map(|member| member.replica_id.as_str()).collect()
}

fn reason(replicas: &Replicas, now: Duration, options: &QuorumOptions) -> String {
    match replicas.decide(now, options) {
        Decision::Waiting(reason) => reason.to_string(),
        Decision::Ready(members) => panic!("there is a quorum: {members:?}"),
    }
}

#[test]
fn rule_1_those_alive_that_ask_are_members_sorted_by_id() {
    let options = options(1, HOUR);
    let mut replicas = asking(&["c", "a"], at(0), &options);
    ask(&mut replicas, &["b"], at(5), &options);
    // The heartbeats of a and c are 5 s old, which is not younger than 5 s.
    let quorum = settle(&mut replicas, at(5), &options).unwrap();
    assert_eq!(ids(&quorum), ["b"]);
    ask(&mut replicas, &["b"], at(6), &options);
    replicas.heartbeat("a", at(6), &options).unwrap();
    replicas.heartbeat("c", at(6), &options).unwrap();
    let quorum = settle(&mut replicas, at(6), &options).unwrap();
    assert_eq!(ids(&quorum), ["a", "b", "c"]);
    assert_eq!(quorum.created.unwrap().seconds, 1_700_000_000);
}

#[test]
fn rule_1_who_lost_its_connection_is_dead_soon_unless_it_comes_again() {
    let options = options(1, HOUR);
    let mut replicas = asking(&["a", "b", "c"], at(0), &options);
    settle(&mut replicas, at(0), &options).unwrap();
    ask(&mut replicas, &["a"], at(1), &options);
    for time in [at(1) - Duration::from_millis(100), at(1)] {
        replicas.heartbeat("b", time, &options).unwrap();
    }
    replicas.disconnect("b", at(1));
    replicas.disconnect("c", at(1));
    replicas.disconnect("nobody", at(1));
    let soon = at(1) + RECONNECTION - Duration::from_millis(1);
    let said = reason(&replicas, soon, &options);
    assert!(said.contains("b, c"), "{said}");
    // It was heard of after its connection had ended: it has another.
    replicas.heartbeat("c", soon, &options).unwrap();
    let later = at(1) + RECONNECTION;
    let alive = |id| replicas.is_alive(id, later, &options);
    assert_eq!(["a", "b", "c", "nobody"].map(alive), [true, false, true, false]);
    ask(&mut replicas, &["c"], later, &options);
    assert_eq!(ids(&settle(&mut replicas, later, &options).unwrap()), ["a", "c"]);
}

#[test]
fn rule_1_whose_heartbeats_are_seldom_has_longer_to_connect_again() {
    let options = options(1, HOUR);
    let mut replicas = Replicas::default();
    for time in 0..4 {
        replicas.heartbeat("a", at(time), &options).unwrap();
        // What it asks meanwhile is none of its heartbeats.
        ask(&mut replicas, &["a"], at(time) + Duration::from_millis(10), &options);
    }
    let dead_at = replicas.disconnect("a", at(3)).unwrap();
    assert_eq!(dead_at, at(3) + Duration::from_millis(1980));
    assert!(replicas.is_alive("a", dead_at - Duration::from_millis(1), &options));
    assert!(!replicas.is_alive("a", dead_at, &options));
    assert_eq!(replicas.disconnect("nobody", at(3)), None);
}

#[test]
fn who_asks_and_is_silent_is_named() {
    let options = options(2, HOUR);
    let mut replicas = asking(&["a"], at(0), &options);
    assert_eq!(
        reason(&replicas, at(9), &options),
        "waits for a, which asks and sends no heartbeats"
    );
    ask(&mut replicas, &["b"], at(9), &options);
    let expected = "waits for 1 more replica: 1 of at least 2 has joined; a, which asks and sends \
                    no heartbeats";
    assert_eq!(reason(&replicas, at(9), &options), expected);
    assert_eq!(reason(&Replicas::default(), at(9), &options), "nobody asks for a quorum");
}

#[test]
fn rule_2_shrink_only_lets_in_nobody_new() {
    let options = options(1, HOUR);
    let mut replicas = asking(&["a", "b"], at(0), &options);
    settle(&mut replicas, at(0), &options).unwrap();
    ask(&mut replicas, &["c"], at(6), &options);
    replicas.join(QuorumMember { shrink_only: true, ..member("a") }, at(6), &options).unwrap();
    let quorum = settle(&mut replicas, at(6), &options).unwrap();
    assert_eq!(ids(&quorum), ["a"]);
    assert!(replicas.joined().contains_key("c"), "it goes on waiting");
}

#[test]
fn rule_2_never_makes_a_quorum_of_nobody() {
    let options = options(1, HOUR);
    let mut replicas = asking(&["a"], at(0), &options);
    settle(&mut replicas, at(0), &options).unwrap();
    replicas.join(QuorumMember { shrink_only: true, ..member("b") }, at(9), &options).unwrap();
    let said = reason(&replicas, at(9), &options);
    assert!(said.contains("1 has joined, none of which was in it, and shrink_only"), "{said}");
}

#[test]
fn rule_3_all_of_the_last_quorum_are_enough_and_newcomers_come_in() {
    let two = options(2, HOUR);
    let mut replicas = asking(&["a", "b"], at(0), &two);
    settle(&mut replicas, at(0), &two).unwrap();
    // c is alive and does not ask: neither is it waited for, nor are more wanted.
    replicas.heartbeat("c", at(1), &two).unwrap();
    ask(&mut replicas, &["a", "b", "d"], at(1), &two);
    let quorum = settle(&mut replicas, at(1), &options(7, HOUR)).unwrap();
    assert_eq!(ids(&quorum), ["a", "b", "d"]);
}

#[test]
fn rule_4_waits_for_the_fewest_that_may_be() {
    let options = options(3, HOUR);
    let mut replicas = asking(&["a"], at(0), &options);
    assert_eq!(
        reason(&replicas, at(0), &options),
        "waits for 2 more replicas: 1 of at least 3 has joined"
    );
    ask(&mut replicas, &["b"], at(0), &options);
    replicas.heartbeat("z", at(0), &options).unwrap();
    assert_eq!(
        reason(&replicas, at(0), &options),
        "waits for 1 more replica: 2 of at least 3 have joined; z, which is alive and has not \
         joined"
    );
}

#[test]
fn rule_5_half_of_those_alive_are_not_enough() {
    let options = options(1, Duration::ZERO);
    let mut replicas = asking(&["a", "b"], at(0), &options);
    for id in ["c", "d"] {
        replicas.heartbeat(id, at(0), &options).unwrap();
    }
    assert_eq!(
        reason(&replicas, at(0), &options),
        "waits for more than half of the 4 replicas that are alive: 2 have joined; c, d, which are \
         alive and have not joined"
    );
    ask(&mut replicas, &["c"], at(0), &options);
    assert_eq!(ids(&settle(&mut replicas, at(0), &options).unwrap()), ["a", "b", "c"]);
}

#[test]
fn rule_6_those_alive_are_waited_for_from_the_first_that_asks() {
    let options = options(1, at(10));
    let mut replicas = asking(&["a"], at(0), &options);
    ask(&mut replicas, &["b"], at(4), &options);
    for id in ["a", "b", "c"] {
        replicas.heartbeat(id, at(7), &options).unwrap();
    }
    assert_eq!(
        reason(&replicas, at(7), &options),
        "waits up to 3.0 s for c, which is alive and has not joined"
    );
    assert!(settle(&mut replicas, at(9), &options).is_none());
    assert_eq!(ids(&settle(&mut replicas, at(10), &options).unwrap()), ["a", "b"]);
}

#[test]
fn rule_7_the_id_grows_with_other_members_and_with_lost_steps_only() {
    let options = options(1, Duration::ZERO);
    let mut replicas = asking(&["a", "b"], at(0), &options);
    assert_eq!(settle(&mut replicas, at(0), &options).unwrap().quorum_id, 1);
    ask(&mut replicas, &["b", "a"], at(1), &options);
    assert_eq!(settle(&mut replicas, at(1), &options).unwrap().quorum_id, 1);
    ask(&mut replicas, &["a"], at(2), &options);
    replicas.join(QuorumMember { commit_failures: 1, ..member("b") }, at(2), &options).unwrap();
    assert_eq!(settle(&mut replicas, at(2), &options).unwrap().quorum_id, 2);
    ask(&mut replicas, &["a", "b", "c"], at(3), &options);
    assert_eq!(settle(&mut replicas, at(3), &options).unwrap().quorum_id, 3);
    assert_eq!(replicas.quorum_id(), 3);
}

#[test]
fn rule_8_who_is_left_out_waits_as_if_it_had_asked_now() {
    let options = options(1, at(10));
    let mut replicas = asking(&["a"], at(0), &options);
    settle(&mut replicas, at(0), &options).unwrap();
    ask(&mut replicas, &["b"], at(1), &options);
    replicas.join(QuorumMember { shrink_only: true, ..member("a") }, at(3), &options).unwrap();
    assert_eq!(ids(&settle(&mut replicas, at(3), &options).unwrap()), ["a"]);
    assert_eq!(replicas.joined()["b"].since, at(3));
    assert!(!replicas.joined().contains_key("a"));
}

#[test]
fn silent_replicas_are_forgotten_and_room_is_made_for_others() {
    let options = QuorumOptions { max_replicas: 2, ..options(1, Duration::ZERO) };
    let mut replicas = Replicas::default();
    replicas.heartbeat("a", at(0), &options).unwrap();
    replicas.heartbeat("b", at(3), &options).unwrap();
    let refusal = replicas.heartbeat("c", at(4), &options).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyReplicas { limit: 2 });
    assert!(replicas.join(member("c"), at(4), &options).is_err());
    assert!(replicas.joined().is_empty(), "who is refused does not ask");
    replicas.heartbeat("c", at(5), &options).unwrap();
    assert_eq!(replicas.heartbeats().keys().collect::<Vec<_>>(), ["b", "c"]);
    settle(&mut replicas, at(65), &options);
    assert!(replicas.heartbeats().is_empty());
}

#[test]
fn what_members_say_must_fit_an_answer() {
    let options = options(100, HOUR);
    let mut replicas = Replicas::default();
    let large = |id: &str| QuorumMember { data: "x".repeat(1 << 20), ..member(id) };
    replicas.join(large("a"), at(0), &options).unwrap();
    replicas.join(large("b"), at(0), &options).unwrap();
    assert!(matches!(
        replicas.join(large("c"), at(0), &options),
        Err(Refusal::TooManyBytes { bytes }) if bytes > MAX_QUORUM_BYTES
    ));
    replicas.join(large("b"), at(1), &options).unwrap();
}

#[test]
fn as_many_as_may_be_known_come_again_and_again() {
    let options = options(1, HOUR);
    let mut replicas = Replicas::default();
    let names: Vec<String> =
        (0..options.max_replicas).map(|number| format!("replica {number}")).collect();
    for round in 1..=2 {
        for name in &names {
            replicas.heartbeat(name, at(round), &options).unwrap();
        }
        for (number, name) in names.iter().enumerate() {
            // Each time would be slow in a build that is not optimised.
            let is_ready = number % 64 == 0 && replicas.is_ready(at(round), &options);
            assert!(!is_ready, "before {name}");
            replicas.join(member(name), at(round), &options).unwrap();
        }
        let quorum = settle(&mut replicas, at(round), &options).unwrap();
        assert_eq!((quorum.participants.len(), quorum.quorum_id), (names.len(), 1));
    }
}

#[test]
fn long_lists_of_replicas_are_cut() {
    let options = options(1, Duration::ZERO);
    let mut replicas = asking(&["a"], at(0), &options);
    for number in 0..20 {
        replicas.heartbeat(&format!("r{number:02}"), at(0), &options).unwrap();
    }
    let said = reason(&replicas, at(0), &options);
    assert!(said.ends_with("r06, r07 and 12 more, which are alive and have not joined"), "{said}");
}

/// What may happen to replicas.
#[derive(Clone, Debug)]
enum Event {
    Heartbeat(u8),
    Join { id: u8, shrink_only: bool, commit_failures: i64 },
    Leave(u8),
    Disconnect(u8),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..6_u8;
    prop_oneof![
        3 => id.clone().prop_map(Event::Heartbeat),
        4 => (id.clone(), prop::bool::weighted(0.1), 0..2_i64).prop_map(
            |(id, shrink_only, commit_failures)| Event::Join { id, shrink_only, commit_failures }
        ),
        1 => id.clone().prop_map(Event::Leave),
        1 => id.prop_map(Event::Disconnect),
        3 => (0..4000_u64).prop_map(Event::Pass),
    ]
}

fn name(id: u8) -> String {
    char::from(b'a' + id).to_string()
}

/// What must hold of a quorum, by what was known before.
fn check_quorum(before: &Replicas, quorum: &Quorum, now: Duration, options: &QuorumOptions) {
    let alive = |id: &str| {
        let is_gone = before.disconnected.get(id).is_some_and(|dead_at| now >= *dead_at);
        now - before.heartbeats[id] < options.heartbeat_timeout && !is_gone
    };
    let members = ids(quorum);
    assert!(!members.is_empty());
    assert!(members.windows(2).all(|pair| pair[0] < pair[1]), "sorted, and each once");
    assert!(members.iter().all(|id| before.joined.contains_key(*id) && alive(id)));
    let present: Vec<_> =
        before.joined.values().filter(|it| alive(&it.member.replica_id)).collect();
    let last = before.last.as_ref().map(ids);
    let shrinks = present.iter().any(|it| it.member.shrink_only);
    if let Some(last) = &last {
        assert!(!shrinks || members.iter().all(|id| last.contains(id)));
        assert!(last != &members || quorum.quorum_id - before.quorum_id <= 1);
        assert!(last == &members || quorum.quorum_id == before.quorum_id + 1);
    }
    let is_complete = last.is_some_and(|last| {
        last.iter().all(|id| present.iter().any(|it| it.member.replica_id == **id))
    });
    if !is_complete {
        let count = before.heartbeats.keys().filter(|id| alive(id)).count();
        assert!(present.len() >= options.min_replicas && present.len() > count / 2);
        let first = present.iter().map(|it| it.since).min().unwrap();
        assert!(present.len() == count || now - first >= options.join_timeout);
    }
}

proptest! {
    #[test]
    fn whatever_happens_members_are_alive_and_ids_only_grow(
        events in prop::collection::vec(event(), 1..80),
        min_replicas in 1..4_usize,
        join_timeout in 0..8000_u64,
    ) {
        let options = options(min_replicas, Duration::from_millis(join_timeout));
        let (mut replicas, mut now) = (Replicas::default(), Duration::ZERO);
        for event in events {
            match event {
                Event::Heartbeat(id) => replicas.heartbeat(&name(id), now, &options).unwrap(),
                Event::Join { id, shrink_only, commit_failures } => {
                    let member = QuorumMember { shrink_only, commit_failures, ..member(&name(id)) };
                    replicas.join(member, now, &options).unwrap();
                }
                Event::Leave(id) => replicas.leave(&name(id)),
                Event::Disconnect(id) => drop(replicas.disconnect(&name(id), now)),
                Event::Pass(milliseconds) => now += Duration::from_millis(milliseconds),
            }
            let before = replicas.clone();
            let said = replicas.joined().values().map(|it| it.member.encoded_len());
            prop_assert_eq!(replicas.joined_bytes, said.sum::<usize>());
            prop_assert_eq!(
                replicas.is_ready(now, &options),
                matches!(replicas.decide(now, &options), Decision::Ready(_))
            );
            let Some(quorum) = settle(&mut replicas, now, &options) else {
                // Whoever waits is told something.
                prop_assert!(!reason(&replicas, now, &options).is_empty());
                prop_assert_eq!(replicas.quorum_id(), before.quorum_id());
                continue;
            };
            check_quorum(&before, &quorum, now, &options);
            prop_assert!(quorum.quorum_id >= before.quorum_id().max(1));
            let members = ids(&quorum);
            let left_out = before.joined().keys().filter(|id| !members.contains(&id.as_str()));
            prop_assert!(left_out.eq(replicas.joined().keys()));
        }
    }

    #[test]
    fn all_that_are_alive_and_enough_are_a_quorum_at_once(
        count in 1..12_u8,
        min_replicas in 1..12_usize,
    ) {
        prop_assume!(usize::from(count) >= min_replicas);
        let options = options(min_replicas, HOUR);
        let mut replicas = Replicas::default();
        for id in 0..count {
            replicas.join(member(&name(id)), at(1), &options).unwrap();
        }
        let quorum = settle(&mut replicas, at(1), &options).unwrap();
        prop_assert_eq!(quorum.participants.len(), usize::from(count));
        prop_assert!(replicas.joined().is_empty() && quorum.quorum_id == 1);
    }
}
