//! One suite for every store: what c10d's stores promise, mounted on each.
//! Knows nothing of how a store keeps its promises.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// A store to test, and what must live as long.
struct MountedStore {
    store: Arc<dyn Store>,
    /// How error messages spell a key.
    spelled: fn(&str) -> String,
    _keep: Box<dyn Any>,
}

/// The path of a file that nobody has made yet, in a new folder that is removed at the end.
pub(crate) struct TemporaryFile(
    pub(crate) PathBuf,
    #[expect(dead_code, reason = "removes the folder when it is dropped")] TempDir,
);

impl TemporaryFile {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("polyrank-test-").unwrap();
        Self(folder.path().join("store"), folder)
    }
}

fn hash() -> MountedStore {
    let spelled = |key: &str| key.to_owned();
    MountedStore { store: Arc::new(HashStore::new()), spelled, _keep: Box::new(()) }
}

fn file() -> MountedStore {
    let path = TemporaryFile::new();
    let store = Arc::new(FileStore::new(&path.0, None).unwrap());
    MountedStore { store, spelled: |key| key.to_owned(), _keep: Box::new(path) }
}

#[cfg(feature = "tcp")]
fn tcp() -> MountedStore {
    let options = TcpStoreOptions::new("localhost", 0).is_master(true);
    let server = TcpStore::new(options).unwrap();
    let client = TcpStore::new(TcpStoreOptions::new("localhost", server.port())).unwrap();
    let spelled = |key: &str| format!("/{key}");
    MountedStore { store: Arc::new(client), spelled, _keep: Box::new(server) }
}

#[cfg(feature = "websocket")]
fn websocket() -> MountedStore {
    let options = TcpStoreOptions::new("localhost", 0).is_master(true);
    let server = TcpStore::new(options).unwrap();
    let url = format!("ws://localhost:{}", server.port());
    let client = WebSocketStore::connect(&url, DEFAULT_TIMEOUT).unwrap();
    let spelled = |key: &str| format!("/{key}");
    MountedStore { store: Arc::new(client), spelled, _keep: Box::new(server) }
}

fn prefixed(inner: MountedStore, spelled: fn(&str) -> String) -> MountedStore {
    MountedStore {
        store: Arc::new(PrefixStore::new("p", inner.store)),
        spelled,
        _keep: inner._keep,
    }
}

