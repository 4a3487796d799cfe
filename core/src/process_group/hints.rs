//! Hints of a group: what holds for all its operations that do not say it themselves. Knows no
//! backend.

use std::sync::atomic::{AtomicU8, Ordering};

use super::ProcessGroup;
use super::compression::can_compress;
use crate::generated::error::{Error, Result};
use crate::kernels::Compression;
use crate::request::Request;

/// What holds for all operations of a group that do not say it themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupHints {
    /// In which form elements travel, as `compress` of
    /// [`AllreduceOptions`](crate::options::AllreduceOptions) has it; nothing or `none`: as they
    /// are.
    pub compress: Option<String>,
}

setters! {
    GroupHints {
        compress: impl Into<String> => Some(compress.into()),
    }
}

/// Hints that can be set.
#[derive(Clone, Copy)]
pub(super) struct CheckedHints {
    compression: Option<Compression>,
}

/// The hints that a group has now. They stay when its members change.
#[derive(Default)]
pub(super) struct Hints {
    /// The number of a [`Compression`], or 0.
    compression: AtomicU8,
}

impl Hints {
    /// Whether operations are not run as they are called.
    pub(super) fn change_operations(&self) -> bool {
        self.compression.load(Ordering::Relaxed) != 0
    }

    fn compression(&self) -> Option<Compression> {
        let number = self.compression.load(Ordering::Relaxed);
        Compression::ALL.into_iter().find(|known| *known as u8 == number)
    }

    /// For other members, which [adopt](Hints::adopt) them.
    pub(super) fn to_text(&self) -> &'static str {
        self.compression().map_or(Compression::NONE, Compression::name)
    }

    /// Sets the hints of another member.
    pub(super) fn adopt(&self, text: &[u8]) {
        let name = std::str::from_utf8(text).unwrap_or(Compression::NONE);
        self.set(CheckedHints { compression: Compression::named(name).ok() });
    }

    pub(super) fn set(&self, hints: CheckedHints) {
        let number = hints.compression.map_or(0, |compression| compression as u8);
        self.compression.store(number, Ordering::Relaxed);
    }
}

impl GroupHints {
    /// As a call of `who` takes them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: what the wrong one must be.
    pub(super) fn checked(&self, who: &str) -> Result<CheckedHints> {
        let wanted = self.compress.as_deref().filter(|name| *name != Compression::NONE);
        let named = wanted.map(Compression::named).transpose();
        let compression = named.map_err(|what| Error::InvalidArgument {
            message: format!("{who}(): the hint compress {what}"),
        })?;
        Ok(CheckedHints { compression })
    }
}

impl ProcessGroup {
    /// The hints that were set last; none at first.
    pub fn hints(&self) -> GroupHints {
        let compress = self.inner.hints.compression().map(|known| known.name().to_owned());
        GroupHints { compress }
    }

    /// Sets hints for all later operations of this group, on all ranks alike and at the same place
    /// in the order of its calls. An operation that says something else is run as it says; one that
    /// cannot do what a hint asks for is run as if there were none: `compress` concerns allreduce,
    /// reduce_scatter and allgather in all their forms (of these two not lists of several tensors,
    /// unless coalesced) of `f32` and `f64` in memory of the host, with SUM or AVG, over `tcp` and
    /// `websocket`. What was prepared before stays as it is, and groups that are split off begin
    /// without hints.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a form that there is none of; [`Error::InvalidGroup`] if the
    /// group was destroyed.
    pub fn set_hints(&self, hints: GroupHints) -> Result<()> {
        self.unless_left()?;
        self.inner.hints.set(hints.checked("set_hints")?);
        Ok(())
    }

    /// A request as the hints have it.
    pub(super) fn hinted(&self, request: Request) -> Request {
        match self.inner.hints.compression() {
            Some(compression)
                if request.takes_hints
                    && request.exchange.is_none()
                    && request.compression.is_none()
                    && self.inner.cpu.capabilities().compression
                    && can_compress(&request) =>
            {
                Request { hinted: Some(compression), ..request }
            }
            _ => request,
        }
    }
}
