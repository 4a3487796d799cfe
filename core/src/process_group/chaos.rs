//! Faults on purpose, for tests of programs: what `POLYRANK_CHAOS` says happens before operations
//! of a rank. Knows neither schedules nor transports, and not what becomes of a fault.
//!
//! Operations are those that hooks see. They are counted by rank, over all groups of the process,
//! from 1 on, in the order in which they are issued.

mod faults;

use std::collections::BTreeMap;
use std::sync::{Arc, Once};

use rustix::process::{Signal, getpid, kill_process};

use self::faults::Action;
pub(super) use self::faults::Faults;
use super::ProcessGroup;
use crate::env::variable;
use crate::generated::error::{Error, Result};
use crate::process_mutex::ProcessMutex;
use crate::standard_error::write_line;

/// How many operations each rank of this process has issued, by global rank.
static COUNTS: ProcessMutex<BTreeMap<u32, u64>> = ProcessMutex::new(BTreeMap::new());

/// The faults that the environment asks for; none if it does not. Says once that there are some.
///
/// # Errors
/// [`Error::InvalidArgument`] for what is none.
pub(super) fn of_environment() -> Result<Option<Arc<Faults>>> {
    const NAME: variable::Variable = variable::POLYRANK_CHAOS;
    let Some(text) = NAME.text() else { return Ok(None) };
    let seed = || crate::random::bytes().map(u64::from_le_bytes).unwrap_or_default();
    // Groups of one process go on with one seed.
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let faults = Faults::parse(&text, || *SEED.get_or_init(seed))
        .map_err(|why| Error::InvalidArgument { message: format!("{NAME} is '{text}': {why}") })?;
    static TOLD: Once = Once::new();
    TOLD.call_once(|| announce(&format!("{NAME} asks for faults: {faults}")));
    Ok(Some(Arc::new(faults)))
}

impl ProcessGroup {
    /// The faults before the operation `name`, if there are any now.
    pub(super) fn suffer(&self, faults: &Faults, name: &str) {
        let rank = self.ranks().get(self.rank() as usize).copied().unwrap_or_default();
        let number = {
            let mut counts = COUNTS.lock();
            let count = counts.entry(rank).or_default();
            *count += 1;
            *count
        };
        let operation = || format!("its operation {number}, {name} of {}", self.group_name());
        for fault in faults.of(rank, number) {
            match fault.action {
                Action::Delay { .. } => std::thread::sleep(faults.delay(fault, rank, number)),
                Action::Kill => signal_itself(rank, "kills itself", Signal::KILL, &operation()),
                Action::Stop => signal_itself(rank, "stops itself", Signal::STOP, &operation()),
                Action::Drop { peer } => self.lose(rank, peer, &operation()),
            }
        }
    }

    fn lose(&self, rank: u32, peer: u32, operation: &str) {
        let place = self.ranks().iter().position(|&known| known == peer);
        let is_lost = place.is_some_and(|place| self.inner.cpu.disconnect(place as u32));
        let what = match is_lost {
            true => "loses its connection to",
            false => "has no connection that it could lose to",
        };
        tell(&format!("rank {rank} {what} rank {peer} before {operation}"));
    }
}

fn signal_itself(rank: u32, what: &str, signal: Signal, operation: &str) {
    tell(&format!("rank {rank} {what} before {operation}"));
    // A process may always signal itself.
    let _ = kill_process(getpid(), signal);
}

fn tell(text: &str) {
    announce(&format!("{}: {text}", variable::POLYRANK_CHAOS));
}

/// Says it immediately: a log that is read later may never be.
fn announce(text: &str) {
    write_line(&format!("polyrank: {text}"));
}
