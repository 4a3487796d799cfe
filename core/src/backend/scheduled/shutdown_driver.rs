//! What the comparison at the end of a group asks of the driver. Knows no backend.

use super::super::departure::ShutdownDriver;
use super::super::inspect::NumberedFingerprint;
use crate::clock::Instant;
use crate::completion::Completion;
use crate::executor::Driver;
use crate::wire::abort::Abort;

impl ShutdownDriver for Driver {
    fn broken(&self) -> Option<Abort> {
        Driver::broken(self)
    }

    fn break_with(&self, abort: Abort) {
        Driver::break_with(self, abort);
    }

    fn break_as_told(&self, abort: Abort) {
        Driver::break_as_told(self, abort);
    }

    fn issued(&self) -> u64 {
        Driver::issued(self)
    }

    fn history(&self) -> Vec<NumberedFingerprint> {
        Driver::history(self)
    }

    fn is_unconfirmed(&self) -> bool {
        Driver::is_unconfirmed(self)
    }

    fn departed(&self) -> usize {
        Driver::departed(self)
    }

    fn advance(&self) {
        self.wait(&Completion::new(), Some(Instant::now()));
    }
}
