//! Ranks that are threads of one process: frames go through queues in memory. Knows nothing of
//! sockets.
//!
//! The sender's thread copies a payload out of its memory, and the receiver's thread copies it into
//! its own: memory of an operation is only touched by the thread that drives its rank.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tcp")]
use rustix::event::{EventfdFlags, eventfd};

use super::notice::{self, Notice};
use super::{ArrivedPayload, Destination, Interest, LossReason, Payload, Rank, Sink, Transport};
use crate::generated::error::{Error, Result};
use crate::kernels;
use crate::wire::frame::Header;

/// Bytes of payload from one sender that wait at a receiver, unless a single frame has more.
const WAITING_BYTES: usize = 1 << 20;

/// One rank's end of the queues of a group.
pub struct InprocTransport {
    rank: Rank,
    mailboxes: Arc<[Mailbox]>,
    peers: Vec<Peer>,
    notices: Vec<Notice>,
    closed: bool,
}

/// The state of another rank.
#[derive(Default)]
struct Peer {
    /// Frames for which the receiver has no room yet.
    outbox: VecDeque<(Header, Payload)>,
    linked: bool,
    lost: bool,
}

/// The mailbox of one rank.
struct Mailbox {
    content: Mutex<Content>,
    /// Readable while [`Content::rung`].
    #[cfg(feature = "tcp")]
    doorbell: Option<Arc<std::os::fd::OwnedFd>>,
}

#[derive(Default)]
struct Content {
    letters: VecDeque<(Rank, Delivery)>,
    /// By sender: bytes of payload in `letters`.
    waiting_bytes: Vec<usize>,
    /// By sender: whether it has asked to be told of this rank's end.
    linked: Vec<bool>,
    /// By sender: whether it waits for room.
    wants_room: Vec<bool>,
    rung: bool,
    closed: bool,
}

enum Delivery {
    Frame(Header, Vec<u8>),
    End(LossReason),
}

/// The transports of a group of `size` ranks in this process, by rank.
pub fn connect(size: u32) -> Vec<InprocTransport> {
    let mailboxes = mailboxes(size);
    (0..size).map(|rank| InprocTransport::new(rank, mailboxes.clone())).collect()
}

/// A group that not all of its ranks have joined yet.
struct PendingGroup {
    token: [u8; 16],
    /// How many ranks have not joined yet.
    left: usize,
    mailboxes: Arc<[Mailbox]>,
}

/// The transport of `rank` in the group of `size` ranks of this process that have `token`, which
/// no other group has. Each rank asks once.
///
/// # Errors
/// [`Error::InvalidArgument`] for a rank outside of 0..size, or if the others gave another size.
pub fn join(token: [u8; 16], rank: u32, size: u32) -> Result<InprocTransport> {
    static GROUPS: Mutex<Vec<PendingGroup>> = Mutex::new(Vec::new());
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    // The mailboxes of a group that all its ranks have left are held by this list alone.
    groups.retain(|group| Arc::strong_count(&group.mailboxes) > 1);
    let found = groups.iter().position(|group| group.token == token).unwrap_or_else(|| {
        groups.push(PendingGroup { token, left: size as usize, mailboxes: mailboxes(size) });
        groups.len() - 1
    });
    let group = &mut groups[found];
    let found_size = group.mailboxes.len();
    if rank >= size || found_size != size as usize {
        let message = format!("rank {rank} of {size} comes to a group of {found_size} ranks");
        return Err(Error::InvalidArgument { message });
    }
    let transport = InprocTransport::new(rank, group.mailboxes.clone());
    group.left -= 1;
    if group.left == 0 {
        groups.swap_remove(found);
    }
    Ok(transport)
}

fn mailboxes(size: u32) -> Arc<[Mailbox]> {
    let ranks = size as usize;
    let mailbox = |_| Mailbox {
        content: Mutex::new(Content {
            waiting_bytes: vec![0; ranks],
            linked: vec![false; ranks],
            wants_room: vec![false; ranks],
            ..Content::default()
        }),
        // Without a descriptor there is nothing to wait for, and the thread polls.
        #[cfg(feature = "tcp")]
        doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new),
    };
    (0..ranks).map(mailbox).collect()
}

impl InprocTransport {
    fn new(rank: Rank, mailboxes: Arc<[Mailbox]>) -> InprocTransport {
        let peers = mailboxes.iter().map(|_| Peer::default()).collect();
        InprocTransport { rank, mailboxes, peers, notices: Vec::new(), closed: false }
    }
}

