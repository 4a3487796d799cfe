//! What the environment says, which goes before what the program does where torchft has it so.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{LIMIT, Rank, server};
use polyrank_quorum::{Lighthouse, LighthouseOptions, Token};
use polyrank_replicas::{Manager, ManagerError, ManagerOptions, StartQuorum};

/// Which part of a test a started process is.
const ROLE: &str = "REPLICAS_TEST_ROLE";

/// Runs the test again, in a process with these variables; what it printed. It must end well.
fn process(test: &str, role: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

#[test]
fn ranks_find_the_lighthouse_the_store_and_one_another_by_the_environment() {
    if role().is_some() {
        let rank = Rank::new(ManagerOptions::new(1).replica_id("a"), 0, vec![1.0]);
        rank.commit(&[1.0]);
        return println!("\nreplica {}", rank.manager.replica_id());
    }
    let token = "a-long-secret";
    let lighthouse = Lighthouse::start(LighthouseOptions {
        address: ([127, 0, 0, 1], 0).into(),
        token: Some(Token::new(token).unwrap()),
        ..LighthouseOptions::default()
    });
    let lighthouse = lighthouse.unwrap();
    let address = format!("http://{}", lighthouse.address());
    // What the launchers say: of torch, one that has a store, and `polyrank run`, whose rank 0 is
    // to have it.
    let store = server();
    let port = store.port().to_string();
    ranks(&address, token, &port, "True");
    drop(store);
    ranks(&address, token, &port, "False");
}

/// Two ranks at the store of this port, and how they are called.
fn ranks(lighthouse: &str, token: &str, port: &str, agent_store: &str) {
    let test = "ranks_find_the_lighthouse_the_store_and_one_another_by_the_environment";
    let run = |rank: &str| {
        let variables = [
            ("TORCHELASTIC_USE_AGENT_STORE", agent_store),
            ("TORCHELASTIC_RESTART_COUNT", "1"),
            ("TORCHELASTIC_RUN_ID", "a-run"),
            ("TORCHFT_LIGHTHOUSE", lighthouse),
            ("POLYRANK_TOKEN", token),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", port),
            ("WORLD_SIZE", "2"),
            ("RANK", rank),
        ];
        let text = process(test, "rank", &variables);
        let said = text.lines().find_map(|line| line.strip_prefix("replica ")).unwrap();
        said.to_owned()
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| run("1"));
        (run("0"), second.join().unwrap())
    });
    assert_eq!(first, second);
    let uuid = first.strip_prefix("a:").unwrap();
    assert_eq!(uuid.len(), 36, "{uuid}");
}

#[test]
fn limits_of_the_environment_go_before_those_of_the_program() {
    let test = "limits_of_the_environment_go_before_those_of_the_program";
    let Some(role) = role() else {
        let lighthouse = common::lighthouse(2);
        let address = lighthouse.address().to_string();
        let retries = [("TORCHFT_QUORUM_TIMEOUT_SEC", "2"), ("TORCHFT_QUORUM_RETRIES", "1")];
        process(test, &address, &retries);
        process(test, "wrong", &[("TORCHFT_TIMEOUT_SEC", "soon")]);
        return;
    };
    let day = Duration::from_secs(24 * 3600);
    let options = ManagerOptions::new(1).lighthouse(&role).quorum_timeout(day).timeout(day);
    if role == "wrong" {
        let error = Manager::new(options).unwrap_err();
        assert!(matches!(error, ManagerError::Option(_)), "{error:?}");
        let text = error.to_string();
        return assert!(text.contains("TORCHFT_TIMEOUT_SEC is \"soon\""), "{text}");
    }
    let manager = Manager::new(options.connect_timeout(LIMIT)).unwrap();
    manager.start_quorum(StartQuorum::default()).unwrap();
    let error = manager.wait_quorum().unwrap_err().to_string();
    assert!(error.contains("waits for 1 more replica"), "{error}");
}
