//! How long `set`, `get`, `add` of a TCPStore take, with clients as processes of their own.
//!
//! `store_latency CLIENTS [SECONDS [HOST PORT]]` starts a server, unless one is named, and as many
//! clients; it prints the median of all requests and the requests per second of all clients.
//! A named server may be PyTorch's, or that of `store_latency serve PORT`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polyrank::store::{Store, TcpStore, TcpStoreOptions};

const OPERATIONS: [&str; 4] = ["set", "get", "add", "set+get"];
const MAX_SAMPLES: usize = 400_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "client") {
        return client(&arguments[1..]);
    }
    if let [serve, port] = &arguments[..]
        && serve == "serve"
    {
        let options = TcpStoreOptions::new("127.0.0.1", port.parse()?).is_master(true);
        let _server = TcpStore::new(options)?;
        loop {
            std::thread::park();
        }
    }
    let clients: u32 = arguments.first().map_or(Ok(1), |text| text.parse())?;
    let seconds = arguments.get(1).map_or("1.5", String::as_str);
    let own = match arguments.get(2) {
        Some(_) => None,
        None => Some(TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true))?),
    };
    let host = arguments.get(2).map_or("127.0.0.1", String::as_str);
    let port = match &own {
        Some(server) => server.port().to_string(),
        None => arguments.get(3).cloned().unwrap_or_default(),
    };
    let start = |rank: u32| {
        Command::new(std::env::current_exe()?)
            .args(["client", host, &port, &rank.to_string(), &clients.to_string(), seconds])
            .stdout(Stdio::piped())
            .spawn()
    };
    let started: Vec<_> = (0..clients).map(start).collect::<Result<_, _>>()?;
    let mut lines = Vec::new();
    for mut child in started {
        if let Some(output) = child.stdout.take() {
            lines.extend(BufReader::new(output).lines().collect::<Result<Vec<_>, _>>()?);
        }
        child.wait()?;
    }
    for operation in OPERATIONS {
        let mut medians = Vec::new();
        let mut per_second = 0.0;
        for line in &lines {
            let fields: Vec<&str> = line.split(' ').collect();
            if let [name, median, rate] = fields[..]
                && name == operation
            {
                medians.push(median.parse::<f64>()?);
                per_second += rate.parse::<f64>()?;
            }
        }
        medians.sort_by(f64::total_cmp);
        let median = medians.get(medians.len() / 2).copied().unwrap_or(f64::NAN);
        println!("{clients:3} clients  {operation:8} {median:8.1} us {per_second:10.0} per s");
    }
    Ok(())
}

fn client(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [host, port, rank, clients, seconds] = arguments else {
        return Err("client HOST PORT RANK CLIENTS SECONDS".into());
    };
    let store = TcpStore::new(TcpStoreOptions::new(host.as_str(), port.parse()?))?;
    let clients: i64 = clients.parse()?;
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let (key, value) = (format!("key/{rank}"), [b'v'; 64]);
    store.set(&key, &value)?;
    for operation in OPERATIONS {
        // Only what PyTorch's first servers know.
        if store.add(&format!("ready/{operation}"), 1)? == clients {
            store.set(&format!("go/{operation}"), b"1")?;
        }
        store.wait(&[&format!("go/{operation}")], None)?;
        let run = || -> polyrank::Result<()> {
            match operation {
                "set" => store.set(&key, &value),
                "get" => store.get(&key).map(drop),
                "add" => store.add("counter", 1).map(drop),
                _ => store.set(&key, &value).and_then(|()| store.get(&key).map(drop)),
            }
        };
        for _ in 0..50 {
            run()?;
        }
        let mut samples = Vec::with_capacity(MAX_SAMPLES);
        let begin = Instant::now();
        let mut last = begin;
        while last - begin < limit && samples.len() < MAX_SAMPLES {
            run()?;
            let now = Instant::now();
            samples.push((now - last).as_nanos() as u64);
            last = now;
        }
        // Sets have no reply: the rate counts until all were run.
        store.get(&key)?;
        let rate = samples.len() as f64 / begin.elapsed().as_secs_f64();
        samples.sort_unstable();
        println!("{operation} {} {rate}", samples[samples.len() / 2] as f64 / 1e3);
    }
    Ok(())
}