impl Transport for InprocTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        // `connect` made one peer for each of its `u32` ranks.
        self.peers.len() as u32
    }

    fn send(&mut self, peer: Rank, mut header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank, "a frame for rank {peer}");
        self.connect(peer);
        let Some(entry) = self.peers.get_mut(peer as usize).filter(|peer| !peer.lost) else {
            return;
        };
        header.payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        entry.outbox.push_back((header, payload));
        self.flush(peer);
    }

    fn connect(&mut self, peer: Rank) {
        let linked = self.peers.get(peer as usize).is_none_or(|peer| peer.linked || peer.lost);
        if linked || peer == self.rank || self.closed {
            return;
        }
        let mut content = self.mailboxes[peer as usize].lock();
        let entry = &mut self.peers[peer as usize];
        if content.closed {
            entry.lost = true;
            let why = LossReason::Unreachable("it has left already".to_owned());
            self.notices.push(Notice::Lost(peer, why));
        } else {
            entry.linked = true;
            content.linked[self.rank as usize] = true;
        }
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        if self.closed {
            return false;
        }
        let letters = self.take_letters();
        let mut moved = !letters.is_empty();
        for (peer, letter) in letters {
            match letter {
                Delivery::Frame(header, bytes) => deliver(peer, &header, &bytes, sink),
                Delivery::End(why) => {
                    let entry = &mut self.peers[peer as usize];
                    entry.outbox.clear();
                    if !std::mem::replace(&mut entry.lost, true) {
                        self.notices.push(Notice::Lost(peer, why));
                    }
                }
            }
        }
        for peer in 0..self.size() {
            if !self.peers[peer as usize].outbox.is_empty() {
                self.flush(peer);
            }
        }
        moved |= notice::tell(&mut self.notices, sink);
        moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        #[cfg(feature = "tcp")]
        if let Some(doorbell) = &self.mailboxes[self.rank as usize].doorbell {
            interests.push(Interest { fd: doorbell.clone(), writable: false });
        }
        let _ = interests;
    }

    fn abandon(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.outbox.clear());
    }

    fn close(&mut self, orderly: bool) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.notices.clear();
        let linked = {
            let mut content = self.mailboxes[self.rank as usize].lock();
            content.closed = true;
            content.letters.clear();
            std::mem::take(&mut content.linked)
        };
        for (number, peer) in self.peers.iter_mut().enumerate() {
            peer.outbox.clear();
            if peer.lost || !(peer.linked || linked[number]) {
                continue;
            }
            let why = match orderly {
                true => LossReason::Goodbye,
                false => LossReason::Died("it ended without a goodbye".to_owned()),
            };
            let mailbox = &self.mailboxes[number];
            let mut content = mailbox.lock();
            if !content.closed {
                content.letters.push_back((self.rank, Delivery::End(why)));
                mailbox.ring(&mut content);
            }
        }
    }
}

impl Drop for InprocTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}

impl InprocTransport {
    /// Puts frames into the mailbox of `peer` while there is room.
    fn flush(&mut self, peer: Rank) {
        let outbox = &mut self.peers[peer as usize].outbox;
        let mailbox = &self.mailboxes[peer as usize];
        let mut content = mailbox.lock();
        if content.closed {
            // The end that it sent is on its way.
            outbox.clear();
            return;
        }
        let sender = self.rank as usize;
        while let Some((header, payload)) = outbox.pop_front() {
            let waiting_bytes = content.waiting_bytes[sender];
            if waiting_bytes > 0 && waiting_bytes + payload.len() > WAITING_BYTES {
                outbox.push_front((header, payload));
                content.wants_room[sender] = true;
                return;
            }
            content.waiting_bytes[sender] += payload.len();
            let bytes = payload.read(<[u8]>::to_vec);
            content.letters.push_back((self.rank, Delivery::Frame(header, bytes)));
            mailbox.ring(&mut content);
            self.notices.push(Notice::Sent(peer, header));
        }
    }

    /// Empties this rank's mailbox, and wakes those who waited for room in it.
    fn take_letters(&mut self) -> VecDeque<(Rank, Delivery)> {
        let mailbox = &self.mailboxes[self.rank as usize];
        let mut content = mailbox.lock();
        if std::mem::replace(&mut content.rung, false) {
            mailbox.silence();
        }
        let letters = std::mem::take(&mut content.letters);
        content.waiting_bytes.fill(0);
        let waiting: Vec<_> = (0..content.wants_room.len())
            .filter(|sender| std::mem::take(&mut content.wants_room[*sender]))
            .collect();
        drop(content);
        for sender in waiting {
            let mailbox = &self.mailboxes[sender];
            mailbox.ring(&mut mailbox.lock());
        }
        letters
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner, who may be waiting.
    fn ring(&self, content: &mut Content) {
        let is_rung = std::mem::replace(&mut content.rung, true);
        #[cfg(feature = "tcp")]
        if let Some(doorbell) = self.doorbell.as_ref().filter(|_| !is_rung) {
            // An error means that it is rung already.
            let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
        }
        #[cfg(not(feature = "tcp"))]
        let _ = is_rung;
    }

    fn silence(&self) {
        #[cfg(feature = "tcp")]
        if let Some(doorbell) = &self.doorbell {
            let _ = rustix::io::read(doorbell, &mut [0_u8; 8][..]);
        }
    }
}

fn deliver(peer: Rank, header: &Header, bytes: &[u8], sink: &mut dyn Sink) {
    match sink.announced(peer, header) {
        Destination::Into(region, stores) => {
            region.write(|memory| kernels::copy(memory, bytes, stores));
            drop(region);
            sink.arrived(peer, header, ArrivedPayload::InPlace);
        }
        Destination::Borrowed => sink.arrived(peer, header, ArrivedPayload::Borrowed(bytes)),
        Destination::Discard => sink.arrived(peer, header, ArrivedPayload::Discarded),
    }
}