macro_rules! mount {
    ($($name:ident: $make:expr;)*) => { $( mount!(@ $name, $make,
        values_are_set_and_got, values_may_be_any_bytes, values_may_be_large,
        get_waits_for_its_key, get_gives_up, wait_waits_for_all_keys, wait_gives_up,
        add_counts, add_refuses_what_is_no_number, add_is_atomic, append_appends,
        check_does_not_wait, compare_set_in_every_case, compare_set_elects_one,
        deleted_keys_are_gone, many_keys_at_once, keys_are_counted_and_listed,
        queues_are_first_in_first_out, each_element_goes_to_one, an_empty_queue_gives_up,
        keys_and_queues_wait_together, a_barrier_lets_all_go_together, a_barrier_gives_up,
        a_clone_does_not_wait_for_the_other, a_wait_ends_in_time_while_another_thread_waits,
        an_interrupt_ends_a_wait, timeouts_are_per_handle,
    ); )* };
    (@ $name:ident, $make:expr, $($case:ident,)*) => {
        mod $name {
            $( #[test] fn $case() { super::$case(&$make) } )*
        }
    };
}

mount! {
    hash: super::hash();
    file: super::file();
    prefix_hash: super::prefixed(super::hash(), |key| format!("p/{key}"));
    prefix_file: super::prefixed(super::file(), |key| format!("p/{key}"));
}

#[cfg(feature = "tcp")]
mount! {
    tcp: super::tcp();
    prefix_tcp: super::prefixed(super::tcp(), |key| format!("/p/{key}"));
}

#[cfg(feature = "websocket")]
mount! {
    websocket: super::websocket();
    prefix_websocket: super::prefixed(super::websocket(), |key| format!("/p/{key}"));
}

/// Runs `body` on `threads` threads, each with a handle of its own; what they return.
fn on_threads<T: Send>(
    mounted: &MountedStore,
    threads: u32,
    body: impl Fn(u32, &dyn Store) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let store = mounted.store.clone_store().unwrap();
            let body = &body;
            scope.spawn(move || body(thread, &*store))
        };
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn timeout_of(operation: &str, keys: &str, waited_ms: u64) -> Error {
    Error::StoreTimeout { operation: operation.into(), keys: keys.into(), waited_ms }
}

const SHORT: Duration = Duration::from_millis(30);
/// For what comes, however late.
const LONG: Duration = Duration::from_secs(60);

fn values_are_set_and_got(MountedStore { store, .. }: &MountedStore) {
    store.set("k", b"one").unwrap();
    assert_eq!(store.get("k").unwrap(), b"one");
    store.set("k", b"other, and longer").unwrap();
    assert_eq!(store.get("k").unwrap(), b"other, and longer");
    store.set("k", b"").unwrap();
    assert_eq!(store.get("k").unwrap(), b"");
    assert!(store.check(&["k"]).unwrap());
}

fn values_may_be_any_bytes(MountedStore { store, .. }: &MountedStore) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let keys = ["", "/", "a/b", "nul\0in it", "-minus", "+plus", "κλειδί", "init/", "%2f?#"];
    for key in keys {
        store.set(key, &every_byte).unwrap();
        assert_eq!(store.get(key).unwrap(), every_byte, "{key:?}");
        store.set(key, key.as_bytes()).unwrap();
    }
    for key in keys {
        assert_eq!(store.get(key).unwrap(), key.as_bytes());
    }
}

fn values_may_be_large(mounted: &MountedStore) {
    let large: Vec<u8> =
        (0..8u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    mounted.store.set("large", &large).unwrap();
    let same = on_threads(mounted, 2, |_, store| store.get("large").unwrap() == large);
    assert_eq!(same, [true, true]);
    let got = mounted.store.compare_set("large", &large, b"small").unwrap();
    assert_eq!(got, b"small");
}

fn get_waits_for_its_key(mounted: &MountedStore) {
    for (key, value) in [("a", &b"value"[..]), ("b", b"")] {
        let got = on_threads(mounted, 3, |thread, store| match thread {
            0 => store.set(key, value).map(|()| value.to_vec()),
            _ => store.get(key),
        });
        assert_eq!(got, vec![Ok(value.to_vec()); 3]);
    }
}

fn get_gives_up(MountedStore { store, spelled, .. }: &MountedStore) {
    store.set_timeout(SHORT);
    for _ in 0..3 {
        assert_eq!(store.get("none"), Err(timeout_of("wait", &spelled("none"), 30)));
    }
    let both = format!("{}, {}", spelled("none"), spelled("nor"));
    assert_eq!(store.multi_get(&["none", "nor"]), Err(timeout_of("wait", &both, 30)));
    // The handle is as good as before.
    store.set_timeout(LONG);
    store.set("none", b"now").unwrap();
    assert_eq!(store.get("none").unwrap(), b"now");
}

fn wait_waits_for_all_keys(mounted: &MountedStore) {
    mounted.store.wait(&[], None).unwrap();
    let waited = on_threads(mounted, 4, |thread, store| match thread {
        0 => store.set("a", b"1"),
        1 => store.append("b", b"1"),
        2 => store.add("c", 1).map(drop),
        _ => {
            store.wait(&["a", "b", "c", "a"], None)?;
            assert!(store.check(&["a", "b", "c"])?);
            Ok(())
        }
    });
    assert_eq!(waited, vec![Ok(()); 4]);
}

fn wait_gives_up(MountedStore { store, spelled, .. }: &MountedStore) {
    store.set("there", b"").unwrap();
    let keys = format!("{}, {}", spelled("zz"), spelled("there"));
    assert_eq!(store.wait(&["zz", "there"], Some(SHORT)), Err(timeout_of("wait", &keys, 30)));
    assert_eq!(
        store.wait(&["zz"], Some(SHORT)).unwrap_err().to_string(),
        format!("wait timeout after 30ms, keys: {}", spelled("zz"))
    );
    store.set("zz", b"").unwrap();
    store.wait(&["zz", "there"], Some(LONG)).unwrap();
}

fn add_counts(MountedStore { store, .. }: &MountedStore) {
    assert_eq!(store.add("n", 0).unwrap(), 0);
    assert_eq!(store.add("n", 5).unwrap(), 5);
    assert_eq!(store.add("n", -7).unwrap(), -2);
    assert_eq!(store.get("n").unwrap(), b"-2");
    store.set("n", b" 12abc").unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 13);
    assert_eq!(store.add("n", i64::MAX - 13).unwrap(), i64::MAX);
    for amount in [1, i64::MAX] {
        assert!(matches!(store.add("n", amount), Err(Error::NotACounter { .. })), "{amount}");
    }
    assert_eq!(store.get("n").unwrap(), i64::MAX.to_string().as_bytes());
    assert_eq!(store.add("n", i64::MIN).unwrap(), -1);
}

