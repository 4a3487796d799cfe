//! How fast a state of 1 GiB gets from one process of this host to another, with digests and
//! without, beside messages of the group that nobody puts together, copies in memory, and digests.
//!
//! cargo run --release -p polyrank-replicas --example state_rate [MiB] [rounds]

use std::collections::VecDeque;
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::store::{TcpStore, TcpStoreOptions};
use polyrank::{GroupOptions, ProcessGroup, Work};
use polyrank_replicas::{GroupTransport, StatePeer, StateTransport};

/// The port of the store, in the process that gives the state.
const PORT: &str = "STATE_RATE_PORT";
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a plain message.
const MESSAGE: usize = 4 << 20;
/// So many of them are under way.
const DEPTH: usize = 3;

fn group(rank: u32, port: u16) -> Result<(ProcessGroup, u16), Box<dyn Error>> {
    let options = TcpStoreOptions::new("127.0.0.1", port).is_master(rank == 0);
    let store = TcpStore::new(options.wait_for_workers(false))?;
    let port = store.port();
    if rank == 0 {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).env(PORT, port.to_string()).spawn()?;
    }
    let options = GroupOptions::default().timeout(LIMIT);
    Ok((ProcessGroup::new(Arc::new(store), rank, 2, "rate", options)?, port))
}

fn state(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// Plain messages, as many as make `bytes`.
fn messages(group: &ProcessGroup, rank: u32, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mut under_way = VecDeque::<Work>::new();
    for _ in 0..bytes / MESSAGE {
        if under_way.len() == DEPTH
            && let Some(work) = under_way.pop_front()
        {
            work.wait(None)?;
        }
        let message = vec![1_u8; MESSAGE];
        under_way.push_back(match rank {
            0 => group.recv_async(message, Some(1), 1)?,
            _ => group.send_async(message, 0, 1)?,
        });
    }
    under_way.iter().try_for_each(|work| work.wait(None))?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let bytes = words.next().transpose()?.unwrap_or(1024) << 20;
    let rounds = words.next().transpose()?.unwrap_or(5);
    let port: Option<u16> = std::env::var(PORT).ok().and_then(|port| port.parse().ok());
    let rank = u32::from(port.is_some());
    let (group, _) = group(rank, port.unwrap_or(0))?;
    let ways = [
        ("with digests", Some(GroupTransport::new(group.clone()))),
        ("without digests", Some(GroupTransport::new(group.clone()).without_digests())),
        ("plain messages", None),
    ];
    let own = state(bytes);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len() + 3];
    let mut step = 0;
    for _ in 0..rounds {
        for (at, (_, transport)) in ways.iter().enumerate() {
            step += 1;
            let given = (rank == 1).then(|| own.clone());
            group.barrier(())?;
            let (began, deadline) = (Instant::now(), Instant::now() + LIMIT);
            let peer = |rank| StatePeer { rank, replica: if rank == 0 { "a" } else { "b" } };
            match (transport, given) {
                (None, _) => messages(&group, rank, bytes)?,
                (Some(transport), Some(given)) => {
                    transport.send(&[peer(0)], step, given, deadline)?;
                }
                (Some(transport), None) => {
                    let came = transport.receive(&[peer(1)], "", step, deadline)?;
                    let took = began.elapsed();
                    assert!(came == own);
                    rates[at].push(bytes as f64 / took.as_secs_f64());
                    continue;
                }
            }
            rates[at].push(bytes as f64 / began.elapsed().as_secs_f64());
        }
        if rank == 0 {
            let began = Instant::now();
            let mut copy = own.clone();
            rates[ways.len()].push(bytes as f64 / began.elapsed().as_secs_f64());
            let began = Instant::now();
            copy.copy_from_slice(std::hint::black_box(&own));
            rates[ways.len() + 1].push(bytes as f64 / began.elapsed().as_secs_f64());
            std::hint::black_box(copy);
            let began = Instant::now();
            std::hint::black_box(own.chunks(MESSAGE).map(blake3::hash).collect::<Vec<_>>());
            rates[ways.len() + 2].push(bytes as f64 / began.elapsed().as_secs_f64());
        }
    }
    let names = ways.iter().map(|(name, _)| *name).chain(["copy to new memory", "copy", "BLAKE3"]);
    for (name, mut rates) in names.zip(rates).filter(|_| rank == 0) {
        rates.sort_by(f64::total_cmp);
        let shown: Vec<String> = rates.iter().map(|rate| format!("{:.2}", rate / 1e9)).collect();
        println!(
            "{name:>18}: median {:.2} GB/s of {}",
            rates[rates.len() / 2] / 1e9,
            shown.join(" ")
        );
    }
    group.shutdown()?;
    Ok(())
}
