//! What people and programs get over HTTP: the page, JSON, OpenMetrics, the end of a replica; and
//! who gets nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use polyrank_quorum::proto::manager_service_server::{ManagerService, ManagerServiceServer};
use polyrank_quorum::proto::{
    CheckpointMetadataRequest, CheckpointMetadataResponse, KillRequest, KillResponse,
    ManagerQuorumRequest, ManagerQuorumResponse, QuorumMember, ShouldCommitRequest,
    ShouldCommitResponse,
};
use polyrank_quorum::{ClientOptions, Lighthouse, LighthouseClient, LighthouseOptions, Token};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

const LIMIT: Duration = Duration::from_secs(60);

fn start(token: Option<&str>) -> Lighthouse {
    Lighthouse::start(options(token)).unwrap()
}

fn options(token: Option<&str>) -> LighthouseOptions {
    let token = token.map(|token| Token::new(token).unwrap());
    let mut options = LighthouseOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        token,
        quorum_ids_after: Some(0),
        ..LighthouseOptions::default()
    };
    options.quorum.heartbeat_timeout = LIMIT;
    options
}

/// The status, the headers and the body of an answer.
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

fn ask(lighthouse: &Lighthouse, line: &str, headers: &[&str]) -> Answer {
    let host = format!("Host: {}", lighthouse.address());
    let has_host = headers.iter().any(|header| header.starts_with("Host:"));
    let usual: &[&str] = if has_host { &[] } else { &[&host] };
    let lines = [&[line], usual, headers, &["Content-Length: 0", "Connection: close"]].concat();
    let mut stream = TcpStream::connect(lighthouse.address()).unwrap();
    stream.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, headers: headers.to_lowercase(), body: body.to_owned() }
}

/// Makes a quorum of one replica.
fn train(lighthouse: &Lighthouse, member: QuorumMember, token: Option<&str>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let token = token.map(|token| Token::new(token).unwrap());
        let options = ClientOptions { token, ..ClientOptions::default() };
        let address = lighthouse.address().to_string();
        let client = LighthouseClient::connect(&address, options).await.unwrap();
        client.quorum(member, LIMIT).await.unwrap();
    });
}

fn member(id: &str, address: &str) -> QuorumMember {
    QuorumMember {
        replica_id: id.to_owned(),
        address: address.to_owned(),
        step: 41,
        world_size: 8,
        ..QuorumMember::default()
    }
}

#[test]
fn the_page_is_one_file_that_loads_nothing_from_elsewhere() {
    let answer = ask(&start(None), "GET / HTTP/1.1", &[]);
    assert_eq!(answer.status, 200);
    assert!(answer.headers.contains("content-type: text/html; charset=utf-8"));
    assert!(answer.headers.contains("content-security-policy: default-src 'none'; connect-src"));
    let foreign = ["src=\"http", "href=\"http", "@import", "innerHTML"];
    assert!(foreign.iter().all(|text| !answer.body.contains(text)));
    assert!(answer.body.contains("fetch(\"/status\"") && answer.body.ends_with("</html>\n"));
}

