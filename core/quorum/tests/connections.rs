//! Lighthouses that are silent, cancel calls, or go and come back: what clients say of it, and what
//! managers do.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use polyrank_quorum::proto::lighthouse_service_server::{
    LighthouseService, LighthouseServiceServer,
};
use polyrank_quorum::proto::{
    LighthouseHeartbeatRequest, LighthouseHeartbeatResponse, LighthouseQuorumRequest,
    LighthouseQuorumResponse, ManagerQuorumRequest, Quorum, QuorumMember,
};
use polyrank_quorum::{
    ClientOptions, Lighthouse, LighthouseClient, LighthouseOptions, ManagerClient, ManagerOptions,
    ManagerServer, QuorumError,
};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn member(id: &str) -> QuorumMember {
    QuorumMember { replica_id: id.to_owned(), ..QuorumMember::default() }
}

async fn client(address: SocketAddr) -> LighthouseClient {
    LighthouseClient::connect(&address.to_string(), ClientOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_lighthouse_that_is_silent_is_named_when_the_time_of_the_call_is_over() {
    // Its connections are made, and nobody reads them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(address).await;
    let expected = QuorumError::Deadline(format!("{address} has not answered in 0.3 s"));
    assert_eq!(client.heartbeat("a", SHORT).await.unwrap_err(), expected);
    assert_eq!(client.quorum(member("a"), SHORT).await.unwrap_err(), expected);
}

/// A lighthouse that cancels the first call.
#[derive(Default)]
struct Cancels(AtomicBool);

#[tonic::async_trait]
impl LighthouseService for Cancels {
    async fn quorum(
        &self,
        _: Request<LighthouseQuorumRequest>,
    ) -> Result<Response<LighthouseQuorumResponse>, Status> {
        if !self.0.swap(true, Ordering::Relaxed) {
            return Err(Status::cancelled("operation was canceled"));
        }
        let quorum = Some(Quorum { quorum_id: 7, ..Quorum::default() });
        Ok(Response::new(LighthouseQuorumResponse { quorum }))
    }

    async fn heartbeat(
        &self,
        _: Request<LighthouseHeartbeatRequest>,
    ) -> Result<Response<LighthouseHeartbeatResponse>, Status> {
        Err(Status::cancelled("operation was canceled"))
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_its_time_is_made_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Routes::new(LighthouseServiceServer::new(Cancels::default()));
    tokio::spawn(async move {
        loop {
            let stream = TokioIo::new(listener.accept().await.unwrap().0);
            let service = TowerToHyperService::new(routes.clone().into_axum_router());
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(stream, service).await);
            });
        }
    });
    let client = client(address).await;
    assert_eq!(client.quorum(member("a"), LIMIT).await.unwrap().quorum_id, 7);
    let error = client.heartbeat("a", LIMIT).await.unwrap_err();
    assert!(matches!(error, QuorumError::Lost { .. }), "{error:?}");
}

