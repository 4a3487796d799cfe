//! Brings what polyrank logs to programs that are not written in Rust: to a function of the
//! program, or to standard error. Programs in Rust have `tracing` subscribers of their own, and
//! need nothing of this.

mod collector;
mod delivery;
mod filter;
mod record;

pub use delivery::{Reader, flush, set_reader};
pub use filter::is_set;
use filter::{Filter, filter, filter_of_program};
pub use record::Record;
pub use tracing::Level;
pub use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::{Registry, filter::Targets};

/// How much is logged, which may change.
pub struct Logging(Handle<Targets, Registry>);

impl Logging {
    /// Logs what is as serious as `level` from now on.
    pub fn set_level(&self, level: LevelFilter) {
        self.set(Targets::new().with_default(level));
    }

    /// Logs from now on what the environment says, or else what is as serious as `otherwise`.
    pub fn set_as_environment_says(&self, otherwise: LevelFilter) {
        self.set(filter(otherwise).targets);
    }

    fn set(&self, targets: Targets) {
        // It fails only where the subscriber is gone, which is there as long as the process.
        let _ = self.0.reload(targets);
    }
}

/// Begins to log what the environment says, or else what is as serious as `otherwise`. None where
/// the program has another subscriber.
#[must_use]
pub fn start(otherwise: LevelFilter) -> Option<Logging> {
    start_with(filter(otherwise))
}

/// As [`start`], in a program of Rust, whose users expect that `RUST_LOG` counts where
/// `POLYRANK_LOG` is not set. A package for another language is a guest in a program that may have
/// been told something else by it.
#[must_use]
pub fn start_program(otherwise: LevelFilter) -> Option<Logging> {
    start_with(filter_of_program(otherwise))
}

fn start_with(filter: Filter) -> Option<Logging> {
    let (targets, handle) = reload::Layer::new(filter.targets);
    let subscriber = Registry::default().with(collector::Collector.with_filter(targets));
    tracing::subscriber::set_global_default(subscriber).ok()?;
    if let Some(flaw) = filter.flaw {
        tracing::warn!(target: "polyrank::log", "{flaw}");
    }
    Some(Logging(handle))
}
