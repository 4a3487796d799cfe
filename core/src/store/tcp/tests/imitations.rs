//! The client against servers that answer what a test says: PyTorch's bytes, lies, and silence.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::generated::error::Error;
use crate::store::deadline::SLICE;
use crate::store::tcp::{TcpStore, TcpStoreOptions};
use crate::store::{Store, install_interrupt_check};

#[test]
fn the_client_sends_what_torch_sends_and_cancels_as_torch_cancels() {
    let store = imitation(|stream| {
        let mut expect = |expected: &[u8], reply: &[u8]| {
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
            stream.write_all(reply).unwrap();
        };
        expect(b"\x01\x02\0\0\0\0\0\0\0/k\x02\0\0\0\0\0\0\0v1", b"");
        expect(b"\x04\x02\0\0\0\0\0\0\0/n\xf9\xff\xff\xff\xff\xff\xff\xff", &(-2i64).to_le_bytes());
        let zz = b"\x06\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0/zz\x03\0\0\0\0\0\0\0/yy";
        expect(zz, b"");
        expect(b"\x0c", b"\x01");
        // The end of the wait crosses the cancellation.
        expect(zz, b"");
        expect(b"\x0c", b"\0\x01");
        expect(b"\x08\x02\0\0\0\0\0\0\0/k", &1i64.to_le_bytes());
    });
    store.set("k", b"v1").unwrap();
    assert_eq!(store.add("n", -7).unwrap(), -2);
    let limit = Some(Duration::from_millis(30));
    for _ in 0..2 {
        let error = store.wait(&["zz", "yy"], limit).unwrap_err();
        assert_eq!(error.to_string(), "wait timeout after 30ms, keys: /zz, /yy");
    }
    assert!(store.delete_key("k").unwrap());
}

#[test]
fn a_get_is_right_whenever_its_key_comes() {
    let get = b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\x03\x02\0\0\0\0\0\0\0/k";
    let again = b"\x03\x02\0\0\0\0\0\0\0/k";
    let store = imitation(move |stream| {
        let mut expect = |expected: &[u8], reply: &[u8]| {
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
            stream.write_all(reply).unwrap();
        };
        // It is there.
        expect(get, b"\0\x02\0\0\0\0\0\0\0v1");
        // It is there and empty.
        expect(get, b"\0\0\0\0\0\0\0\0\0");
        expect(again, b"\0\0\0\0\0\0\0\0");
        // It comes later.
        expect(get, b"\0\0\0\0\0\0\0\0");
        expect(b"", b"\0");
        expect(again, b"\x02\0\0\0\0\0\0\0v2");
        // It never comes.
        expect(get, b"\0\0\0\0\0\0\0\0");
        expect(b"\x0c", b"\x01");
        // It comes when the cancellation is on its way.
        expect(get, b"\0\0\0\0\0\0\0\0");
        expect(b"\x0c", b"\0\x01");
        // The server was slow, and the key had been there all the time.
        expect(get, b"");
        expect(b"\x0c", b"\0\x02\0\0\0\0\0\0\0v3\x01");
        // As before, and it is empty.
        expect(get, b"");
        expect(b"\x0c", b"\0\0\0\0\0\0\0\0\0\x01");
        expect(b"\x07", b"");
    });
    assert_eq!(store.get("k").unwrap(), b"v1");
    assert_eq!(store.get("k").unwrap(), b"");
    assert_eq!(store.get("k").unwrap(), b"v2");
    store.set_timeout(Duration::from_millis(30));
    for _ in 0..4 {
        let error = store.get("k").unwrap_err();
        assert_eq!(error.to_string(), "wait timeout after 30ms, keys: /k");
    }
}

#[test]
fn an_interrupted_wait_leaves_a_slow_server_its_time_to_confirm() {
    let store = imitation(|stream| {
        let mut expect = |expected: &[u8], reply: &[u8]| {
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
            if expected == b"\x0c" {
                // Longer than the client goes without a look at its interrupt check, and well
                // within the time that it gives a server to confirm.
                std::thread::sleep(SLICE + SLICE / 4);
            }
            stream.write_all(reply).unwrap();
        };
        let wait = b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k";
        let get = [&wait[..], b"\x03\x02\0\0\0\0\0\0\0/k"].concat();
        expect(&get, b"\0\0\0\0\0\0\0\0");
        expect(b"\x0c", b"\x01");
        expect(wait, b"");
        expect(b"\x0c", b"\x01");
        expect(b"\x08\x02\0\0\0\0\0\0\0/k", &1i64.to_le_bytes());
    });
    let guard = install_interrupt_check(|| true);
    for result in [store.get("k").map(drop), store.wait(&["k"], None)] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("interrupted"), "{error}");
    }
    drop(guard);
    assert!(store.delete_key("k").unwrap(), "the connection is as good as before");
}

