//! Our clients at our lighthouse: every rule that a client can see, and how calls end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::Duration;

use polyrank_quorum::proto::{Quorum, QuorumMember};
use polyrank_quorum::{
    ClientOptions, Lighthouse, LighthouseClient, LighthouseOptions, QuorumError, QuorumOptions,
    StartError, Token,
};

/// More than any of this takes.
const LIMIT: Duration = Duration::from_secs(60);
/// What does not come, is waited for so long.
const SHORT: Duration = Duration::from_millis(300);

fn options(min_replicas: usize, join_timeout: Duration) -> LighthouseOptions {
    LighthouseOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        // Nobody dies of a slow machine.
        quorum: QuorumOptions {
            min_replicas,
            join_timeout,
            heartbeat_timeout: LIMIT,
            ..QuorumOptions::default()
        },
        quorum_tick: Duration::from_millis(5),
        quorum_ids_after: Some(0),
        ..LighthouseOptions::default()
    }
}

fn start(min_replicas: usize, join_timeout: Duration) -> Lighthouse {
    Lighthouse::start(options(min_replicas, join_timeout)).unwrap()
}

async fn client(lighthouse: &Lighthouse) -> LighthouseClient {
    let address = lighthouse.address().to_string();
    LighthouseClient::connect(&address, ClientOptions::default()).await.unwrap()
}

fn member(id: &str) -> QuorumMember {
    QuorumMember {
        replica_id: id.to_owned(),
        address: format!("http://{id}.example:1"),
        store_address: format!("{id}.example:2"),
        step: 7,
        world_size: 2,
        shrink_only: false,
        data: format!("{{\"name\": \"{id}\"}}"),
        commit_failures: 0,
        committed_in: 0,
    }
}

fn ids(quorum: &Quorum) -> Vec<&str> {
    quorum.participants.iter().map(|member| member.replica_id.as_str()).collect()
}

