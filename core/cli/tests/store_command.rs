//! `polyrank store` as a process of its own: where it says it is, how it ends, TLS, and how much
//! memory clients that do not read can take from it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polyrank::store::{Store, TcpStore, TcpStoreOptions, WebSocketStore};
use polyrank::wire::channel::{StoreFlag, StoreHeader};
use polyrank::wire::session::Session;
use rustix::process::{Pid, Signal, kill_process};
use tungstenite::{Message, WebSocket};

const LIMIT: Duration = Duration::from_secs(60);

/// A running `polyrank store`; it is killed if a test fails.
struct ServedStore {
    child: Child,
    /// What it said, a URL a line.
    urls: Vec<String>,
}

impl ServedStore {
    /// On a free port, with these further words; it prints `lines` URLs.
    fn start(words: &[&str], lines: usize) -> ServedStore {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
        command.args(["store", "--port", "0"]).args(words);
        ServedStore::run(command, lines)
    }

    /// On a free port, after a shell's command that sets limits.
    fn limited(limit: &str) -> ServedStore {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_polyrank");
        command.args(["-c", &format!("{limit} && exec {program} store --port 0")]);
        ServedStore::run(command, 2)
    }

    fn run(mut command: Command, lines: usize) -> ServedStore {
        command.stdout(Stdio::piped());
        command.env_remove("POLYRANK_ALLOWED_ORIGINS").env_remove("POLYRANK_RECONNECT_GRACE_MS");
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        };
        assert_eq!(line(), "polyrank store");
        let urls = (0..lines).map(|_| line()).collect();
        ServedStore { child, urls }
    }

    /// As [`ServedStore::run`]; what it says on standard error can be read.
    fn run_with_errors(mut command: Command, lines: usize) -> ServedStore {
        command.stderr(Stdio::piped());
        ServedStore::run(command, lines)
    }

    fn port(&self) -> u16 {
        self.urls[0].rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ServedStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raw clients that have said hello, and what the server echoed to each.
fn greeted(port: u16, clients: usize) -> Vec<(TcpStream, [u8; 4])> {
    let greet = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"\x00\xce\xf7\x85\x3c\x0dping").unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).unwrap();
        (stream, echo)
    };
    (0..clients).map(greet).collect()
}

#[test]
fn rust_log_says_how_much_is_logged_where_polyrank_log_does_not() {
    let own = "closes a connection";
    for (variables, is_told) in [
        (&[][..], true),
        (&[("RUST_LOG", "off")], false),
        (&[("RUST_LOG", "tokio=debug")], true),
        (&[("RUST_LOG", "off"), ("POLYRANK_LOG", "warn")], true),
        (&[("RUST_LOG", "warn"), ("POLYRANK_LOG", "off")], false),
        (&[("RUST_LOG", "off"), ("TORCH_CPP_LOG_LEVEL", "WARNING")], false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
        for name in ["RUST_LOG", "POLYRANK_LOG", "TORCH_CPP_LOG_LEVEL"] {
            command.env_remove(name);
        }
        command.args(["store", "--port", "0"]).envs(variables.iter().copied());
        let mut store = ServedStore::run_with_errors(command, 2);
        let mut stranger = TcpStream::connect(("127.0.0.1", store.port())).unwrap();
        stranger.write_all(&[0xff; 64]).unwrap();
        // It has been sent away, or its end is read with an error: either follows what is said.
        drop(stranger.read(&mut [0]));
        kill_process(store.pid(), Signal::TERM).unwrap();
        let mut said = String::new();
        store.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said.contains(own), is_told, "{variables:?}: {said}");
    }
}

#[test]
fn a_low_limit_of_open_files_is_raised_where_the_system_lets_it() {
    let served = ServedStore::limited("ulimit -Sn 40");
    let clients = greeted(served.port(), 300);
    assert!(clients.iter().all(|(_, echo)| echo == b"ping"));
}

#[test]
fn clients_for_whom_there_is_no_room_are_told_and_come_in_when_others_leave() {
    let served = ServedStore::limited("ulimit -n 40");
    let clients = greeted(served.port(), 60);
    let full = clients.iter().filter(|(_, echo)| echo == b"FULL").count();
    assert!((20..40).contains(&full), "{full} of 60 were sent away");
    let options = || TcpStoreOptions::new("127.0.0.1", served.port());
    let error = TcpStore::new(options().timeout(Duration::from_secs(2))).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("no room for more clients") && said.contains("ulimit"), "{said}");
    drop(clients);
    let store = TcpStore::new(options().timeout(LIMIT)).unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 1);
}

#[test]
fn it_serves_both_protocols_until_it_is_told_to_end() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut served = ServedStore::start(&[], 2);
        let port = served.port();
        let expected = [format!("tcp://localhost:{port}"), format!("ws://localhost:{port}")];
        assert_eq!(served.urls, expected);
        let tcp = TcpStore::new(TcpStoreOptions::new("localhost", port)).unwrap();
        let web = WebSocketStore::connect(&served.urls[1], LIMIT).unwrap();
        tcp.set("from tcp", b"1").unwrap();
        web.set("from web", b"2").unwrap();
        assert_eq!(web.get("from tcp").unwrap(), b"1");
        assert_eq!(tcp.get("from web").unwrap(), b"2");
        kill_process(served.pid(), signal).unwrap();
        assert_eq!(served.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let served = ServedStore::start(&[], 2);
    let port = served.port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_polyrank"))
        .args(["store", "--port", &port])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("polyrank store: ") && text.contains(&port), "{text}");
}

