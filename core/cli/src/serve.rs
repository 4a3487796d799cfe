//! `polyrank store`: a store's server as a program of its own, until it is told to end.
//! Knows nothing of ranks.

use std::io::Write as _;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use polyrank::store::{DEFAULT_PORT, TcpStore, TcpStoreOptions};
use polyrank::wire::origin::AllowedOrigins;
use polyrank::{Error, Result};
use polyrank_quorum::host::reachable;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank store
      For ranks and pages of this host alone, on port 29500.
  polyrank store --host 0.0.0.0 --port 8000 --allow-origin https://example.org
      For every host that can reach this one, and for the pages of one site.

Pages of this host (http://localhost…), pages from the address that they connect to, and those of
POLYRANK_ALLOWED_ORIGINS may connect; --allow-origin takes the place of that variable, the others
may connect all the same. There are no passwords: anyone who can connect can read and write the
store.";

/// The options of `polyrank store`.
#[derive(Args)]
pub(crate) struct StoreArguments {
    /// Name or address under which clients reach the server; it listens at that address alone where
    /// it is one of this host's, else, as for a service's address or 0.0.0.0, at all of them
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Port; 0 picks a free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Pages of this origin may connect ("https://example.org"; "*" for all); may be repeated
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Serve wss:// as well, with the certificates of this PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<std::path::PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<std::path::PathBuf>,
}

/// Serves until SIGINT or SIGTERM; the exit code.
pub(crate) fn serve(arguments: &StoreArguments) -> i32 {
    // This comes before the server announces itself, so that no signal after that is missed.
    let signals = Signals::new([SIGINT, SIGTERM]);
    let store = match start(arguments) {
        Ok(store) => store,
        Err(error) => {
            say(&error.to_string());
            return 1;
        }
    };
    // The server continues if nobody reads this.
    let _ = std::io::stdout().write_all(announcement(arguments, store.port()).as_bytes());
    match signals {
        Ok(mut signals) => {
            signals.forever().next();
            0
        }
        Err(error) => {
            say(&format!("signals cannot be waited for: {error}"));
            1
        }
    }
}

fn say(message: &str) {
    let _ = std::io::stderr().lock().write_all(format!("polyrank store: {message}\n").as_bytes());
}

fn start(arguments: &StoreArguments) -> Result<TcpStore> {
    let mut options = TcpStoreOptions::new(arguments.host.as_str(), arguments.port);
    if !arguments.allow_origin.is_empty() {
        options = options.allowed_origins(origins(arguments)?);
    }
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        options = options.tls(certificate, key);
    }
    TcpStore::new(options.is_master(true))
}

/// The pages that may connect.
fn origins(arguments: &StoreArguments) -> Result<AllowedOrigins> {
    AllowedOrigins::new(&arguments.allow_origin)
        .map_err(|why| Error::InvalidArgument { message: format!("--allow-origin: {why}") })
}

/// Where the store is, one URL a line.
fn announcement(arguments: &StoreArguments, port: u16) -> String {
    let host = reachable(&arguments.host);
    let text = format!("polyrank store\n  tcp://{host}:{port}\n  ws://{host}:{port}\n");
    if arguments.certificate.is_some() {
        return text + &format!("  wss://{host}:{port}\n");
    }
    text
}
