//! `polyrank lighthouse`: the server that says which replicas train together, as a program of its
//! own, until it is told to end. Knows nothing of ranks.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use polyrank::env::variable;
use polyrank_quorum::lighthouse::listening_address;
use polyrank_quorum::{Lighthouse, LighthouseOptions, QuorumOptions, Token};

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank lighthouse --min-replicas 2
      For replicas of this host. Replicas of torchft find it by
      TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510, and people see it there in a browser.
  POLYRANK_TOKEN=$(openssl rand -hex 16) polyrank lighthouse --min-replicas 2 --bind 0.0.0.0
      For every host that can reach this one and knows the token. A browser asks for it as a
      password.
  POLYRANK_INSECURE=1 polyrank lighthouse --min-replicas 2 --bind [::]:29510
      As torchft_lighthouse: for everybody. Replicas of torchft know no tokens.

At the same address: / is a page that renews itself, /status is JSON, /metrics is OpenMetrics, and
POST /replica/ID/kill has a replica end. The options of torchft_lighthouse are understood, too:
--min_replicas, --join_timeout_ms, --quorum_tick_ms, --heartbeat_timeout_ms. Unlike there, a
join timeout that is not given is 30 s, and --min_replicas 0 is refused.";

/// The options of `polyrank lighthouse`.
#[derive(Args)]
pub(crate) struct LighthouseArguments {
    /// Address, or name, at which it listens; a port may follow it
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS[:PORT]")]
    bind: String,
    /// Port; 0 picks a free one [default: 29510]
    #[arg(long)]
    port: Option<u16>,
    /// Fewest replicas that may train, unless all of the last quorum ask again
    #[arg(long, alias = "min_replicas", value_name = "N")]
    min_replicas: u32,
    /// How long replicas that ask wait for those that are alive and do not: less than the limit of
    /// their calls, which is 60 s in torchft
    #[arg(long, value_name = "SECONDS", value_parser = duration, default_value = "30")]
    join_timeout: Duration,
    /// How often it looks whether somebody has been waited for long enough, or fell silent
    #[arg(long, value_name = "SECONDS", value_parser = duration, default_value = "0.1")]
    quorum_tick: Duration,
    /// After how long without a heartbeat a replica counts as dead
    #[arg(long, value_name = "SECONDS", value_parser = duration, default_value = "5")]
    heartbeat_timeout: Duration,
    /// Most replicas that it knows at a time
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_replicas: u32,
    /// A file with the token that replicas must have; it goes before POLYRANK_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    torchft: TorchftArguments,
}

/// The options whose units torchft has in their names.
#[derive(Args)]
struct TorchftArguments {
    #[arg(long = "join_timeout_ms", hide = true, conflicts_with = "join_timeout")]
    join_timeout_ms: Option<u64>,
    #[arg(long = "quorum_tick_ms", hide = true, conflicts_with = "quorum_tick")]
    quorum_tick_ms: Option<u64>,
    #[arg(long = "heartbeat_timeout_ms", hide = true, conflicts_with = "heartbeat_timeout")]
    heartbeat_timeout_ms: Option<u64>,
}

/// Serves until SIGINT or SIGTERM; the exit code.
pub(crate) fn serve(arguments: &LighthouseArguments) -> i32 {
    // This comes before it announces itself, so that no signal after that is missed.
    let signals = Signals::new([SIGINT, SIGTERM]);
    let lighthouse = match start(arguments) {
        Ok(lighthouse) => lighthouse,
        Err(message) => {
            say(&message);
            return 1;
        }
    };
    // It continues if nobody reads this.
    let _ = std::io::stdout().write_all(announcement(&lighthouse.url()).as_bytes());
    let mut signals = match signals {
        Ok(signals) => signals,
        Err(error) => {
            say(&format!("signals cannot be waited for: {error}"));
            return 1;
        }
    };
    let was_told = Arc::new(AtomicBool::new(false));
    let (stop, tells) = (lighthouse.stopper(), was_told.clone());
    std::thread::spawn(move || {
        signals.forever().next();
        tells.store(true, Ordering::Release);
        stop.stop();
    });
    lighthouse.wait();
    if was_told.load(Ordering::Acquire) {
        return 0;
    }
    say("the lighthouse has failed, and ends");
    1
}

fn say(message: &str) {
    let text = format!("polyrank lighthouse: {message}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn start(arguments: &LighthouseArguments) -> Result<Lighthouse, String> {
    let milliseconds = |given: Option<u64>, usual: Duration| match given {
        Some(milliseconds) => Duration::from_millis(milliseconds),
        None => usual,
    };
    let torchft = &arguments.torchft;
    let options = LighthouseOptions {
        address: listening_address(&arguments.bind, arguments.port)
            .map_err(|error| format!("--bind {error}"))?,
        quorum: QuorumOptions {
            min_replicas: arguments.min_replicas as usize,
            join_timeout: milliseconds(torchft.join_timeout_ms, arguments.join_timeout),
            heartbeat_timeout: milliseconds(
                torchft.heartbeat_timeout_ms,
                arguments.heartbeat_timeout,
            ),
            max_replicas: arguments.max_replicas as usize,
        },
        quorum_tick: milliseconds(torchft.quorum_tick_ms, arguments.quorum_tick),
        token: token(arguments.token_file.as_deref())?,
        allows_strangers: allows_strangers(),
        ..LighthouseOptions::default()
    };
    Lighthouse::start(options).map_err(|error| error.to_string())
}

/// One for the replicas of a job, at any free port.
///
/// # Errors
/// In words: it cannot be served, or what should be its token is none.
pub(crate) fn of_job(
    min_replicas: u32,
    join_timeout: Option<Duration>,
    address: IpAddr,
) -> Result<Lighthouse, String> {
    let usual = QuorumOptions::default();
    let join_timeout = join_timeout.unwrap_or(usual.join_timeout);
    let quorum = QuorumOptions { min_replicas: min_replicas as usize, join_timeout, ..usual };
    let options = LighthouseOptions {
        address: SocketAddr::new(address, 0),
        quorum,
        token: token(None)?,
        allows_strangers: allows_strangers(),
        ..LighthouseOptions::default()
    };
    Lighthouse::start(options).map_err(|error| error.to_string())
}

fn allows_strangers() -> bool {
    variable::POLYRANK_INSECURE.text().is_some_and(|text| text == "1")
}

/// The token of the file, or of the environment.
fn token(file: Option<&Path>) -> Result<Option<Token>, String> {
    let (text, place) = match file {
        Some(file) => {
            let shown = file.display();
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("--token-file {shown}: {error}"))?;
            (text, format!("--token-file {shown}"))
        }
        None => match variable::POLYRANK_TOKEN.text() {
            Some(text) => (text, variable::POLYRANK_TOKEN.to_string()),
            None => return Ok(None),
        },
    };
    Token::new(&text).map(Some).map_err(|error| format!("{place}: {error}"))
}

/// Where it is, for replicas and for people.
fn announcement(url: &str) -> String {
    format!("polyrank lighthouse\n  replicas:    {url}\n  status page: {url}/\n")
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, as in 2.5".to_owned()),
    }
}