fn add_refuses_what_is_no_number(MountedStore { store, .. }: &MountedStore) {
    store.set("text", b"abc").unwrap();
    assert!(matches!(store.add("text", 1), Err(Error::NotACounter { .. })));
    assert_eq!(store.get("text").unwrap(), b"abc");
    assert_eq!(store.add("number", 1).unwrap(), 1);
}

fn add_is_atomic(mounted: &MountedStore) {
    let mut seen = on_threads(mounted, 8, |_, store| {
        (0..25).map(|_| store.add("n", 1).unwrap()).collect::<Vec<_>>()
    })
    .concat();
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<i64>>());
}

fn append_appends(mounted: &MountedStore) {
    mounted.store.append("a", b"xy").unwrap();
    mounted.store.append("a", b"").unwrap();
    mounted.store.append("a", b"z").unwrap();
    assert_eq!(mounted.store.get("a").unwrap(), b"xyz");
    on_threads(mounted, 8, |thread, store| {
        store.append("b", &[thread as u8; 3]).unwrap();
        // An append has no reply; a get on the same handle comes after it.
        store.get("b").unwrap();
    });
    let joined = mounted.store.get("b").unwrap();
    let mut parts: Vec<&[u8]> = joined.chunks(3).collect();
    parts.sort_unstable();
    assert_eq!(parts.concat(), (0..24).map(|i| i / 3).collect::<Vec<u8>>());
}

fn check_does_not_wait(MountedStore { store, .. }: &MountedStore) {
    assert!(store.check(&[]).unwrap());
    assert!(!store.check(&["a"]).unwrap());
    store.set("a", b"").unwrap();
    assert!(store.check(&["a"]).unwrap());
    assert!(!store.check(&["a", "b"]).unwrap());
}

fn compare_set_in_every_case(MountedStore { store, .. }: &MountedStore) {
    // Missing, and something was expected: nothing is stored, and the reply is the expectation.
    assert_eq!(store.compare_set("k", b"expected", b"new").unwrap(), b"expected");
    assert!(!store.check(&["k"]).unwrap());
    assert_eq!(store.compare_set("k", b"", b"first").unwrap(), b"first");
    assert_eq!(store.compare_set("k", b"wrong", b"second").unwrap(), b"first");
    assert_eq!(store.compare_set("k", b"", b"second").unwrap(), b"first");
    assert_eq!(store.compare_set("k", b"first", b"second").unwrap(), b"second");
    assert_eq!(store.get("k").unwrap(), b"second");
    assert_eq!(store.compare_set("k", b"second", b"").unwrap(), b"");
    assert_eq!(store.compare_set("k", b"", b"third").unwrap(), b"third");
}