#[test]
fn status_says_who_is_there_and_why_there_is_no_quorum() {
    let lighthouse = start(None);
    train(&lighthouse, member("re\"p", "http://127.0.0.1:1"), None);
    let answer = ask(&lighthouse, "GET /status HTTP/1.1", &[]);
    assert!(answer.headers.contains("content-type: application/json"));
    let status: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(status["quorum_id"], 1);
    assert_eq!(status["max_step"], 41);
    assert_eq!(status["reason"], "nobody asks for a quorum");
    assert_eq!(status["reason_kind"], "nobody_asks");
    assert_eq!(status["participants"][0]["address"], "http://127.0.0.1:1");
    let replica = &status["replicas"][0];
    assert_eq!(replica["replica_id"], "re\"p");
    assert_eq!(replica["step"], 41);
    assert_eq!(replica["is_in_quorum"], true);
    assert!(replica["heartbeat_age_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(status["options"]["heartbeat_timeout_seconds"], 60.0);
}

#[test]
fn metrics_are_what_open_metrics_wants() {
    let lighthouse = start(None);
    train(&lighthouse, member("re\"p\\", ""), None);
    let answer = ask(&lighthouse, "GET /metrics HTTP/1.1", &[]);
    assert!(answer.headers.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let lines: Vec<_> = answer.body.lines().collect();
    assert_eq!(lines.last(), Some(&"# EOF"));
    for line in [
        "# TYPE polyrank_lighthouse_quorums counter",
        "polyrank_lighthouse_quorums_total 1",
        "polyrank_lighthouse_quorum_id 1",
        "polyrank_lighthouse_participants 1",
        "polyrank_lighthouse_replicas_alive 1",
        "# UNIT polyrank_lighthouse_replica_heartbeat_age_seconds seconds",
        "polyrank_lighthouse_replica_step{replica_id=\"re\\\"p\\\\\"} 41",
    ] {
        assert!(lines.contains(&line), "{line} is not in {}", answer.body);
    }
    // Every sample follows the type of its family.
    let mut family = "";
    for line in lines {
        match line.strip_prefix("# TYPE ") {
            Some(rest) => family = rest.split(' ').next().unwrap(),
            None => assert!(line == "# EOF" || line.trim_start_matches("# ").contains(family)),
        }
    }
}

/// A manager that tells what it was told.
struct Manager(Sender<(String, Option<String>)>);

#[tonic::async_trait]
impl ManagerService for Manager {
    async fn quorum(
        &self,
        _: Request<ManagerQuorumRequest>,
    ) -> Result<Response<ManagerQuorumResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn checkpoint_metadata(
        &self,
        _: Request<CheckpointMetadataRequest>,
    ) -> Result<Response<CheckpointMetadataResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn should_commit(
        &self,
        _: Request<ShouldCommitRequest>,
    ) -> Result<Response<ShouldCommitResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn kill(&self, request: Request<KillRequest>) -> Result<Response<KillResponse>, Status> {
        let token = request.metadata().get("authorization");
        let token = token.map(|token| token.to_str().unwrap().to_owned());
        self.0.send((request.into_inner().msg, token)).unwrap();
        Ok(Response::new(KillResponse {}))
    }
}

/// Serves one connection of a manager.
fn manager() -> (SocketAddr, Receiver<(String, Option<String>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, told) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = listener.accept().unwrap().0;
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let routes = Routes::new(ManagerServiceServer::new(Manager(sender)));
            let service = TowerToHyperService::new(routes.into_axum_router());
            let builder = Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(stream), service).await);
        });
    });
    (address, told)
}

#[test]
fn a_replica_is_told_to_end_by_its_manager() {
    let (address, told) = manager();
    let lighthouse = start(Some("a-long-secret"));
    let id = "train/0:uuid";
    train(&lighthouse, member(id, &format!("http://{address}")), Some("a-long-secret"));
    let own = format!("Origin: http://{}", lighthouse.address());
    let token = "Authorization: Bearer a-long-secret";
    let path = "POST /replica/train%2F0%3Auuid/kill HTTP/1.1";
    let answer = ask(&lighthouse, path, &[token, &own]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "train/0:uuid was told to end\n"));
    let (message, token_of_manager) = told.recv().unwrap();
    assert!(message.contains("page"));
    assert_eq!(token_of_manager.as_deref(), Some("Bearer a-long-secret"));
    let answer = ask(&lighthouse, "POST /replica/nobody/kill HTTP/1.1", &[token]);
    assert_eq!(answer.status, 404);
}

#[test]
fn a_replica_that_only_asks_can_be_told_to_end() {
    let (address, told) = manager();
    let mut options = options(None);
    options.quorum.min_replicas = 2;
    let lighthouse = Lighthouse::start(options).unwrap();
    thread::scope(|scope| {
        let member_a = member("a", &format!("http://{address}"));
        let waits = scope.spawn(|| train(&lighthouse, member_a, None));
        while ask(&lighthouse, "POST /replica/a/kill HTTP/1.1", &[]).status == 404 {
            thread::yield_now();
        }
        told.recv().unwrap();
        train(&lighthouse, member("b", ""), None);
        waits.join().unwrap();
    });
}

#[test]
fn a_manager_that_is_not_there_is_said_to_be_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lighthouse = start(None);
    train(&lighthouse, member("a", &format!("http://{free}")), None);
    let answer = ask(&lighthouse, "POST /replica/a/kill HTTP/1.1", &[]);
    assert_eq!(answer.status, 502);
    assert!(answer.body.contains("refused"), "{}", answer.body);
}

#[test]
fn pages_of_other_sites_and_other_names_of_this_host_get_nothing() {
    let lighthouse = start(None);
    let kill = "POST /replica/a/kill HTTP/1.1";
    let answer = ask(&lighthouse, kill, &["Origin: https://example.org"]);
    assert_eq!(answer.status, 403, "{}", answer.body);
    let answer = ask(&lighthouse, "GET /status HTTP/1.1", &["Host: example.org"]);
    assert_eq!(answer.status, 403, "{}", answer.body);
    let answer = ask(&lighthouse, "GET /status HTTP/1.1", &["Host: localhost:80"]);
    assert_eq!(answer.status, 200);
    assert_eq!(ask(&lighthouse, "GET /nothing HTTP/1.1", &[]).status, 404);
    assert_eq!(ask(&lighthouse, "GET /replica/a/kill HTTP/1.1", &[]).status, 405);
}

