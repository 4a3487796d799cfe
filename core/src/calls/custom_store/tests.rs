//! Stores of a language, with a thread in the place of the language.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::calls::Answer;
#[cfg(feature = "tcp")]
use crate::process_group::{GroupOptions, ProcessGroup};
use crate::store::{HashStore, PrefixStore};
use crate::transport::websocket::Pipe;

/// Answers tasks with those of a table, on threads; those of `silent` never.
#[derive(Default)]
struct Table {
    store: Arc<HashStore>,
    silent: Option<&'static str>,
    unanswered: Arc<Mutex<Vec<StoreTask>>>,
    forgotten: Arc<AtomicUsize>,
    is_here: bool,
}

impl StoreCarrier for Table {
    fn carry(&self, task: StoreTask) {
        if task.method == "forget" {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
        } else if self.silent == Some(task.method) {
            self.unanswered.lock().unwrap().push(task);
        } else {
            let store = self.store.clone();
            std::thread::spawn(move || answer(&store, &task));
        }
    }

    fn is_here(&self) -> bool {
        self.is_here
    }
}

fn answer(store: &HashStore, task: &StoreTask) {
    let Answer::List(parts) = task.parts(7) else { unreachable!("parts are a list") };
    let (mut keys, mut values, mut amount) = (Vec::new(), Vec::new(), 0);
    for part in &parts {
        match part {
            Answer::Int(number) => amount = *number,
            Answer::List(items) => items.iter().for_each(|item| match item {
                Answer::Str(key) => keys.push(key.clone()),
                Answer::Bytes(value) => values.push(value.clone()),
                other => panic!("{other:?}"),
            }),
            _ => {}
        }
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let flag = |it: bool| if it { "1" } else { "0" };
    match task.method {
        "set" => store.set(keys[0], &values[0]).map(|()| task.answer("", Vec::new())).unwrap(),
        "get" => match store.get(keys[0]) {
            Ok(value) => task.answer("", vec![value]),
            Err(error) => task.fail("", &error.to_string()),
        },
        "add" => match store.add(keys[0], amount) {
            Ok(sum) => task.answer(&sum.to_string(), Vec::new()),
            Err(_) => task.fail("NotACounter", "no number"),
        },
        "check" => task.answer(flag(store.check(&keys).unwrap()), Vec::new()),
        "compare_set" => {
            let value = store.compare_set(keys[0], &values[0], &values[1]).unwrap();
            task.answer("", vec![value]);
        }
        "delete_key" => task.answer(flag(store.delete_key(keys[0]).unwrap()), Vec::new()),
        "list_keys" => {
            let names = store.list_keys().unwrap().into_iter();
            task.answer("", names.map(String::into_bytes).collect());
        }
        other => task.fail("", &format!("what is {other}?")),
    }
}

const NEEDED: &str = "set,get,add,check,compare_set,delete_key";

fn held(carrier: Table, methods: &str, base: Option<&Object>) -> Arc<dyn Store> {
    let made = make("Mine", Arc::new(carrier), base).unwrap();
    hold(&made, methods).unwrap().store().unwrap().get().clone()
}

#[test]
fn what_an_object_lacks_is_made_of_its_methods() {
    let store = held(Table::default(), &format!("{NEEDED},list_keys"), None);
    store.multi_set(&["a", "b"], &[b"1", b"2"]).unwrap();
    assert_eq!(store.multi_get(&["b", "a"]).unwrap(), [b"2", b"1"]);
    assert_eq!(store.num_keys().unwrap(), 2);
    assert_eq!(store.compare_set("a", b"1", b"3").unwrap(), b"3");
    assert_eq!(store.add("n", -5).unwrap(), -5);
    assert!(store.delete_key("n").unwrap() && !store.delete_key("n").unwrap());
    store.barrier("door", 1, None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| store.barrier("gate", 2, None).unwrap());
        }
    });
    assert!(matches!(store.add("a", 1), Ok(4)));
    store.set("text", b"x").unwrap();
    assert!(matches!(store.add("text", 1), Err(Error::NotACounter { key }) if key == "text"));
    assert!(matches!(store.multi_set(&["a"], &[]), Err(Error::InvalidArgument { .. })));
    assert!(!store.has_extended_api());
    let refused = store.append("a", b"x").unwrap_err().to_string();
    assert!(refused.contains("Mine") && refused.contains("append"), "{refused}");
}

#[test]
fn limits_hold_for_waits_and_for_answers_that_never_come() {
    let limit = Some(Duration::from_millis(20));
    let store = held(Table::default(), NEEDED, None);
    let is_late = |result: Result<()>, of: &str| match result {
        Err(Error::StoreTimeout { operation, waited_ms: 20, .. }) => operation == of,
        _ => false,
    };
    assert!(is_late(store.wait(&["none"], limit), "wait"));
    assert!(is_late(store.barrier("alone", 2, limit), "barrier"));
    let carrier = Table { silent: Some("check"), ..Table::default() };
    assert!(is_late(held(carrier, NEEDED, None).wait(&["none"], limit), "wait"));
    let carrier = Table { silent: Some("set"), ..Table::default() };
    let store = held(carrier, NEEDED, None);
    store.set_timeout(Duration::from_millis(20));
    assert!(is_late(store.set("a", b""), "set"));
}

