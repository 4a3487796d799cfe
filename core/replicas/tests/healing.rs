//! How the state of one replica comes to another, and what happens if it does not.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{LIMIT, Rank, bits, lighthouse, options, replicas, until};
use polyrank::{GroupOptions, ProcessGroup, ReduceOp};
use polyrank_replicas::{
    GroupTransport, Manager, ManagerError, ManagerOptions, ManagerState, StartQuorum, StateError,
    StatePeer, StateTransport, TransportError,
};

/// By whose they are, and their step.
type States = BTreeMap<(String, i64), Vec<u8>>;

/// What lies ready for all replicas of a test.
#[derive(Clone, Default)]
struct Table {
    states: Arc<Mutex<States>>,
    log: Arc<Mutex<Vec<String>>>,
    /// How many receives fail.
    failures: Arc<AtomicUsize>,
    name: String,
}

impl Table {
    fn of(&self, name: &str) -> Arc<Table> {
        Arc::new(Table { name: name.to_owned(), ..self.clone() })
    }

    fn note(&self, what: String) {
        self.log.lock().unwrap().push(format!("{}: {what}", self.name));
    }
}

impl StateTransport for Table {
    fn metadata(&self) -> String {
        format!("table of {}", self.name)
    }

    fn send(
        &self,
        destinations: &[StatePeer<'_>],
        step: i64,
        state: Vec<u8>,
        _: Instant,
    ) -> Result<(), TransportError> {
        let to: Vec<u32> = destinations.iter().map(|it| it.rank).collect();
        self.note(format!("gives {step} to {to:?}"));
        self.states.lock().unwrap().insert((self.metadata(), step), state);
        Ok(())
    }

    fn receive(
        &self,
        sources: &[StatePeer<'_>],
        metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError> {
        let [StatePeer { rank: source, .. }] = sources else { panic!("{sources:?}") };
        self.note(format!("takes {step} from {source}, {metadata}"));
        let failing = |left: usize| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, failing).is_ok() {
            return Err(TransportError::Other("the table has fallen over".to_owned()));
        }
        let key = (metadata.to_owned(), step);
        while Instant::now() < deadline {
            if let Some(state) = self.states.lock().unwrap().get(&key) {
                return Ok(state.clone());
            }
            std::thread::yield_now();
        }
        Err(TransportError::Late { bytes: 0, all: 0, missing: String::new() })
    }

    fn disallow(&self) {
        self.note("gives no more".to_owned());
    }
}

/// The first step of `b`, while `a` trains; what it failed with.
fn first_step_of(b: &Rank, a: &Rank) -> Option<ManagerError> {
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let is_committed = b.step(&[1.0]);
            b.manager.errored().filter(|_| !is_committed)
        });
        until(|| {
            let is_alone = a.manager.replicas().len() < 2;
            if is_alone {
                a.step(&[1.0]);
            }
            !is_alone
        });
        first.join().unwrap()
    })
}

/// `a` trains, `b` comes later; both until they were together at this step.
fn together(a: &Rank, b: &Rank, step: i64) {
    let train = |rank: &Rank| {
        until(|| {
            rank.commit(&[1.0]);
            rank.manager.current_step() >= step && rank.manager.replicas().len() == 2
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| train(b));
        train(a);
    });
    assert_eq!(a.manager.state(), b.manager.state());
    assert_eq!(bits(&a.weights()), bits(&b.weights()));
    assert_eq!(a.weights().len(), 1);
}

