//! A replica that asks a lighthouse once: `polyrank lighthouse --min-replicas 1` has to run.

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    use polyrank_quorum::{ClientOptions, LighthouseClient, proto::QuorumMember};

    let client =
        LighthouseClient::connect("http://127.0.0.1:29510", ClientOptions::default()).await?;
    let member = QuorumMember { replica_id: "a".into(), step: 1204, ..QuorumMember::default() };
    let quorum = client.quorum(member, Duration::from_secs(60)).await?;
    println!("quorum {}: {} replicas", quorum.quorum_id, quorum.participants.len());
    Ok(())
}
