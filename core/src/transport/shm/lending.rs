//! From which length on a payload stays in its sender's own memory, where the receiver reads it,
//! and does not go through the lane. Pure; knows nothing of memory.

use crate::env::CopyChoice;
use crate::generated::collective::Collective;
use crate::wire::frame::{Header, Kind};

use super::entry::INLINE_BYTES;
use super::prices::{LengthClass, PRICED_BYTES};

/// Payloads of at least this many bytes are lent, if they lie in memory that the peer can map. For
/// shorter ones, a copy through the area costs less than the peer's notice that it is done reading
/// (measured with `polyrank bench allreduce --memory user,polyrank`; they cost the same between 128
/// and 512 KiB).
pub(super) const POOLED_BYTES: usize = 256 << 10;

/// The least lengths of payloads that are lent, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LendingThresholds {
    /// Of those in a pool, which the peer maps.
    pooled: usize,
    /// Of those in any other memory, which the system reads for the peer, if the peer copies them.
    attached_copies: usize,
    /// As the former, if the peer reduces them.
    attached_reductions: usize,
    /// Whether those that may be read by the system are, depends on what that costs.
    is_priced: bool,
}

impl LendingThresholds {
    /// Nothing is lent.
    const NEVER: LendingThresholds = LendingThresholds {
        pooled: usize::MAX,
        attached_copies: usize::MAX,
        attached_reductions: usize::MAX,
        is_priced: false,
    };
    /// Payloads of up to this many bytes lie beside their header, where nothing is faster.
    const ALWAYS: usize = INLINE_BYTES + 1;

    /// What `choice` means.
    pub fn of(choice: CopyChoice) -> LendingThresholds {
        match choice {
            CopyChoice::Auto => LendingThresholds {
                pooled: POOLED_BYTES,
                attached_copies: PRICED_BYTES / 2,
                is_priced: true,
                ..Self::NEVER
            },
            CopyChoice::Slots => Self::NEVER,
            CopyChoice::Lent => LendingThresholds { pooled: Self::ALWAYS, ..Self::NEVER },
            CopyChoice::Attach => LendingThresholds {
                attached_copies: Self::ALWAYS,
                attached_reductions: Self::ALWAYS,
                ..Self::NEVER
            },
        }
    }

    /// Whether a payload of `bytes` bytes in a pool is lent.
    pub(super) fn lends_pooled(&self, bytes: usize) -> bool {
        bytes >= self.pooled
    }

    /// Whether the payload of `header`, of `bytes` bytes in any memory, is lent.
    pub(super) fn lends_attached(&self, header: &Header, bytes: usize) -> bool {
        if bytes < self.attached_copies.min(self.attached_reductions) {
            return false;
        }
        match is_reduced(header) {
            true => bytes >= self.attached_reductions,
            false => bytes >= self.attached_copies,
        }
    }

    /// Whether it depends on prices which payloads the system reads, of those that it may.
    pub(super) fn is_priced(&self) -> bool {
        self.is_priced
    }
}

/// The class of the message of `header`, if what it costs to copy it is to be measured: its
/// receiver waits for it, so that both sides copy at once if it goes through slots.
pub(super) fn priced_class(header: &Header) -> Option<LengthClass> {
    LengthClass::of(header.message_bytes).filter(|_| header.is_awaited_copy())
}

/// Whether the receiver may reduce the payload of `header`.
fn is_reduced(header: &Header) -> bool {
    let facts = || Collective::from_code(header.fingerprint.collective).map(Collective::facts);
    header.kind == Kind::Data && facts().is_some_and(|facts| facts.reduces)
}

impl Default for LendingThresholds {
    fn default() -> LendingThresholds {
        LendingThresholds::of(CopyChoice::Auto)
    }
}
