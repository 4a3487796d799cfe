//! Incoming connections that have not sent a hello yet. Their number, their bytes and their time
//! are bounded, so that a stranger cannot get in the way of ranks. Knows nothing of frames.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::transport::readiness::Readiness;
use crate::wire::handshake::Hello;

/// The connections without a hello. `Attachment` is what may come along with a hello.
pub(in crate::transport) struct PendingConnections<Attachment> {
    slots: Vec<Option<PendingConnection<Attachment>>>,
    /// Most connections that wait for their hello. One more replaces the oldest: ranks send their
    /// hello immediately, and one whose connection was dropped tries again.
    max_pending: usize,
}

/// A connection that has not sent its hello yet.
pub(in crate::transport) struct PendingConnection<Attachment> {
    pub(in crate::transport) socket: OwnedFd,
    pub(in crate::transport) bytes: [u8; Hello::BYTES],
    pub(in crate::transport) have_bytes: usize,
    pub(in crate::transport) attachment: Attachment,
    since: Instant,
}

impl<Attachment: Default> PendingConnections<Attachment> {
    pub(in crate::transport) fn new(max_pending: usize) -> PendingConnections<Attachment> {
        PendingConnections { slots: Vec::new(), max_pending }
    }

    /// Adds a new connection and returns its slot. The key of its events is the slot added to
    /// `key`.
    pub(in crate::transport) fn admit(
        &mut self,
        socket: OwnedFd,
        readiness: &Readiness,
        key: u64,
    ) -> Result<usize, Errno> {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < self.max_pending => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => self.oldest().unwrap_or(0),
        };
        self.forget(slot, readiness);
        readiness.add(&socket, key + slot as u64, false)?;
        let (bytes, attachment) = ([0; Hello::BYTES], Attachment::default());
        let since = Instant::now();
        self.slots[slot] =
            Some(PendingConnection { socket, bytes, have_bytes: 0, attachment, since });
        Ok(slot)
    }

    /// The connection in `slot`, if it is still there.
    pub(in crate::transport) fn get_mut(
        &mut self,
        slot: usize,
    ) -> Option<&mut PendingConnection<Attachment>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes the connection in `slot` out. It stays watched.
    pub(in crate::transport) fn take(
        &mut self,
        slot: usize,
    ) -> Option<PendingConnection<Attachment>> {
        self.slots.get_mut(slot)?.take()
    }

    /// Drops the connection in `slot`, if there is one.
    pub(in crate::transport) fn forget(&mut self, slot: usize, readiness: &Readiness) {
        if let Some(pending) = self.take(slot) {
            readiness.remove(&pending.socket);
        }
    }

    /// Drops the connections that have been silent for `timeout`.
    pub(in crate::transport) fn expire(
        &mut self,
        now: Instant,
        timeout: Duration,
        readiness: &Readiness,
    ) {
        for slot in 0..self.slots.len() {
            let pending = self.slots[slot].as_ref();
            if pending.is_some_and(|pending| now >= pending.since + timeout) {
                self.forget(slot, readiness);
            }
        }
    }

    /// When the first connection will have been silent for `timeout`.
    pub(in crate::transport) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.slots.iter().flatten().map(|pending| pending.since + timeout).min()
    }

    /// Drops all of them while others are watched.
    pub(in crate::transport) fn forget_all(&mut self, readiness: &Readiness) {
        (0..self.slots.len()).for_each(|slot| self.forget(slot, readiness));
    }

    /// Drops all of them.
    pub(in crate::transport) fn clear(&mut self) {
        self.slots.clear();
    }

    fn oldest(&self) -> Option<usize> {
        let slots = self.slots.iter().enumerate();
        let taken = slots.filter_map(|(slot, taken)| Some((taken.as_ref()?.since, slot)));
        taken.min().map(|(_, slot)| slot)
    }
}
