//! The place of `kept_prices` where there are no files: nothing is kept.

use crate::price::KnownPrices;

/// Nothing.
#[derive(Debug)]
pub(super) enum KeptPrices {}

impl KeptPrices {
    /// There are none.
    pub(super) fn open(_ranks: u32) -> Option<KeptPrices> {
        None
    }

    /// What is known, as a text.
    pub(super) fn text(&self) -> String {
        match *self {}
    }

    /// Keeps what a group has learned.
    pub(super) fn keep(&self, _learned: KnownPrices) {
        match *self {}
    }
}