#[test]
fn what_a_request_says_of_its_content_lets_in_no_other_site() {
    let lighthouse = start(None);
    let grpc = "Content-Type: application/grpc";
    for (line, status) in [
        ("GET /status HTTP/1.1", 403),
        ("POST /replica/a/kill HTTP/1.1", 403),
        ("POST /torchft.LighthouseService/Heartbeat HTTP/1.1", 505),
    ] {
        let answer = ask(&lighthouse, line, &["Host: example.org", grpc]);
        assert_eq!(answer.status, status, "{line}: {}", answer.body);
    }
    let origin = "Origin: https://example.org";
    let answer = ask(&lighthouse, "POST /replica/a/kill HTTP/1.1", &[origin, grpc]);
    assert_eq!(answer.status, 403, "{}", answer.body);
}

#[test]
fn who_is_not_let_in_in_time_is_closed_and_who_waits_for_a_quorum_is_not() {
    let mut options = options(Some("correct-horse"));
    options.connections.first_request = Duration::from_millis(200);
    options.quorum.min_replicas = 2;
    let lighthouse = Lighthouse::start(options).unwrap();
    let token = "Authorization: Bearer correct-horse";
    thread::scope(|scope| {
        let waits = scope.spawn(|| train(&lighthouse, member("a", ""), Some("correct-horse")));
        let asked = "polyrank_lighthouse_quorum_requests_total 1";
        while !ask(&lighthouse, "GET /metrics HTTP/1.1", &[token]).body.contains(asked) {
            thread::yield_now();
        }
        let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let denied = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let words = [&b""[..], b"PRI * HT", settings, b"GET / HT", denied];
        let others = words.map(|words| {
            let mut stream = TcpStream::connect(lighthouse.address()).unwrap();
            stream.write_all(words).unwrap();
            stream
        });
        for mut stream in others {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            match stream.read_to_end(&mut Vec::new()) {
                Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
                _ => {}
            }
        }
        // The call of a came before them, and is not closed: its client would ask anew.
        train(&lighthouse, member("b", ""), Some("correct-horse"));
        waits.join().unwrap();
    });
    let metrics = ask(&lighthouse, "GET /metrics HTTP/1.1", &[token]).body;
    assert!(metrics.contains("polyrank_lighthouse_quorum_requests_total 2"), "{metrics}");
}

#[test]
fn with_a_token_every_page_wants_it_and_a_browser_asks_for_it() {
    let lighthouse = start(Some("correct-horse"));
    for path in ["/", "/status", "/metrics"] {
        let line = format!("GET {path} HTTP/1.1");
        let answer = ask(&lighthouse, &line, &[]);
        assert_eq!(answer.status, 401);
        assert!(answer.headers.contains("www-authenticate: basic realm="), "{}", answer.headers);
        assert!(answer.body.contains("POLYRANK_TOKEN"));
        let answer = ask(&lighthouse, &line, &["Authorization: Bearer wrong-horse!!"]);
        assert_eq!(answer.status, 401);
        // The password of nobody: printf ':correct-horse' | base64
        let answer = ask(&lighthouse, &line, &["Authorization: Basic OmNvcnJlY3QtaG9yc2U="]);
        assert_eq!(answer.status, 200);
    }
    let metrics =
        ask(&lighthouse, "GET /metrics HTTP/1.1", &["Authorization: Bearer correct-horse"]);
    assert!(metrics.body.contains("polyrank_lighthouse_denied_total 6"), "{}", metrics.body);
}

#[test]
fn nonsense_closes_its_own_connection_only() {
    let lighthouse = start(None);
    for nonsense in [&b"\x16\x03\x01\x02\x00"[..], &[0xff; 4096], b"GET\r\n\r\n", b"PRI * HTTP/2.0"]
    {
        let mut stream = TcpStream::connect(lighthouse.address()).unwrap();
        // It may be sent away before it has said all.
        drop(stream.write_all(nonsense));
        drop(stream.shutdown(std::net::Shutdown::Write));
        // An error, or the end.
        drop(stream.read_to_end(&mut Vec::new()));
    }
    let long = format!("X: {}", "x".repeat(100_000));
    let mut stream = TcpStream::connect(lighthouse.address()).unwrap();
    drop(stream.write_all(format!("GET / HTTP/1.1\r\n{long}\r\n\r\n").as_bytes()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(ask(&lighthouse, "GET /status HTTP/1.1", &[]).status, 200);
}
