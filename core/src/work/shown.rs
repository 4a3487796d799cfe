//! The text of a work. Knows nothing of how it runs.

use std::fmt;
use std::time::Duration;

use super::{Work, group_names};

/// A short description for debugging, the same in every language:
/// `Work(allreduce #1 of default_pg, complete, 3 ms)`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { sequence, group, inner, .. } = self;
        let end = match inner {
            // It was done when its call returned: that waits for some microseconds at most.
            None => Some((Ok(()), Duration::ZERO)),
            Some(inner) => inner.end(),
        };
        write!(f, "Work({} #{sequence}", self.title())?;
        if let Some(group) = group_names::of(*group) {
            write!(f, " of {group}")?;
        }
        let since = || inner.as_ref().map_or(Duration::ZERO, |inner| inner.began.elapsed());
        match end {
            None => write!(f, ", in flight, {} ms)", milliseconds(since())),
            Some((Ok(()), took)) => write!(f, ", complete, {} ms)", milliseconds(took)),
            Some((Err(error), took)) => write!(f, ", failed, {} ms: {error})", milliseconds(took)),
        }
    }
}

/// A length of time in whole milliseconds, the nearest number.
pub(super) fn milliseconds(time: Duration) -> u64 {
    (time + Duration::from_micros(500)).as_millis() as u64
}
