//! The text by which others know a member: who it is, and where it can be met. Knows nothing of
//! meetings.

use std::cmp::Ordering;
use std::fmt;

use crate::generated::error::{Error, Result};

/// What every handle begins with: a later version of it has another number.
const MARK: &str = "polyrank-1";
/// Longest handle; what comes from elsewhere is not trusted.
const MAX_BYTES: usize = 1024;

/// Who a member is: `polyrank-1/0/1b9c…/3/tcp://10.0.0.1:40111/8d2e…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    /// Its rank in the members that it leaves, if it is one of any.
    pub(super) rank: Option<u32>,
    /// A number that no other group of any process has.
    pub(super) nonce: u64,
    /// How often its group was reconfigured before.
    pub(super) count: u32,
    /// Where it can be met.
    pub(super) place: String,
}

impl Handle {
    /// Reads a handle.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `text` is none.
    pub(super) fn parse(text: &str) -> Result<Handle> {
        let read = || {
            let rest = text.strip_prefix(MARK)?.strip_prefix('/')?;
            let mut parts = rest.splitn(4, '/');
            let (rank, nonce, count) = (parts.next()?, parts.next()?, parts.next()?);
            let rank = if rank == "-" { None } else { Some(rank.parse().ok()?) };
            let nonce = u64::from_str_radix(nonce, 16).ok()?;
            let place = parts.next().filter(|place| is_place(place))?.to_owned();
            Some(Handle { rank, nonce, count: count.parse().ok()?, place })
        };
        let found = Some(text).filter(|text| text.len() <= MAX_BYTES).and_then(|_| read());
        found.ok_or_else(|| Error::InvalidArgument {
            message: format!(
                "'{}' is not a handle of this version of polyrank; get_reconfigure_handle() gives \
                 one",
                text.chars().take(64).collect::<String>()
            ),
        })
    }

    /// Whether its process listens nowhere, so that all meet where it can go.
    pub(super) fn is_deaf(&self) -> bool {
        !self.place.starts_with("tcp://")
    }

    /// The order of members whose ranks are left to this library: those that were members of a
    /// group keep their order, newcomers follow.
    pub(super) fn seniority(&self, other: &Handle) -> Ordering {
        let key = |handle: &Handle| (handle.rank.is_none(), handle.rank, handle.nonce);
        key(self).cmp(&key(other))
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handle { rank, nonce, count, place } = self;
        match rank {
            Some(rank) => write!(f, "{MARK}/{rank}/{nonce:016x}/{count}/{place}"),
            None => write!(f, "{MARK}/-/{nonce:016x}/{count}/{place}"),
        }
    }
}

/// Whether `text` may be a place: a URL, that of a store of a member with its number.
fn is_place(text: &str) -> bool {
    match text.strip_prefix("tcp://") {
        Some(rest) => rest.contains('/'),
        None => text.contains("://"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn handle(rank: Option<u32>, nonce: u64) -> Handle {
        Handle { rank, nonce, count: 7, place: "tcp://[::1]:4000/1f".into() }
    }

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        for rank in [None, Some(0), Some(u32::MAX)] {
            let handle = handle(rank, u64::MAX - 1);
            assert_eq!(Handle::parse(&handle.to_string()).unwrap(), handle);
        }
        let far = Handle { place: "wss://host/a/b/c".into(), ..handle(None, 1) };
        assert_eq!(Handle::parse(&far.to_string()).unwrap(), far);
        assert!(far.is_deaf() && !handle(None, 1).is_deaf());
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let long = format!("{MARK}/0/1/1/tcp://a:1/{}", "x".repeat(MAX_BYTES));
        let other = "polyrank-2/0/1/1/tcp://a:1/1";
        for text in ["", "x", other, "polyrank-1/0/1/1", "polyrank-1/0/1/1/tcp://a:1", &long] {
            let error = Handle::parse(text).unwrap_err().to_string();
            assert!(error.contains("not a handle"), "{error}");
        }
    }

    #[test]
    fn former_members_stand_before_newcomers() {
        let mut all = [handle(None, 1), handle(Some(2), 9), handle(Some(0), 5), handle(None, 0)];
        all.sort_by(Handle::seniority);
        assert_eq!(
            all.map(|it| (it.rank, it.nonce)),
            [(Some(0), 5), (Some(2), 9), (None, 0), (None, 1)]
        );
    }
}