#[test]
fn a_server_that_lies_or_dies_is_an_error_and_no_hang() {
    let lies: [&'static [u8]; 4] =
        [b"\x07", b"\0\xff\xff\xff\xff\xff\xff\xff\xff", b"\0\x05\0", b""];
    for lie in lies {
        let store = imitation(move |stream| {
            let mut request = [0; 29];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(lie).unwrap();
            if lie.len() > 3 {
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        let error = store.get("k").unwrap_err();
        assert!(matches!(error, Error::Network { .. }), "{error:?}");
        let error = store.set("k", b"").unwrap_err();
        assert!(matches!(error, Error::Network { .. }), "{error:?}");
    }
}

#[test]
fn a_silent_server_costs_a_request_its_own_time_and_nothing_more() {
    let (speak, may_speak) = std::sync::mpsc::channel::<()>();
    let store = imitation(move |stream| {
        let mut expect = |expected: &[u8]| {
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
        };
        expect(b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k");
        expect(b"\x03\x02\0\0\0\0\0\0\0/k");
        expect(b"\x0c");
        // Until the client has given up twice.
        may_speak.recv().unwrap();
        // The value came while nobody listened.
        stream.write_all(b"\0\x03\0\0\0\0\0\0\0one\x01").unwrap();
        let delete = b"\x08\x02\0\0\0\0\0\0\0/k";
        let mut received = [0; 11];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, *delete);
        stream.write_all(&1i64.to_le_bytes()).unwrap();
    });
    store.set_timeout(Duration::from_millis(30));
    for _ in 0..2 {
        let error = store.get("k").unwrap_err();
        assert_eq!(error.to_string(), "wait timeout after 30ms, keys: /k");
    }
    store.set_timeout(Duration::from_secs(60));
    speak.send(()).unwrap();
    assert!(store.delete_key("k").unwrap());
}

#[test]
fn what_was_sent_over_a_connection_that_was_given_up_comes_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            greet(&mut stream);
            // A request whose answer does not come in time.
            let mut check = [0; 19];
            stream.read_exact(&mut check).unwrap();
            let (mut next, _) = listener.accept().unwrap();
            greet(&mut next);
            // The client sends no more over the first, and nothing over the second until that is
            // hung up.
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
            next.set_nonblocking(true).unwrap();
            let early = next.peek(&mut [0]).unwrap_err();
            assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
            next.set_nonblocking(false).unwrap();
            drop(stream);
            next.read_exact(&mut check).unwrap();
            next.write_all(&[0]).unwrap();
        });
        let store = TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap();
        store.set_timeout(Duration::from_millis(30));
        let error = store.check(&["k"]).unwrap_err();
        assert_eq!(error.to_string(), "check timeout after 30ms, keys: k");
        store.set_timeout(Duration::from_secs(60));
        assert!(store.check(&["k"]).unwrap());
    });
}

#[test]
fn a_worker_that_a_server_lets_in_while_it_ends_finds_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = move || TcpStoreOptions::new("127.0.0.1", port).world_size(2);
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || TcpStore::new(options()).unwrap().get("k").unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        greet(&mut stream);
        // The worker would be counted now.
        stream.read_exact(&mut [0; 1]).unwrap();
        drop((stream, listener));
        let next = TcpStore::new(options().is_master(true)).unwrap();
        next.set("k", b"1").unwrap();
        assert_eq!(worker.join().unwrap(), b"1");
    });
}

#[test]
fn a_server_that_cannot_list_keys_is_named_and_the_store_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        greet(&mut stream);
        // As PyTorch's servers up to 2.8 do.
        stream.read_exact(&mut [0; 1]).unwrap();
        drop(stream);
        let (mut next, _) = listener.accept().unwrap();
        greet(&mut next);
        let mut delete = [0; 11];
        next.read_exact(&mut delete).unwrap();
        next.write_all(&1i64.to_le_bytes()).unwrap();
    });
    let store = TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap();
    let error = store.list_keys().unwrap_err();
    assert!(matches!(&error, Error::Unsupported { operation, .. } if operation == "list_keys"));
    assert!(store.delete_key("k").unwrap());
}

/// A server of one connection, which answers the handshake and then what `answer` says.
fn imitation(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> TcpStore {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        greet(&mut stream);
        answer(&mut stream);
    });
    TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap()
}

/// Answers what a client asks before its first request, as PyTorch's servers do.
fn greet(stream: &mut TcpStream) {
    let mut hello = [0; 10];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(hello[..6], *b"\0\xce\xf7\x85\x3c\x0d");
    stream.write_all(&hello[6..]).unwrap();
    if cfg!(target_os = "linux") {
        // Whether there is a shorter way; PyTorch's servers have none.
        let check = b"\x05\x01\0\0\0\0\0\0\0\x0e\0\0\0\0\0\0\0polyrank/local";
        let mut asked = vec![0; check.len()];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(asked, check);
        stream.write_all(b"\x01").unwrap();
    }
}