#[test]
fn a_bound_holds_for_every_handle_until_it_is_lifted() {
    let carrier = Table { silent: Some("set"), ..Table::default() };
    let store = held(carrier, NEEDED, None);
    let bound = Bound::after(Duration::from_millis(1));
    let prefixed: Arc<dyn Store> = Arc::new(PrefixStore::new("p", store.clone()));
    for bounded in [bound.of(&store), bound.of(&prefixed), bound.of(&store).clone_store().unwrap()]
    {
        let late = bounded.set("a", b"");
        assert!(matches!(late, Err(Error::StoreTimeout { waited_ms: 1000, .. })), "{late:?}");
    }
    let bounded = bound.of(&store);
    bound.lift();
    store.set_timeout(Duration::from_millis(20));
    let late = bounded.set("a", b"");
    assert!(matches!(late, Err(Error::StoreTimeout { waited_ms: 20, .. })), "{late:?}");
}

#[cfg(feature = "tcp")]
#[test]
fn a_store_that_never_answers_does_not_hold_up_the_making_of_a_group() {
    for silent in ["compare_set", "add", "check"] {
        let store = held(Table { silent: Some(silent), ..Table::default() }, NEEDED, None);
        let options = GroupOptions::default().timeout(Duration::from_millis(20));
        let error = ProcessGroup::new(store, 0, 2, "silent", options).err();
        assert!(matches!(error, Some(Error::StoreTimeout { .. })), "{silent}: {error:?}");
    }
}

#[test]
fn a_task_that_is_given_up_fails() {
    let carrier = Table { silent: Some("get"), ..Table::default() };
    let unanswered = carrier.unanswered.clone();
    let store = held(carrier, NEEDED, None);
    let asking = std::thread::spawn(move || store.get("a"));
    let dropped = loop {
        if let Some(task) = unanswered.lock().unwrap().pop() {
            break task;
        }
        std::thread::yield_now();
    };
    drop(dropped);
    let error = asking.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("Mine.get") && error.contains("given up"), "{error}");
}

/// Carries nothing.
struct Numbered(u64);

impl Relay for Numbered {
    fn number(&self) -> u64 {
        self.0
    }

    fn open(&self, _: u64, _: u64) -> Box<dyn Pipe> {
        unreachable!("nobody opens a pipe")
    }
}

#[test]
fn an_object_may_bring_a_way_between_ranks_or_have_that_of_its_base() {
    let number = |of: &Object| {
        let held = hold(of, NEEDED).unwrap();
        held.store().unwrap().get().relay().map(|relay| relay.number())
    };
    let base = make("Base", Arc::new(Table::default()), None).unwrap();
    assert_eq!(number(&base), None);
    set_relay(&base, Arc::new(Numbered(3))).unwrap();
    assert_eq!(number(&base), Some(3));
    let own = make("Own", Arc::new(Table::default()), Some(&base)).unwrap();
    assert_eq!(number(&own), Some(3));
    set_relay(&own, Arc::new(Numbered(4))).unwrap();
    assert_eq!((number(&own), number(&base)), (Some(4), Some(3)));
}

#[test]
fn the_thread_of_an_object_does_not_wait_for_it() {
    let store = held(Table { is_here: true, ..Table::default() }, NEEDED, None);
    assert!(matches!(store.get("a"), Err(Error::Unsupported { .. })));
}

#[test]
fn what_is_not_overridden_is_the_stores_below() {
    let below = Arc::new(HashStore::new());
    let base = Object::Store(StoreObject::any(below.clone()));
    let carrier = Table::default();
    carrier.store.set("k", b"own").unwrap();
    let store = held(carrier, "get", Some(&base));
    store.set("k", b"below").unwrap();
    assert_eq!(below.get("k").unwrap(), b"below");
    assert_eq!(store.get("k").unwrap(), b"own");
    assert_eq!(store.multi_get(&["k"]).unwrap(), [b"own"]);
    store.append("k", b"!").unwrap();
    assert_eq!(below.get("k").unwrap(), b"below!");
    assert!(store.has_extended_api());
}

#[test]
fn the_object_is_forgotten_with_the_last_copy_of_each_handle() {
    let carrier = Table::default();
    let forgotten = carrier.forgotten.clone();
    let made = make("Mine", Arc::new(carrier), None).unwrap();
    let first = hold(&made, NEEDED).unwrap();
    let copy = first.store().unwrap().get().clone_store().unwrap();
    drop(first);
    assert_eq!(forgotten.load(Ordering::SeqCst), 0);
    drop(copy);
    assert_eq!(forgotten.load(Ordering::SeqCst), 1);
    drop(hold(&made, "").unwrap());
    assert_eq!(forgotten.load(Ordering::SeqCst), 2);
    drop(made);
    assert_eq!(forgotten.load(Ordering::SeqCst), 2);
}