/// Why there is no quorum with this member now.
async fn refused(client: &LighthouseClient, member: QuorumMember) -> String {
    match client.quorum(member, SHORT).await {
        Err(QuorumError::Deadline(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_replicas_get_the_same_quorum_and_what_each_says_of_itself() {
    let lighthouse = start(2, LIMIT);
    let (left, right) = (client(&lighthouse).await, client(&lighthouse).await);
    let (left, right) =
        tokio::join!(left.quorum(member("b"), LIMIT), right.quorum(member("a"), LIMIT));
    let quorum = left.unwrap();
    assert_eq!(quorum, right.unwrap());
    assert_eq!(quorum.participants, [member("a"), member("b")]);
    assert_eq!(quorum.quorum_id, 1);
    assert!(quorum.created.unwrap().seconds > 1_700_000_000);
}

#[tokio::test]
async fn the_same_members_keep_the_id_and_lost_steps_and_newcomers_change_it() {
    let lighthouse = start(1, Duration::ZERO);
    let client = client(&lighthouse).await;
    let first = client.quorum(member("a"), LIMIT).await.unwrap();
    let again = client.quorum(member("a"), LIMIT).await.unwrap();
    assert_eq!((first.quorum_id, again.quorum_id), (1, 1));
    let lost = QuorumMember { commit_failures: 1, ..member("a") };
    assert_eq!(client.quorum(lost, LIMIT).await.unwrap().quorum_id, 2);
    // b is alone: a must ask, too, for more than half of those alive.
    let (a, b) = tokio::join!(client.quorum(member("b"), LIMIT), async {
        loop {
            let quorum = client.quorum(member("a"), LIMIT).await.unwrap();
            if ids(&quorum) == ["a", "b"] {
                break quorum;
            }
        }
    });
    assert_eq!(a.unwrap(), b);
    assert_eq!(b.quorum_id, 3);
}

#[tokio::test]
async fn too_few_is_said_when_the_time_is_over_and_the_call_counts_no_longer() {
    let lighthouse = start(2, LIMIT);
    let client = client(&lighthouse).await;
    let why = refused(&client, member("a")).await;
    assert_eq!(why, "no quorum: waits for 1 more replica: 1 of at least 2 has joined");
    // a has given up: b is alone.
    let why = refused(&client, member("b")).await;
    let expected = "no quorum: waits for 1 more replica: 1 of at least 2 has joined; a, which is \
                    alive and has not joined";
    assert_eq!(why, expected);
}

#[tokio::test]
async fn a_client_that_goes_away_is_in_no_quorum() {
    let lighthouse = start(2, Duration::ZERO);
    let (gone, stays) = (client(&lighthouse).await, client(&lighthouse).await);
    let asks = tokio::spawn(async move { gone.quorum(member("a"), LIMIT).await });
    // It asks when b, which must not be alone, would not be.
    let replicas =
        wait_for(&lighthouse, |status| status["replicas"][0]["waits_seconds"].is_f64()).await;
    assert_eq!(replicas["replicas"][0]["replica_id"], "a");
    asks.abort();
    assert!(asks.await.unwrap_err().is_cancelled());
    wait_for(&lighthouse, |status| status["replicas"][0]["waits_seconds"].is_null()).await;
    let why = refused(&stays, member("b")).await;
    assert!(why.contains("waits for 1 more replica"), "{why}");
}

#[tokio::test]
async fn those_alive_are_waited_for_until_the_join_timeout() {
    let patient = start(1, LIMIT);
    let asks = client(&patient).await;
    asks.heartbeat("slow", LIMIT).await.unwrap();
    asks.heartbeat("fast", LIMIT).await.unwrap();
    let (b, a) = tokio::join!(refused(&asks, member("b")), refused(&asks, member("a")));
    // Two of four are not more than half.
    let expected = "no quorum: waits for more than half of the 4 replicas that are alive: 2 have \
                    joined; fast, slow, which are alive and have not joined";
    assert!(a == expected || b == expected, "{a}, {b}");
    let (a, b, c) = tokio::join!(
        refused(&asks, member("a")),
        refused(&asks, member("b")),
        refused(&asks, member("slow"))
    );
    let is_told = |why: &String| {
        why.starts_with("no quorum: waits up to ") && why.contains("for fast, which is alive")
    };
    let told = [&a, &b, &c].into_iter().find(|why| is_told(why)).unwrap();
    let advice = "; calls end before that whose limit, here 0.3 s, is not longer than the join \
                  timeout of 60.0 s";
    assert!(told.ends_with(advice), "{told}");

    let hasty = start(1, Duration::from_millis(50));
    let asks = client(&hasty).await;
    asks.heartbeat("slow", LIMIT).await.unwrap();
    // It is one of two: half, which could train apart, however long it waits.
    let why = refused(&asks, member("a")).await;
    assert!(why.contains("more than half of the 2 replicas"), "{why}");
    let (a, b) = tokio::join!(asks.quorum(member("a"), LIMIT), asks.quorum(member("b"), LIMIT));
    assert_eq!(ids(&a.unwrap()), ["a", "b"]);
    b.unwrap();
}

#[tokio::test]
async fn shrink_only_keeps_newcomers_waiting_until_it_is_over() {
    let lighthouse = start(1, Duration::ZERO);
    let (old, new) = (client(&lighthouse).await, client(&lighthouse).await);
    old.quorum(member("a"), LIMIT).await.unwrap();
    let newcomer = tokio::spawn(async move { new.quorum(member("b"), LIMIT).await });
    wait_for(&lighthouse, |status| status["replicas"][1]["waits_seconds"].is_f64()).await;
    let shrinks = QuorumMember { shrink_only: true, ..member("a") };
    assert_eq!(ids(&old.quorum(shrinks, LIMIT).await.unwrap()), ["a"]);
    assert!(!newcomer.is_finished());
    assert_eq!(ids(&old.quorum(member("a"), LIMIT).await.unwrap()), ["a", "b"]);
    assert_eq!(newcomer.await.unwrap().unwrap().quorum_id, 2);
}

#[tokio::test]
async fn when_all_members_ask_nobody_else_is_waited_for() {
    let lighthouse = start(1, LIMIT);
    let asks = client(&lighthouse).await;
    asks.quorum(member("a"), LIMIT).await.unwrap();
    for id in ["x", "y", "z"] {
        asks.heartbeat(id, LIMIT).await.unwrap();
    }
    assert_eq!(ids(&asks.quorum(member("a"), LIMIT).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn silent_replicas_are_neither_waited_for_nor_members() {
    let mut options = options(1, LIMIT);
    options.quorum.heartbeat_timeout = Duration::from_millis(200);
    let lighthouse = Lighthouse::start(options).unwrap();
    let asks = client(&lighthouse).await;
    asks.heartbeat("dead", LIMIT).await.unwrap();
    wait_for(&lighthouse, |status| status["replicas"][0]["is_alive"] == false).await;
    assert_eq!(ids(&asks.quorum(member("a"), LIMIT).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn what_is_too_long_is_refused_with_the_limit() {
    let mut options = options(1, LIMIT);
    options.quorum.max_replicas = 2;
    let lighthouse = Lighthouse::start(options).unwrap();
    let asks = client(&lighthouse).await;
    let refuse = |member| {
        let asks = asks.clone();
        async move {
            match asks.quorum(member, LIMIT).await {
                Err(QuorumError::Refused(why)) => why,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(refuse(member("")).await, "replica_id is empty");
    let long = QuorumMember { replica_id: "x".repeat(300), ..member("a") };
    assert_eq!(refuse(long).await, "replica_id has 300 bytes, of at most 256");
    let long = QuorumMember { data: "x".repeat(70_000), ..member("a") };
    assert_eq!(refuse(long).await, "data has 70000 bytes, of at most 65536");
    let said = refuse(member("a\nb")).await;
    assert!(said.contains("control characters"), "{said}");
    for id in ["a", "b"] {
        asks.heartbeat(id, LIMIT).await.unwrap();
    }
    let said = refuse(member("c")).await;
    assert_eq!(said, "the lighthouse knows 2 replicas already, which is its limit");
    let huge = QuorumMember { data: "x".repeat(1 << 20), ..member("a") };
    assert!(asks.quorum(huge, LIMIT).await.is_err());
    asks.heartbeat("a", LIMIT).await.unwrap();
}

#[tokio::test]
async fn the_token_is_wanted_and_told_to_nobody() {
    let token = Token::new("a-long-secret").unwrap();
    let options = LighthouseOptions { token: Some(token.clone()), ..options(1, LIMIT) };
    let lighthouse = Lighthouse::start(options).unwrap();
    let address = lighthouse.address().to_string();
    let with = |token| {
        let address = address.clone();
        let options = ClientOptions { token, ..ClientOptions::default() };
        async move { LighthouseClient::connect(&address, options).await.unwrap() }
    };
    let error = with(None).await.heartbeat("a", LIMIT).await.unwrap_err();
    let QuorumError::Denied(why) = error else { panic!("{error:?}") };
    assert!(why.contains("POLYRANK_TOKEN"), "{why}");
    let other = with(Token::new("another-secret").ok()).await;
    let error = other.quorum(member("a"), LIMIT).await.unwrap_err();
    let QuorumError::Denied(why) = error else { panic!("{error:?}") };
    assert!(why.contains("not the token") && !why.contains("secret"), "{why}");
    let own = with(Some(token)).await;
    own.quorum(member("a"), LIMIT).await.unwrap();
    assert!(!format!("{own:?} {lighthouse:?}").contains("secret"));
}

#[test]
fn beyond_this_host_a_token_is_needed_or_a_word() {
    let everywhere =
        LighthouseOptions { address: SocketAddr::from(([0, 0, 0, 0], 0)), ..options(1, LIMIT) };
    let error = Lighthouse::start(everywhere.clone()).unwrap_err();
    assert!(matches!(error, StartError::Open { .. }));
    let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
    assert!(lines.len() == 2 && lines[1].contains("POLYRANK_TOKEN"), "{lines:?}");
    let token = Token::new("a-long-secret").ok();
    Lighthouse::start(LighthouseOptions { token, ..everywhere.clone() }).unwrap();
    Lighthouse::start(LighthouseOptions { allows_strangers: true, ..everywhere }).unwrap();
}

#[tokio::test]
async fn a_lighthouse_that_comes_later_is_waited_for_and_one_that_comes_back_is_asked_anew() {
    let lighthouse = start(2, LIMIT);
    let address = lighthouse.address();
    let client = client(&lighthouse).await;
    let asks = tokio::spawn(async move { client.quorum(member("a"), LIMIT).await });
    wait_for(&lighthouse, |status| status["replicas"][0]["waits_seconds"].is_f64()).await;
    drop(lighthouse);
    let text = address.to_string();
    let late = tokio::spawn(async move {
        let client = LighthouseClient::connect(&text, ClientOptions::default()).await.unwrap();
        client.quorum(member("b"), LIMIT).await
    });
    tokio::task::yield_now().await;
    let again = LighthouseOptions { address, ..options(2, LIMIT) };
    let lighthouse = Lighthouse::start(again).unwrap();
    assert_eq!(ids(&asks.await.unwrap().unwrap()), ["a", "b"]);
    assert_eq!(ids(&late.await.unwrap().unwrap()), ["a", "b"]);
    drop(lighthouse);
}

#[tokio::test]
async fn where_nobody_is_and_what_is_no_address_is_said() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let brief = ClientOptions { connect_timeout: SHORT, ..ClientOptions::default() };
    let error = LighthouseClient::connect(&free.to_string(), brief.clone()).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains(&free.to_string()) && said.contains("refused"), "{said}");
    for wrong in ["https://example.org:1", "http://", ""] {
        let error = LighthouseClient::connect(wrong, brief.clone()).await.unwrap_err();
        assert!(matches!(error, QuorumError::Address { .. }), "{wrong}: {error:?}");
    }
}

/// Asks for `/status` until it is as it should be.
async fn wait_for(
    lighthouse: &Lighthouse,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    use std::io::{Read, Write};
    let until = std::time::Instant::now() + LIMIT;
    loop {
        let mut stream = std::net::TcpStream::connect(lighthouse.address()).unwrap();
        let host = lighthouse.address();
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        if is_so(&status) {
            return status;
        }
        assert!(std::time::Instant::now() < until, "{status}");
        tokio::task::yield_now().await;
    }
}
