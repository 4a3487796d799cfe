//! One direction between two ranks: what waits to leave, what is on its way, and when it arrives.
//! Knows nothing of other links, nor of who drives it.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use super::Options;
use crate::transport::{LossReason, Payload};
use crate::wire::frame::Header;

/// Bytes of payload that one link carries undelivered, unless a single frame has more.
const LINK_BYTES: usize = 1 << 20;

pub(super) struct Link {
    random: Random,
    latency_ns: RangeInclusive<u64>,
    kibibyte_ns: u64,
    /// The receiver has seen the end, or will never receive anything more.
    pub(super) ended: bool,
    queued: VecDeque<(Header, Payload)>,
    /// When the first of `queued` has left.
    departs_at_ns: Option<u64>,
    travelling: VecDeque<Transit>,
    travelling_bytes: usize,
    last_arrival_ns: u64,
}

struct Transit {
    head_at_ns: u64,
    tail_at_ns: u64,
    content: Content,
}

pub(super) enum Content {
    Frame(Header, Vec<u8>),
    End(LossReason),
}

impl Link {
    /// The link with this number, which the seed makes different from all others.
    pub(super) fn new(number: u64, options: &Options) -> Link {
        let mut random = Random(options.seed ^ (number + 1).wrapping_mul(0x9e37_79b9));
        let slow = random.below(100) < options.slow_links_percent;
        let factor = if slow { 10 } else { 1 };
        let (least, most) = (*options.latency_ns.start(), *options.latency_ns.end());
        Link {
            random,
            latency_ns: least * factor..=most * factor,
            kibibyte_ns: options.kibibyte_ns * factor,
            ended: false,
            queued: VecDeque::new(),
            departs_at_ns: None,
            travelling: VecDeque::new(),
            travelling_bytes: 0,
            last_arrival_ns: 0,
        }
    }

    /// Queues a frame.
    pub(super) fn queue(&mut self, header: Header, payload: Payload) {
        self.queued.push_back((header, payload));
    }

    /// Begins to send the first queued frame, if the link is free and has room; returns when it
    /// will have left.
    pub(super) fn begin_departure(&mut self, now_ns: u64) -> Option<u64> {
        let (_, payload) = self.queued.front()?;
        let full = self.travelling_bytes > 0 && self.travelling_bytes + payload.len() > LINK_BYTES;
        if self.departs_at_ns.is_some() || full {
            return None;
        }
        let bytes = (Header::BYTES + payload.len()) as u64;
        self.departs_at_ns = Some(now_ns + (bytes * self.kibibyte_ns).div_ceil(1024).max(1));
        self.departs_at_ns
    }

    /// Moves the first queued frame onto the link, if its time has come; returns its header, and
    /// when its first and its last byte arrive.
    pub(super) fn finish_departure(&mut self, now_ns: u64) -> Option<(Header, [u64; 2])> {
        self.departs_at_ns.take_if(|at_ns| *at_ns <= now_ns)?;
        let (header, payload) = self.queued.pop_front()?;
        let bytes = payload.read(<[u8]>::to_vec);
        self.travelling_bytes += bytes.len();
        Some((header, self.push_in_transit(now_ns, Content::Frame(header, bytes))))
    }

    /// Puts `content` on its way; returns when its first and its last byte arrive.
    pub(super) fn push_in_transit(&mut self, now_ns: u64, content: Content) -> [u64; 2] {
        let (least, most) = (*self.latency_ns.start(), *self.latency_ns.end());
        let latency_ns = least + self.random.below(most.saturating_sub(least) + 1);
        let head_at_ns = (now_ns + latency_ns).max(self.last_arrival_ns + 1);
        let tail_at_ns = match &content {
            Content::Frame(_, bytes) => {
                head_at_ns + (bytes.len() as u64 * self.kibibyte_ns).div_ceil(1024)
            }
            Content::End(_) => head_at_ns,
        };
        self.last_arrival_ns = tail_at_ns;
        self.travelling.push_back(Transit { head_at_ns, tail_at_ns, content });
        [head_at_ns, tail_at_ns]
    }

    /// The header of the frame that arrives first, if the header is here.
    pub(super) fn head(&self, now_ns: u64) -> Option<Header> {
        let first = self.travelling.front()?;
        match &first.content {
            Content::Frame(header, _) if now_ns >= first.head_at_ns => Some(*header),
            _ => None,
        }
    }

    /// Takes what arrives first, if all of it is here.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<Content> {
        let first = self.travelling.pop_front_if(|first| now_ns >= first.tail_at_ns)?;
        if let Content::Frame(_, bytes) = &first.content {
            self.travelling_bytes -= bytes.len();
        }
        Some(first.content)
    }

    /// Drops what has not left.
    pub(super) fn drop_queued(&mut self) {
        self.queued.clear();
        self.departs_at_ns = None;
    }

    /// Loses the last frames in transit: as many as the seed says.
    pub(super) fn drop_last_in_transit(&mut self, now_ns: u64) {
        let kept = self.random.below(self.travelling.len() as u64 + 1) as usize;
        self.travelling.truncate(kept);
        // The end comes after what is kept, and may come before what is lost would have come.
        let last = self.travelling.back().map(|last| last.tail_at_ns);
        self.last_arrival_ns = last.unwrap_or(now_ns);
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.drop_queued();
        self.travelling.clear();
        self.travelling_bytes = 0;
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
