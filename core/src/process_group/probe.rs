//! Looks for messages before they are received. Knows no backend.

use std::sync::{Arc, OnceLock};

use super::ProcessGroup;
use crate::backend::{IssueOptions, MessageInfo, ProbeRequest};
use crate::blocking::block_on;
use crate::completion::WaitIntent;
use crate::generated::error::Result;
use crate::work::Work;

impl ProcessGroup {
    /// Waits until there is a message that a `recv` from `peer` (a rank of this group; none is
    /// any), with this tag, would take, and says what it is. It stays where it is: a receive of the
    /// same rank and tag takes it, unless another thread does.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) with backends other than `tcp` and
    /// `websocket`; otherwise as [`ProcessGroup::recv`].
    pub fn probe(&self, peer: Option<u32>, tag: u32) -> Result<MessageInfo> {
        block_on(self.probe_async(peer, tag))
    }

    /// As [`ProcessGroup::probe`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::probe`].
    pub async fn probe_async(&self, peer: Option<u32>, tag: u32) -> Result<MessageInfo> {
        loop {
            if let Some(found) = self.look("probe", peer, tag, true).await? {
                return Ok(found);
            }
        }
    }

    /// As [`ProcessGroup::probe`], but it does not wait: none if there is no such message yet.
    ///
    /// # Errors
    /// As [`ProcessGroup::probe`].
    pub fn iprobe(&self, peer: Option<u32>, tag: u32) -> Result<Option<MessageInfo>> {
        block_on(self.iprobe_async(peer, tag))
    }

    /// As [`ProcessGroup::iprobe`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::iprobe`].
    pub async fn iprobe_async(&self, peer: Option<u32>, tag: u32) -> Result<Option<MessageInfo>> {
        self.look("iprobe", peer, tag, false).await
    }

    async fn look(
        &self,
        name: &'static str,
        peer: Option<u32>,
        tag: u32,
        waits: bool,
    ) -> Result<Option<MessageInfo>> {
        match peer {
            Some(peer) => self.check_peer(name, "source", peer)?,
            None => self.require_members(name)?,
        }
        let (backend, found) = (self.cpu(), Arc::new(OnceLock::new()));
        let options = IssueOptions { deadline: self.deadline(None), waiting: WaitIntent::Soon };
        let issued =
            backend.probe(ProbeRequest { peer, tag, waits, found: found.clone() }, options)?;
        Work::new(self.label(name), vec![(issued, backend)], Vec::new()).settle().await?;
        Ok(found.get().copied())
    }
}