#[test]
fn another_transport_is_told_what_torchft_s_are() {
    let lighthouse = lighthouse(1);
    let table = Table::default();
    let of = |name: &str| options(&lighthouse, name).transport(table.of(name));
    let a = Rank::new(of("a"), 0, vec![1.0]);
    a.commit(&[1.0]);
    let b = Rank::new(of("b"), 1, Vec::new());
    table.failures.store(1, Ordering::SeqCst);
    let error = first_step_of(&b, &a).unwrap();
    assert!(matches!(error, ManagerError::Healing { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("taking the state of step") && text.contains("from a:"), "{text}");
    assert!(text.ends_with("the table has fallen over"), "{text}");
    assert_eq!(b.manager.current_step(), 0);
    together(&a, &b, a.manager.current_step() + 2);
    let log = table.log.lock().unwrap();
    // How far the other is meanwhile nobody knows.
    let is_given = log.iter().filter_map(|line| line.strip_prefix("b: takes ")).any(|taken| {
        let step = taken.strip_suffix(" from 0, table of a").unwrap();
        log.contains(&format!("a: gives {step} to [1]"))
    });
    assert!(is_given && log.iter().any(|line| line == "a: gives no more"), "{log:?}");
}

/// States over the group, by a transport of the program that notes what it is asked for, and may
/// fail to give some.
struct Noting {
    states: GroupTransport,
    name: &'static str,
    log: Arc<Mutex<Vec<String>>>,
    /// How many later states it fails to give, or waits for that failure before it takes them.
    failures: AtomicUsize,
    group: ProcessGroup,
}

fn noting(
    options: ManagerOptions,
    name: &'static str,
    log: &Arc<Mutex<Vec<String>>>,
    failures: usize,
) -> ManagerOptions {
    let group = GroupOptions::default().timeout(LIMIT);
    let group = ProcessGroup::without_members(None, "replicas", group).unwrap();
    let states = GroupTransport::new(group.clone());
    let (log, failures) = (log.clone(), AtomicUsize::new(failures));
    let noting = Noting { states, name, log, failures, group: group.clone() };
    options.group(group).transport(Arc::new(noting))
}

impl StateTransport for Noting {
    fn metadata(&self) -> String {
        self.states.metadata()
    }

    fn needs_metadata(&self) -> bool {
        false
    }

    fn takes_from_several(&self) -> bool {
        true
    }

    fn send(
        &self,
        destinations: &[StatePeer<'_>],
        step: i64,
        state: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), TransportError> {
        let failing = |left: usize| left.checked_sub(1);
        if step > 0 && self.failures.fetch_update(SeqCst, SeqCst, failing).is_ok() {
            self.log.lock().unwrap().push(format!("{} fails", self.name));
            return Err(TransportError::Other("on purpose".to_owned()));
        }
        self.states.send(destinations, step, state, deadline)
    }

    fn receive(
        &self,
        sources: &[StatePeer<'_>],
        metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError> {
        let failing = |left: usize| left.checked_sub(1);
        if step > 0 && self.failures.fetch_update(SeqCst, SeqCst, failing).is_ok() {
            // Whoever fails tells the others so; all could come from another one before.
            until(|| self.group.is_broken());
        }
        let from: Vec<&str> =
            sources.iter().map(|it| it.replica.split(':').next().unwrap()).collect();
        let state = self.states.receive(sources, metadata, step, deadline);
        let came = if state.is_ok() { "takes" } else { "lacks" };
        let step = if step == 0 { "the first state" } else { "a later state" };
        self.log.lock().unwrap().push(format!("{} {came} {step} from {from:?}", self.name));
        state
    }

    fn disallow(&self) {
        self.states.disallow();
    }
}

#[test]
fn a_replica_that_comes_takes_its_state_from_all_others_and_again_if_one_fails() {
    const LENGTH: usize = 1_500_001;
    let lighthouse = lighthouse(2);
    let log = Arc::new(Mutex::new(Vec::new()));
    let of = |name, failures| {
        let weights = (0..LENGTH).map(|at| at as f64).collect();
        let weights = if name == "c" { Vec::new() } else { weights };
        Rank::new(noting(options(&lighthouse, name), name, &log, failures), 0, weights)
    };
    let (a, b) = (of("a", 0), of("b", 1));
    let train = |rank: &Rank, size: u32| {
        // All count the same, so that they end in the same step.
        until(|| rank.step(&[1.0]) && rank.manager.num_participants() == size);
        rank.manager.state()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| train(&a, 2));
        train(&b, 2);
    });
    let c = of("c", 1);
    let last = std::thread::scope(|scope| {
        let of_a = scope.spawn(|| train(&a, 3));
        let of_b = scope.spawn(|| train(&b, 3));
        let of_c = train(&c, 3);
        assert_eq!([of_a.join().unwrap(), of_b.join().unwrap()], [of_c; 2]);
        of_c
    });
    assert!(last.step >= 2);
    for weights in [b.weights(), c.weights()] {
        assert!(weights.len() == LENGTH && bits(&weights) == bits(&a.weights()));
    }
    let log = log.lock().unwrap();
    let has = |what: &str| log.iter().any(|line| line == what);
    assert!(has(r#"b takes the first state from ["a"]"#), "only one is right: {log:?}");
    assert!(has("b fails") && has(r#"c lacks a later state from ["a", "b"]"#), "{log:?}");
    assert!(has(r#"c takes a later state from ["a", "b"]"#), "{log:?}");
}

/// A state of two functions that do what `act` does first.
fn registers(
    manager: &Manager,
    act: impl Fn(&str) -> Result<(), StateError> + Send + Sync + 'static,
) {
    let act = Arc::new(act);
    let save = act.clone();
    let save = move || save("save").map(|()| b"state".to_vec());
    let load = move |bytes: &[u8]| {
        assert_eq!(bytes, b"state");
        act("load")
    };
    manager.register_state("more", save, load).unwrap();
}

#[test]
fn who_cannot_load_a_state_takes_it_again() {
    let lighthouse = lighthouse(1);
    let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    registers(&a.manager, |_| Ok(()));
    (0..3).for_each(|_| a.commit(&[1.0]));
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    let loads = Arc::new(AtomicUsize::new(0));
    let count = loads.clone();
    registers(&b.manager, move |what| match what {
        "load" if count.fetch_add(1, Ordering::SeqCst) == 0 => Err(StateError::new("no room")),
        _ => Ok(()),
    });
    let error = first_step_of(&b, &a).unwrap();
    assert!(error.to_string().contains("loading \"more\": no room"), "{error}");
    assert_eq!(b.manager.current_step(), 0, "it is where it was");
    together(&a, &b, 8);
    assert_eq!(loads.load(Ordering::SeqCst), 2);
}

#[test]
fn who_has_loaded_half_a_state_commits_nothing_and_gives_nothing() {
    for panics in [false, true] {
        let lighthouse = lighthouse(1);
        let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
        registers(&a.manager, |_| Ok(()));
        a.commit(&[1.0]);
        let b = Rank::new(options(&lighthouse, "b"), 1, vec![9.0]);
        registers(&b.manager, move |what| match what {
            "load" if panics => panic!("on purpose"),
            "load" => Err(StateError::new("no room")),
            _ => Ok(()),
        });
        let error = first_step_of(&b, &a).unwrap();
        assert!(matches!(error, ManagerError::Healing { .. }), "{error:?}");
        assert_eq!(b.manager.current_step(), 0, "it is where it was");
        drop(a);
        // It is alone now, with the weights of the other, which are part of a state.
        let mut why = String::new();
        until(|| {
            assert!(!b.step(&[1.0]));
            why = b.manager.errored().unwrap().to_string();
            b.manager.replicas().len() == 1
        });
        assert!(why.contains("committing a step: a state could not be loaded here"), "{why}");
        b.manager.load_state(ManagerState::default());
        b.commit(&[1.0]);
    }
}

#[test]
fn who_never_takes_a_state_stays_out_and_the_others_go_on() {
    let lighthouse = lighthouse(1);
    let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    registers(&a.manager, |_| Ok(()));
    a.commit(&[1.0]);
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    registers(&b.manager, |_| Err(StateError::new("no room")));
    let is_out = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        let of_b = scope.spawn(|| {
            let mut error = None;
            until(|| {
                error = b.manager.start_quorum(StartQuorum::default()).err();
                assert!(error.is_some() || !b.finish(&[1.0]));
                error.is_some()
            });
            drop(b);
            is_out.store(true, Ordering::SeqCst);
            error.unwrap()
        });
        until(|| {
            a.step(&[1.0]);
            is_out.load(Ordering::SeqCst)
        });
        of_b.join().unwrap()
    });
    assert!(matches!(error, ManagerError::CannotHeal { failures: 5, .. }), "{error:?}");
    assert!(!error.is_retryable() && error.to_string().contains("no room"), "{error}");
    a.commit(&[1.0]);
}

#[test]
fn a_panic_of_the_program_s_code_costs_a_step() {
    let lighthouse = lighthouse(1);
    let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    let saves = Arc::new(AtomicUsize::new(0));
    let count = saves.clone();
    registers(&a.manager, move |what| {
        assert!(what != "save" || count.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        Ok(())
    });
    a.commit(&[1.0]);
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    registers(&b.manager, |_| Ok(()));
    together(&a, &b, 6);
    assert!(saves.load(Ordering::SeqCst) >= 2);
}

#[test]
fn a_model_that_stays_locked_costs_a_step_and_its_save_may_ask_the_manager() {
    let lighthouse = lighthouse(1);
    let limit = Duration::from_secs(2);
    let a = Arc::new(Rank::new(options(&lighthouse, "a").timeout(limit), 0, vec![1.0]));
    let asks = Arc::downgrade(&a);
    registers(&a.manager, move |_| {
        let manager = &asks.upgrade().unwrap().manager;
        assert_eq!((manager.num_participants(), manager.replicas().len()), (1, 2));
        let error = manager.should_commit(None).unwrap_err();
        assert!(matches!(error, ManagerError::Order(_)), "{error:?}");
        Ok(())
    });
    a.commit(&[1.0]);
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    registers(&b.manager, |_| Ok(()));
    let error = std::thread::scope(|scope| {
        scope.spawn(|| b.step(&[1.0]));
        let mut error = None;
        until(|| {
            a.manager.start_quorum(StartQuorum::default()).unwrap();
            let guard = a.model.lock().unwrap();
            let mut one = [1.0];
            a.manager.allreduce(&mut one, ReduceOp::Avg).unwrap();
            drop(guard);
            if !a.manager.should_commit(None).unwrap() {
                error = a.manager.errored();
            }
            error.is_some()
        });
        error.unwrap().to_string()
    });
    assert!(error.contains("saving \"model\": its mutex stays locked: release it"), "{error}");
    together(&a, &b, 4);
}

#[test]
fn nobody_waits_for_a_state_whose_save_has_panicked() {
    let lighthouse = lighthouse(1);
    let a = Rank::new(options(&lighthouse, "a").use_async_quorum(false), 0, vec![1.0]);
    let saves = Arc::new(AtomicUsize::new(0));
    let count = saves.clone();
    registers(&a.manager, move |what| {
        assert!(what != "save" || count.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        Ok(())
    });
    a.commit(&[1.0]);
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    registers(&b.manager, |_| Ok(()));
    std::thread::scope(|scope| {
        let of_b = scope.spawn(|| (b.step(&[1.0]), b.manager.errored().unwrap().to_string()));
        let mut failed = None;
        until(|| {
            match a.manager.start_quorum(StartQuorum::default()) {
                Ok(()) => assert!(a.finish(&[1.0])),
                Err(error) => failed = Some(error),
            }
            failed.is_some()
        });
        // It asks for no other quorum meanwhile.
        let (is_committed, why) = of_b.join().unwrap();
        assert!(!is_committed && why.contains("revoked the group"), "{why}");
        assert!(failed.unwrap().to_string().contains("has panicked"));
    });
    together(&a, &b, 6);
}

#[test]
fn replicas_that_register_other_states_do_not_train_together() {
    let lighthouse = lighthouse(2);
    let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    let b = Rank::new(options(&lighthouse, "b"), 1, vec![1.0]);
    registers(&b.manager, |_| Ok(()));
    std::thread::scope(|scope| {
        let of_b = scope.spawn(|| (b.step(&[1.0]), b.manager.errored().unwrap().to_string()));
        a.step(&[1.0]);
        let (is_committed, why) = of_b.join().unwrap();
        assert!(!is_committed);
        assert!(why.contains(r#"the other replica has the states ["model"], and this"#), "{why}");
    });
}

#[test]
fn one_rank_that_fails_has_its_whole_replica_not_commit() {
    let lighthouse = lighthouse(1);
    let store = common::server();
    let of = |rank: u32| {
        let options = options(&lighthouse, "a").group_world_size(2).group_rank(rank);
        options.store_address(format!("127.0.0.1:{}", store.port()))
    };
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let of = &of;
            scope.spawn(move || {
                let rank = Rank::new(of(rank), 0, vec![1.0]);
                rank.manager.start_quorum(StartQuorum::default()).unwrap();
                if rank.group_rank == 1 {
                    rank.manager.report_error("out of memory");
                }
                let mut one = [1.0];
                rank.manager.allreduce(&mut one, ReduceOp::Avg).unwrap();
                let is_committed = rank.manager.should_commit(None).unwrap();
                let why = rank.manager.errored().map(|error| error.to_string());
                rank.commit(&[1.0]);
                (is_committed, why, rank.manager.current_step())
            })
        });
        let [first, second] = ranks.map(|rank| rank.join().unwrap());
        assert_eq!(first, (false, None, 1));
        assert_eq!(second, (false, Some("out of memory".to_owned()), 1));
    });
}

#[test]
fn all_ranks_of_a_replica_take_a_state_again_if_one_could_not_load_it() {
    let lighthouse = lighthouse(2);
    let loads = AtomicUsize::new(0);
    let loads = Arc::new(loads);
    let none = |_, options| options;
    let all = replicas(&lighthouse, (2, 2), none, |rank| {
        let count = (rank.replica == 1).then(|| loads.clone());
        let fails = rank.group_rank == 1;
        registers(&rank.manager, move |what| match (&count, what) {
            (Some(count), "load") => {
                let is_first = fails && count.fetch_add(1, Ordering::SeqCst) == 0;
                if is_first { Err(StateError::new("no room")) } else { Ok(()) }
            }
            _ => Ok(()),
        });
        if rank.replica == 0 {
            rank.manager.load_state(ManagerState { step: 5, batches_committed: 5 });
        }
        let is_committed = rank.step(&[1.0, 1.0]);
        until(|| {
            rank.commit(&[1.0, 1.0]);
            rank.manager.current_step() >= 8 && rank.manager.replicas().len() == 2
        });
        (is_committed, rank.manager.state(), bits(&rank.weights()))
    });
    for (rank, of_b) in all[1].iter().enumerate() {
        assert!(!of_b.0, "rank {rank}");
        assert_eq!((all[0][rank].1, &all[0][rank].2), (of_b.1, &of_b.2));
    }
    assert_eq!(loads.load(Ordering::SeqCst), 2, "of the rank that failed");
}

#[test]
fn a_rank_that_stands_still_costs_another_replica_of_two_ranks_only_a_step() {
    let lighthouse = lighthouse(2);
    let limit = Duration::from_secs(3);
    let adapt = |_, options: ManagerOptions| options.timeout(limit);
    let (voted, may_go_on) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = replicas(&lighthouse, (2, 2), adapt, |rank| {
        rank.commit(&[1.0, 1.0]);
        rank.manager.start_quorum(StartQuorum::default()).unwrap();
        rank.manager.wait_quorum().unwrap();
        if (rank.replica, rank.group_rank) == (1, 0) {
            // Until the other replica has given the step up.
            until(|| {
                std::thread::yield_now();
                may_go_on.load(Ordering::SeqCst)
            });
        }
        let is_committed = rank.finish(&[1.0, 1.0]);
        if rank.replica == 0 && voted.fetch_add(1, Ordering::SeqCst) == 1 {
            may_go_on.store(true, Ordering::SeqCst);
        }
        rank.commit(&[1.0, 1.0]);
        (is_committed, rank.manager.current_step(), bits(&rank.weights()))
    });
    for (rank, of_b) in all[1].iter().enumerate() {
        assert_eq!((all[0][rank].0, all[0][rank].1), (false, 2));
        assert_eq!(all[0][rank], *of_b);
    }
}

#[test]
fn a_rank_whose_manager_has_ended_is_told_to_start_anew() {
    let lighthouse = lighthouse(1);
    let store = common::server();
    let of = |rank: u32| {
        let options = options(&lighthouse, "a").group_world_size(2).group_rank(rank);
        let options = options.store_address(format!("127.0.0.1:{}", store.port()));
        Rank::new(options.use_async_quorum(false), 0, vec![1.0])
    };
    let (first, second) = (of(0), of(1));
    std::thread::scope(|scope| {
        scope.spawn(|| first.commit(&[1.0]));
        second.commit(&[1.0]);
    });
    drop(first);
    let error = second.manager.start_quorum(StartQuorum::default()).unwrap_err();
    assert!(matches!(error, ManagerError::Connect { .. }), "{error:?}");
    assert!(!error.is_retryable() && error.to_string().contains("start all of its ranks anew"));
}