fn lighthouse(address: SocketAddr, heartbeat_timeout: Duration) -> Lighthouse {
    let mut options = LighthouseOptions { address, ..LighthouseOptions::default() };
    options.quorum.heartbeat_timeout = heartbeat_timeout;
    Lighthouse::start(options).unwrap()
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Asks for `/status` until it is as it should be.
fn wait_for(lighthouse: &Lighthouse, is_so: impl Fn(&serde_json::Value) -> bool) {
    use std::io::{Read, Write};
    let until = Instant::now() + LIMIT;
    loop {
        let mut stream = TcpStream::connect(lighthouse.address()).unwrap();
        let request = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        if is_so(&status) {
            return;
        }
        assert!(Instant::now() < until, "{status}");
        thread::yield_now();
    }
}

#[test]
fn a_manager_keeps_its_replica_alive_and_finds_a_lighthouse_that_is_back() {
    let heartbeat_timeout = Duration::from_secs(1);
    let first = lighthouse(any_port(), heartbeat_timeout);
    let address = first.address();
    let options = ManagerOptions {
        heartbeat_interval: Duration::from_millis(20),
        ..ManagerOptions::new("a", &address.to_string())
    };
    let manager = ManagerServer::start(options).unwrap();
    let is_alive = |status: &serde_json::Value| status["replicas"][0]["is_alive"] == true;
    // Several times as long as one heartbeat would last.
    wait_for(&first, |status| {
        status["uptime_seconds"].as_f64().is_some_and(|up| up > 4.0) && is_alive(status)
    });
    drop(first);
    let second = lighthouse(address, heartbeat_timeout);
    wait_for(&second, is_alive);
    drop(manager);
}

/// A lighthouse, and the manager of a replica that lives for it.
fn replica_that_lives() -> (Lighthouse, ManagerServer) {
    let served = lighthouse(any_port(), LIMIT);
    let url = served.address().to_string();
    let manager = ManagerServer::start(ManagerOptions::new("b", &url)).unwrap();
    wait_for(&served, |status| status["replicas"][0]["is_alive"] == true);
    (served, manager)
}

#[test]
fn a_replica_whose_connection_has_ended_is_not_waited_for() {
    // It would count as alive for a minute, and be waited for during half of that.
    let (served, manager) = replica_that_lives();
    // As a process that is killed, it closes its connections and says nothing.
    drop(manager);
    wait_for(&served, |status| status["replicas"][0]["is_alive"] == false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let quorum = runtime.block_on(async {
        client(served.address()).await.quorum(member("a"), LIMIT / 4).await.unwrap()
    });
    assert_eq!(quorum.participants, [member("a")]);
}

#[test]
fn a_replica_that_falls_silent_is_not_waited_for_and_answers_its_ranks() {
    let (served, manager) = replica_that_lives();
    manager.fall_silent();
    wait_for(&served, |status| status["replicas"][0]["is_alive"] == false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let votes = runtime.block_on(async {
        let ranks = ManagerClient::connect(manager.address(), ClientOptions::default()).await;
        ranks.unwrap().should_commit(0, 5, true, LIMIT).await.unwrap()
    });
    assert!(votes);
}

#[test]
fn a_manager_whose_heartbeat_fails_connects_anew() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let options = ManagerOptions::new("a", &listener.local_addr().unwrap().to_string());
    let (sender, connections) = channel();
    thread::spawn(move || {
        // That for quorums and two for heartbeats are kept and never answered, as those of a host
        // that has vanished.
        let kept = [(); 3].map(|()| listener.accept().unwrap());
        sender.send(kept).unwrap();
    });
    let manager = ManagerServer::start(options).unwrap();
    connections.recv_timeout(LIMIT).unwrap();
    drop(manager);
}

/// A way to the lighthouse at `address`: its own address, and what says that connections which are
/// there by then carry nothing any more, and are not closed, as when a host has vanished.
fn way_to(address: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(any_port()).unwrap();
    let (own, vanished) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let generation = vanished.clone();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(address) else { return };
            let made = generation.load(Ordering::SeqCst);
            let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
            for (from, into) in ways {
                let (mut from, mut into, now) = (from.unwrap(), into.unwrap(), generation.clone());
                thread::spawn(move || {
                    let is_there = || now.load(Ordering::SeqCst) == made;
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if is_there() && into.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                    // Nobody hears of the end of one that has vanished.
                    match is_there() {
                        true => drop(into.shutdown(Shutdown::Both)),
                        false => std::mem::forget(into),
                    }
                });
            }
        }
    });
    (own, vanished)
}

#[test]
fn quorums_are_made_again_as_soon_as_heartbeats_are_heard_again() {
    let served = lighthouse(any_port(), Duration::from_secs(1));
    let (way, vanished) = way_to(served.address());
    let manager = ManagerServer::start(ManagerOptions::new("a", &way.to_string())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = async || {
        let rank = ManagerClient::connect(manager.address(), ClientOptions::default()).await;
        rank.unwrap().quorum(ManagerQuorumRequest::default(), LIMIT).await
    };
    assert_eq!(runtime.block_on(ask()).unwrap().replica_world_size, 1);
    vanished.fetch_add(1, Ordering::SeqCst);
    for is_alive in [false, true] {
        wait_for(&served, |status| status["replicas"][0]["is_alive"] == is_alive);
    }
    // By the old connection there would be no answer: HTTP/2 itself finds that out after 80 s.
    assert_eq!(runtime.block_on(ask()).unwrap().replica_world_size, 1);
}

#[test]
fn a_manager_is_found_where_it_says_it_is() {
    let served = lighthouse(any_port(), LIMIT);
    let options = |hostname: &str| ManagerOptions {
        hostname: hostname.to_owned(),
        ..ManagerOptions::new("a", &served.address().to_string())
    };
    for hostname in ["::1", "[::1]"] {
        let manager = ManagerServer::start(options(hostname)).unwrap();
        assert!(manager.address().starts_with("http://[::1]:"), "{}", manager.address());
    }
    let bind = SocketAddr::from(([0, 0, 0, 0], 0));
    for hostname in ["127.0.0.1", "localhost", "::1"] {
        let open = ManagerOptions { bind, allows_strangers: true, ..options(hostname) };
        let said = ManagerServer::start(open).unwrap_err().to_string();
        assert!(said.contains("hostname must be"), "{said}");
    }
    let open = ManagerOptions { bind, allows_strangers: true, ..options("node-1.example") };
    let manager = ManagerServer::start(open).unwrap();
    assert!(manager.address().starts_with("http://node-1.example:"));
}

#[tokio::test]
async fn ids_of_quorums_go_on_where_no_lighthouse_before_it_was() {
    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let served = lighthouse(any_port(), LIMIT);
    let id = client(served.address()).await.quorum(member("a"), LIMIT).await.unwrap().quorum_id;
    assert!(u64::try_from(id).unwrap() > before, "{id}");
}

#[test]
fn the_end_of_a_lighthouse_is_waited_for() {
    let served = lighthouse(any_port(), LIMIT);
    let stop = served.stopper();
    let address = served.address();
    let waits = thread::spawn(move || served.wait());
    TcpStream::connect(address).unwrap();
    assert!(!waits.is_finished());
    stop.stop();
    waits.join().unwrap();
    TcpStream::connect(address).unwrap_err();
}