fn compare_set_elects_one(mounted: &MountedStore) {
    let elected = on_threads(mounted, 8, |thread, store| {
        store.compare_set("leader", b"", &[thread as u8]).unwrap()
    });
    assert_eq!(elected, vec![mounted.store.get("leader").unwrap(); 8]);
}

fn deleted_keys_are_gone(MountedStore { store, .. }: &MountedStore) {
    assert!(!store.delete_key("k").unwrap());
    store.set("k", b"1").unwrap();
    assert!(store.delete_key("k").unwrap());
    assert!(!store.delete_key("k").unwrap());
    assert!(!store.check(&["k"]).unwrap());
    assert_eq!(store.num_keys().unwrap(), 0);
    store.set("k", b"2").unwrap();
    assert_eq!(store.get("k").unwrap(), b"2");
}

fn many_keys_at_once(MountedStore { store, .. }: &MountedStore) {
    assert!(store.has_extended_api());
    let large = vec![7; 100_000];
    store.multi_set(&["a", "b", "c"], &[b"1", &large, b""]).unwrap();
    assert_eq!(store.multi_get(&["c", "b", "a", "b"]).unwrap(), [&[][..], &large, b"1", &large]);
    store.multi_set(&[], &[]).unwrap();
    assert_eq!(store.multi_get(&[]).unwrap(), Vec::<Vec<u8>>::new());
    assert!(matches!(store.multi_set(&["a", "b"], &[b"1"]), Err(Error::InvalidArgument { .. })));
}

fn keys_are_counted_and_listed(MountedStore { store, .. }: &MountedStore) {
    assert_eq!(store.num_keys().unwrap(), 0);
    assert_eq!(store.list_keys().unwrap(), Vec::<String>::new());
    store.multi_set(&["b", "a/c", ""], &[b"", b"", b""]).unwrap();
    store.queue_push("queue", b"").unwrap();
    assert_eq!(store.num_keys().unwrap(), 3);
    let mut keys = store.list_keys().unwrap();
    keys.sort_unstable();
    assert_eq!(keys, ["", "a/c", "b"]);
}

fn queues_are_first_in_first_out(MountedStore { store, .. }: &MountedStore) {
    assert_eq!(store.queue_len("q").unwrap(), 0);
    assert_eq!(store.queue_pop("q", false), Err(Error::QueueEmpty));
    assert_eq!(Error::QueueEmpty.to_string(), "queue is empty");
    for value in [&b"first"[..], b"", b"third"] {
        store.queue_push("q", value).unwrap();
    }
    assert_eq!(store.queue_len("q").unwrap(), 3);
    assert!(store.check(&["q"]).unwrap());
    store.wait(&["q"], Some(LONG)).unwrap();
    assert_eq!(store.queue_pop("q", true).unwrap(), b"first");
    assert_eq!(store.queue_pop("q", false).unwrap(), b"");
    assert_eq!(store.queue_pop("q", true).unwrap(), b"third");
    assert_eq!(store.queue_pop("q", false), Err(Error::QueueEmpty));
    assert!(!store.check(&["q"]).unwrap());
}

fn each_element_goes_to_one(mounted: &MountedStore) {
    let popped = on_threads(mounted, 6, |thread, store| match thread {
        0 | 1 => {
            (0..6).for_each(|i| store.queue_push("q", &[thread as u8 * 6 + i]).unwrap());
            // A push has no reply; this request comes after it.
            store.queue_len("q").unwrap();
            Vec::new()
        }
        _ => (0..3).flat_map(|_| store.queue_pop("q", true).unwrap()).collect(),
    });
    let mut popped = popped.concat();
    popped.sort_unstable();
    assert_eq!(popped, (0..12).collect::<Vec<u8>>());
    assert_eq!(mounted.store.queue_len("q").unwrap(), 0);
}