/// Where the test runs as the client, with an environment of its own.
const CLIENT: &str = "POLYRANK_TEST_WSS_URL";

#[test]
fn encrypted_connections_are_checked_against_the_trusted_roots() {
    if let Ok(url) = std::env::var(CLIENT) {
        let store = WebSocketStore::connect(&url, LIMIT).unwrap();
        return store.set("from the client", url.as_bytes()).unwrap();
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let words = ["--certificate", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let served = ServedStore::start(&words, 3);
    let port = served.port();
    assert_eq!(served.urls[2], format!("wss://localhost:{port}"));
    let test = "encrypted_connections_are_checked_against_the_trusted_roots";
    let run = |url: &str, trusted: bool| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(CLIENT, url);
        if trusted {
            command.env("SSL_CERT_FILE", &certificate);
        }
        command.output().unwrap()
    };
    let trusting = run(&served.urls[2], true);
    assert!(trusting.status.success(), "{}", String::from_utf8_lossy(&trusting.stderr));
    // A server without a certificate is told apart from one that is not trusted.
    let bare = ServedStore::start(&[], 2);
    let refused = run(&format!("wss://localhost:{}", bare.port()), true);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("write ws://"), "{text}");
    // The same server continues without TLS too.
    let plain = WebSocketStore::connect(&served.urls[1], LIMIT).unwrap();
    assert_eq!(plain.get("from the client").unwrap(), served.urls[2].as_bytes());
    for (url, trusted) in
        [(served.urls[2].clone(), false), (format!("wss://127.0.0.1:{port}"), true)]
    {
        let output = run(&url, trusted);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{url} was trusted");
        assert!(text.contains("TLS") || text.contains("root certificates"), "{text}");
    }
}

#[test]
fn clients_that_never_read_do_not_make_the_server_grow() {
    let served = ServedStore::start(&[], 2);
    let witness = WebSocketStore::connect(&served.urls[1], LIMIT).unwrap();
    witness.set("big", &vec![1; 4 << 20]).unwrap();
    let before = resident_bytes(served.pid());
    let mut deaf: Vec<_> = (0..8).map(|_| DeafClient::connect(&served)).collect();
    for client in &mut deaf {
        // Six gigabytes of replies are asked for, and never read.
        (0..1500).for_each(|id| client.ask_for_big(id));
    }
    // Later clients are served as if these were not there.
    for turn in 0..100 {
        assert_eq!(witness.add("n", 1).unwrap(), turn + 1);
    }
    let grown = resident_bytes(served.pid()).saturating_sub(before);
    eprintln!("the server grew by {} KiB for {} deaf clients", grown >> 10, deaf.len());
    assert!(grown < 48 << 20, "the server grew by {grown} bytes");
}

/// A client that asks and does not read.
struct DeafClient {
    socket: WebSocket<TcpStream>,
    session: Session,
}

impl DeafClient {
    fn connect(served: &ServedStore) -> DeafClient {
        let stream = TcpStream::connect(("127.0.0.1", served.port())).unwrap();
        let (socket, _) = tungstenite::client(served.urls[1].as_str(), stream).unwrap();
        let mut deaf = DeafClient { socket, session: Session::client(1 << 20, 0) };
        deaf.session.attach();
        deaf.say();
        let welcome = deaf.socket.read().unwrap().into_data();
        deaf.session.receive(welcome.to_vec()).unwrap();
        // What the server does not take any more is left unsaid.
        deaf.socket.get_ref().set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        deaf
    }

    fn ask_for_big(&mut self, id: u32) {
        let get = [&[3][..], &4u64.to_le_bytes(), b"/big"].concat();
        self.session.send(StoreHeader { id, flag: StoreFlag::Last }.message(&get));
        self.say();
    }

    fn say(&mut self) {
        while let Some(packet) = self.session.next_packet() {
            let packet = packet.as_ref().to_vec();
            if self.socket.send(Message::Binary(packet.into())).is_err() {
                return;
            }
        }
    }
}

/// What a process takes of the host's memory.
fn resident_bytes(pid: Pid) -> usize {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let mut text = String::new();
    std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn wrong_options_are_refused_and_say_what_is_expected() {
    for (words, says) in [
        (&["--host", "nosuchhost.invalid"][..], "localhost"),
        (&["--allow-origin", "example.org"], "https://example.org"),
        (&["--allow-origin", ""], "https://example.org"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
        command.args(["store", "--port", "0"]).args(words);
        let output = command.env_remove("POLYRANK_ALLOWED_ORIGINS").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(words[1]), "{words:?}: {text}");
        assert!(text.contains(says), "{words:?}: {text}");
    }
}
