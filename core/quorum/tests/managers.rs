//! Our managers at our lighthouse, and our clients at our managers.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use polyrank_quorum::proto::ManagerQuorumRequest;
use polyrank_quorum::{
    ClientOptions, Lighthouse, LighthouseOptions, ManagerClient, ManagerError, ManagerOptions,
    ManagerServer, QuorumError, Token,
};

const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn lighthouse(min_replicas: usize) -> Lighthouse {
    let mut options = LighthouseOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        quorum_tick: Duration::from_millis(5),
        quorum_ids_after: Some(0),
        ..LighthouseOptions::default()
    };
    options.quorum.min_replicas = min_replicas;
    options.quorum.heartbeat_timeout = LIMIT;
    Lighthouse::start(options).unwrap()
}

fn manager(id: &str, lighthouse: &Lighthouse, world_size: usize) -> ManagerServer {
    let options = ManagerOptions {
        world_size,
        store_address: format!("store-{id}"),
        ..ManagerOptions::new(id, &lighthouse.address().to_string())
    };
    ManagerServer::start(options).unwrap()
}

async fn client(manager: &ManagerServer) -> ManagerClient {
    ManagerClient::connect(manager.address(), ClientOptions::default()).await.unwrap()
}

fn asks(group_rank: i64, step: i64) -> ManagerQuorumRequest {
    ManagerQuorumRequest {
        group_rank,
        step,
        checkpoint_metadata: format!("checkpoint-{group_rank}"),
        init_sync: true,
        ..ManagerQuorumRequest::default()
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, QuorumError>) -> String {
    match outcome {
        Err(QuorumError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ranks_of_two_replicas_learn_who_heals_whom() {
    let lighthouse = lighthouse(2);
    let (a, b) = (manager("a", &lighthouse, 2), manager("b", &lighthouse, 2));
    let (to_a, to_b) = (client(&a).await, client(&b).await);
    let (a0, a1, b0, b1) = tokio::join!(
        to_a.quorum(asks(0, 3), LIMIT),
        to_a.quorum(asks(1, 3), LIMIT),
        to_b.quorum(asks(0, 2), LIMIT),
        to_b.quorum(ManagerQuorumRequest { commit_failures: 1, ..asks(1, 2) }, LIMIT),
    );
    let (a0, a1, b0, b1) = (a0.unwrap(), a1.unwrap(), b0.unwrap(), b1.unwrap());
    assert_eq!((a0.heal, a0.recover_dst_replica_ranks.as_slice()), (false, &[1][..]));
    assert_eq!(a1, a0);
    assert_eq!((b0.heal, b0.recover_src_replica_rank), (true, Some(0)));
    assert_eq!(b0.recover_src_manager_address, a.address());
    assert_eq!((b1.max_step, b1.commit_failures), (3, 1), "the worst of the ranks counts");
    assert_eq!((b1.store_address.as_str(), b1.replica_rank), ("store-a", 1));
    assert_eq!(to_a.checkpoint_metadata(1, LIMIT).await.unwrap(), "checkpoint-1");
    let why = refusal(to_a.checkpoint_metadata(2, LIMIT).await);
    assert_eq!(why, "rank 2 has not said where its checkpoint is");
}

#[tokio::test]
async fn all_ranks_are_told_who_is_at_another_step() {
    let lighthouse = lighthouse(1);
    let manager = manager("a", &lighthouse, 2);
    let client = client(&manager).await;
    let (left, right) =
        tokio::join!(client.quorum(asks(0, 5), LIMIT), client.quorum(asks(1, 6), LIMIT));
    let expected = "the ranks of the replica group are at different steps (0: 5, 1: 6)";
    assert_eq!([refusal(left), refusal(right)], [expected, expected]);
    let (left, right) = tokio::join!(
        client.should_commit(0, 5, true, LIMIT),
        client.should_commit(1, 6, true, LIMIT)
    );
    assert_eq!([refusal(left), refusal(right)], [expected, expected]);
    let why = refusal(client.quorum(asks(2, 5), LIMIT).await);
    assert_eq!(why, "rank 2 is none of the 2 of the group");
}

#[tokio::test]
async fn a_lighthouse_that_has_no_quorum_is_told_to_all_ranks_with_its_reason() {
    let lighthouse = lighthouse(2);
    let manager = manager("a", &lighthouse, 2);
    let client = client(&manager).await;
    // The first would wait for a minute; the one that completes the group asks for less.
    let (left, right) =
        tokio::join!(client.quorum(asks(0, 5), LIMIT), client.quorum(asks(1, 5), SHORT));
    let Err(QuorumError::Deadline(why)) = left else { panic!("{left:?}") };
    assert!(why.contains("waits for 1 more replica: 1 of at least 2 has joined"), "{why}");
    assert!(matches!(right, Err(QuorumError::Deadline(_))), "{right:?}");
    let Err(QuorumError::Deadline(why)) = client.quorum(asks(1, 5), SHORT).await else { panic!() };
    assert_eq!(why, "waits for ranks of the replica group that have not asked: 0");
}

#[tokio::test]
async fn of_many_ranks_the_first_are_named() {
    let lighthouse = lighthouse(1);
    let manager = manager("a", &lighthouse, 20);
    let client = client(&manager).await;
    let Err(QuorumError::Deadline(why)) = client.quorum(asks(1, 5), SHORT).await else { panic!() };
    assert!(why.ends_with(": 0, 2, 3, 4, 5, 6, 7, 8 and 11 more"), "{why}");
    let calls = (0..20).map(|rank| {
        let client = client.clone();
        tokio::spawn(async move { client.should_commit(rank, rank, true, LIMIT).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let why = refusal(call.await.unwrap());
        assert!(why.ends_with(" 6: 6, 7: 7 and 12 more)"), "{why}");
    }
}

#[tokio::test]
async fn a_step_is_committed_if_all_ranks_want_it() {
    let lighthouse = lighthouse(1);
    let manager = manager("a", &lighthouse, 2);
    let client = client(&manager).await;
    for (left, right) in [(true, true), (true, false), (false, false), (true, true)] {
        let (of_left, of_right) = tokio::join!(
            client.should_commit(0, 1, left, LIMIT),
            client.should_commit(1, 1, right, LIMIT)
        );
        assert_eq!((of_left.unwrap(), of_right.unwrap()), (left && right, left && right));
    }
}

#[tokio::test]
async fn a_rank_that_has_gone_is_asked_again_and_not_counted_twice() {
    let lighthouse = lighthouse(1);
    let manager = manager("a", &lighthouse, 2);
    let client = client(&manager).await;
    // It has given up at step 1.
    assert!(client.quorum(asks(0, 1), SHORT).await.is_err());
    let (left, right) =
        tokio::join!(client.quorum(asks(1, 2), LIMIT), client.quorum(asks(0, 2), LIMIT));
    assert_eq!((left.unwrap().max_step, right.unwrap().max_step), (2, 2));
}

#[test]
fn the_page_of_the_lighthouse_ends_a_replica_by_our_manager() {
    use std::io::{Read, Write};
    let token = Token::new("a-long-secret").unwrap();
    let lighthouse = Lighthouse::start(LighthouseOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: Some(token.clone()),
        ..LighthouseOptions::default()
    });
    let lighthouse = lighthouse.unwrap();
    let (told, telling) = channel();
    let options = ManagerOptions {
        token: Some(token.clone()),
        on_kill: Arc::new(move |message| told.send(message.to_owned()).unwrap()),
        ..ManagerOptions::new("a", &lighthouse.address().to_string())
    };
    let manager = ManagerServer::start(options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stranger = client(&manager).await;
        let error = stranger.quorum(asks(0, 1), LIMIT).await.unwrap_err();
        assert!(matches!(error, QuorumError::Denied(_)), "{error:?}");
        let own = ClientOptions { token: Some(token), ..ClientOptions::default() };
        let own = ManagerClient::connect(manager.address(), own).await.unwrap();
        own.quorum(asks(0, 1), LIMIT).await.unwrap();
    });
    let mut stream = std::net::TcpStream::connect(lighthouse.address()).unwrap();
    let request = "POST /replica/a/kill HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                   Authorization: Bearer a-long-secret\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(telling.recv().unwrap().contains("page"));
}

#[test]
fn a_page_of_a_browser_cannot_end_a_replica() {
    use std::io::{Read, Write};
    let lighthouse = lighthouse(1);
    let (told, telling) = channel();
    let options = ManagerOptions {
        on_kill: Arc::new(move |message| told.send(message.to_owned()).unwrap()),
        ..ManagerOptions::new("a", &lighthouse.address().to_string())
    };
    let manager = ManagerServer::start(options).unwrap();
    let address = manager.address().strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = "POST /torchft.ManagerService/Kill HTTP/1.1\r\nHost: localhost\r\n\
                   Content-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\
                   \0\0\0\0\0";
    stream.write_all(request.as_bytes()).unwrap();
    // An error, or the end.
    drop(stream.read_to_end(&mut Vec::new()));
    drop(manager);
    assert!(telling.recv().is_err(), "it was told to end");
}

#[test]
fn a_manager_without_a_lighthouse_says_so_and_is_not_open_by_itself() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options =
        ManagerOptions { connect_timeout: SHORT, ..ManagerOptions::new("a", &free.to_string()) };
    let error = ManagerServer::start(options.clone()).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let bind = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = ManagerServer::start(ManagerOptions { bind, ..options }).unwrap_err();
    assert!(matches!(error, ManagerError::Start(_)), "{error:?}");
}