fn an_empty_queue_gives_up(MountedStore { store, spelled, .. }: &MountedStore) {
    store.set_timeout(SHORT);
    for _ in 0..2 {
        assert_eq!(store.queue_pop("q", true), Err(timeout_of("wait", &spelled("q"), 30)));
    }
    store.set_timeout(LONG);
    store.queue_push("q", b"1").unwrap();
    assert_eq!(store.queue_pop("q", true).unwrap(), b"1");
}

fn keys_and_queues_wait_together(mounted: &MountedStore) {
    mounted.store.queue_push("q1", b"").unwrap();
    let waited = on_threads(mounted, 3, |thread, store| match thread {
        0 => store.queue_push("q2", b""),
        1 => store.set("k", b""),
        _ => store.wait(&["q1", "k", "q2"], None),
    });
    assert_eq!(waited, vec![Ok(()); 3]);
}

fn a_barrier_lets_all_go_together(mounted: &MountedStore) {
    mounted.store.barrier("alone", 1, None).unwrap();
    for round in 0..3 {
        let came = AtomicU32::new(0);
        on_threads(mounted, 5, |_, store| {
            came.fetch_add(1, Ordering::SeqCst);
            store.barrier(&format!("b{round}"), 5, None).unwrap();
            assert_eq!(came.load(Ordering::SeqCst), 5);
        });
    }
}

fn a_barrier_gives_up(MountedStore { store, .. }: &MountedStore) {
    match store.barrier("b", 2, Some(SHORT)) {
        Err(Error::StoreTimeout { operation, keys, waited_ms: 30 }) => {
            assert_eq!(operation, "barrier");
            assert!(keys.ends_with('b'), "{keys}");
        }
        other => panic!("{other:?}"),
    }
    // Who gave up stays counted.
    store.barrier("b", 2, Some(LONG)).unwrap();
}

fn a_clone_does_not_wait_for_the_other(mounted: &MountedStore) {
    let got = on_threads(mounted, 2, |thread, store| match thread {
        0 => store.get("late"),
        _ => {
            let clone = store.clone_store()?;
            clone.set("late", b"1")?;
            clone.get("late")
        }
    });
    assert_eq!(got, vec![Ok(b"1".to_vec()); 2]);
}

fn a_wait_ends_in_time_while_another_thread_waits(
    MountedStore { store, spelled, .. }: &MountedStore,
) {
    let clone = store.clone_store().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.wait(&["late"], None));
        let ended = store.wait(&["never"], Some(SHORT));
        assert_eq!(ended, Err(timeout_of("wait", &spelled("never"), 30)));
        clone.set("late", b"").unwrap();
        waits.join().unwrap().unwrap();
    });
}

fn an_interrupt_ends_a_wait(MountedStore { store, .. }: &MountedStore) {
    let interrupted = |result: Result<()>| match result {
        Err(Error::Store { message }) => assert!(message.contains("interrupted"), "{message}"),
        other => panic!("{other:?}"),
    };
    let guard = install_interrupt_check(|| true);
    interrupted(store.get("none").map(drop));
    interrupted(store.wait(&["none"], None));
    interrupted(store.queue_pop("none", true).map(drop));
    interrupted(store.barrier("none", 2, None));
    drop(guard);
    store.set("none", b"now").unwrap();
    assert_eq!(store.get("none").unwrap(), b"now");
}

fn timeouts_are_per_handle(MountedStore { store, .. }: &MountedStore) {
    assert_eq!(store.timeout(), Duration::from_secs(300));
    let clone = store.clone_store().unwrap();
    store.set_timeout(Duration::from_micros(1500));
    assert_eq!(store.timeout(), Duration::from_millis(2), "rounded up, never to no limit");
    assert_eq!(clone.timeout(), Duration::from_secs(300));
    store.set_timeout(Duration::ZERO);
    assert_eq!(store.timeout(), Duration::ZERO);
}
