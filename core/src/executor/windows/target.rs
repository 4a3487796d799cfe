//! Accesses of other ranks to the memory of this one: every length and number of a frame is checked
//! before memory is touched. Knows nothing of accesses of this rank, but for those to its own.
//!
//! Elements of up to eight bytes are updated by atomic instructions, as ranks of this host may do
//! it themselves at the same time; longer ones only here, one after the other.

use super::super::limits::{FRAME_COST_BYTES, SEGMENT_BYTES};
use super::super::peers::PayloadTarget;
use super::super::state::{State, bytes_of};
use super::origin::refused_by;
use super::{
    ACCESS_WINDOW_BYTES, AccessTarget, ExposedMemory, OpenWindow, WindowAccess, Windows, code,
};
use crate::generated::dtype::DType;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{Stores, reducer};
use crate::transport::{ArrivedPayload, Destination, Payload, Rank};
use crate::wire::frame::{Header, Kind};

/// What an answer says where the other number is 0: the memory is not there, or other than meant.
const REFUSED: u64 = 1;

/// A segment of another rank's access that was checked.
struct Checked<'a> {
    exposed: &'a ExposedMemory,
    at: usize,
    bytes: usize,
}

impl State {
    /// Lets others access `memory`, or nothing any more.
    pub(in super::super) fn expose(&mut self, window: u32, memory: Option<ExposedMemory>) {
        if let Some(open) = self.windows.open.get_mut(&window) {
            open.exposed = memory;
        }
    }

    /// An access of this rank to its own memory.
    pub(super) fn access_own(&mut self, access: &WindowAccess) -> Result<()> {
        let WindowAccess { action, window, dtype, offset: at, memory, .. } = access;
        let exposed = self.windows.open.get(window).and_then(|it| it.exposed.as_ref());
        let fits =
            |it: &&ExposedMemory| it.dtype == *dtype && it.shared.contains(*at, memory.len());
        let Some(ExposedMemory { shared, region, .. }) = exposed.filter(fits) else {
            return Err(refused_by(action.name(), self.rank));
        };
        let target = AccessTarget { shared, own: Some(region), at: *at, dtype: *dtype };
        action.perform(&target, memory);
        Ok(())
    }

    /// Where the payload of a segment goes.
    pub(in super::super) fn access_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        let bytes = header.fingerprint.elements;
        let payload = u64::from(header.payload_bytes);
        let expected = match header.fingerprint.collective {
            code::PUT | code::ACCUMULATE | code::FETCH => Some(bytes),
            code::GET => Some(0),
            code::SWAP => bytes.checked_mul(2),
            _ => None,
        };
        let is_whole = expected == Some(payload) && (1..=SEGMENT_BYTES as u64).contains(&bytes);
        if !is_whole || !self.windows.may_answer(peer) {
            self.protocol_error(peer, "an access to a window is not as it should be");
            return (PayloadTarget::Nothing, Destination::Discard);
        }
        let Some(Checked { exposed, at, bytes }) = self.windows.check(header) else {
            return (PayloadTarget::Access { granted: false }, Destination::Discard);
        };
        let granted = PayloadTarget::Access { granted: true };
        match header.fingerprint.collective {
            code::PUT => {
                let place = exposed.region.slice(at..at + bytes);
                (granted, Destination::Into(place, Stores::Cached))
            }
            code::GET => (granted, Destination::Discard),
            _ => (granted, Destination::Borrowed),
        }
    }

    /// A segment is complete: does what it asks for, and answers.
    pub(in super::super) fn access_arrived(
        &mut self,
        peer: Rank,
        header: &Header,
        incoming: PayloadTarget,
        payload: &ArrivedPayload<'_>,
    ) {
        let granted = match incoming {
            PayloadTarget::Access { granted } => granted,
            _ => return,
        };
        // What a peer lends it may take back; it counts once it is known to be whole.
        let given = bytes_of(payload).to_vec();
        if !payload.holds() {
            return;
        }
        let answer = match granted {
            true => self.windows.perform(header, &given),
            false => None,
        };
        let mut reply = Header {
            sequence: header.sequence,
            message: header.message,
            offset: header.message_bytes,
            message_bytes: if answer.is_some() { 0 } else { REFUSED },
            ..self.header(Kind::AccessReply, header.sequence)
        };
        let answer = answer.unwrap_or(Payload::Empty);
        reply.payload_bytes = answer.len() as u32;
        reply.fingerprint.elements = header.fingerprint.elements;
        self.windows.peer(peer).answering += answer_cost(answer.len());
        self.windows.answers.push_back((peer, reply, answer));
    }

    /// An answer has left.
    pub(in super::super) fn access_reply_sent(&mut self, peer: Rank, header: &Header) {
        let peer = self.windows.peer(peer);
        let cost = answer_cost(header.payload_bytes as usize);
        peer.answering = peer.answering.saturating_sub(cost);
    }
}

fn answer_cost(payload_bytes: usize) -> usize {
    payload_bytes + FRAME_COST_BYTES
}

impl Windows {
    /// Whether a peer that keeps to what may be under way can ask for something more.
    fn may_answer(&mut self, peer: Rank) -> bool {
        self.peer(peer).answering <= 2 * ACCESS_WINDOW_BYTES
    }

    /// The memory that a segment is for, if it lies in what is registered, with these elements.
    fn check(&self, header: &Header) -> Option<Checked<'_>> {
        let exposed = self.open.get(&header.message)?.exposed.as_ref()?;
        let at = usize::try_from(header.offset).ok()?;
        let bytes = usize::try_from(header.fingerprint.elements).ok()?;
        let size = exposed.dtype.size_bytes();
        let is_right = header.fingerprint.dtype == exposed.dtype as u8
            && at.is_multiple_of(size)
            && bytes.is_multiple_of(size)
            && exposed.shared.contains(at, bytes);
        is_right.then_some(Checked { exposed, at, bytes })
    }

    /// Does what a segment asks for, and returns what the origin gets; none if it cannot be done.
    fn perform(&self, header: &Header, given: &[u8]) -> Option<Payload> {
        // It may have been closed while the payload was on its way.
        let Checked { exposed, at, bytes } = self.check(header)?;
        let (shared, dtype) = (&exposed.shared, exposed.dtype);
        let target = AccessTarget { shared, own: Some(&exposed.region), at, dtype };
        let reduce = || operator(header.fingerprint.reduce_op, dtype).map(|op| reducer(op, dtype));
        match header.fingerprint.collective {
            code::PUT => Some(Payload::Empty),
            code::GET => Some(Payload::Region(exposed.region.slice(at..at + bytes))),
            code::ACCUMULATE => {
                let reduce = reduce()?;
                target.exclusively(|| shared.update(at, dtype, given, reduce, None));
                Some(Payload::Empty)
            }
            code::FETCH => {
                let (reduce, mut old) = (reduce()?, vec![0; bytes]);
                target.exclusively(|| shared.update(at, dtype, given, reduce, Some(&mut old)));
                Some(Payload::Owned(old))
            }
            code::SWAP => {
                let (compare, value) = given.split_at_checked(bytes)?;
                let mut old = vec![0; bytes];
                target.exclusively(|| {
                    shared.compare_and_swap(at, dtype, compare, value, &mut old);
                });
                Some(Payload::Owned(old))
            }
            _ => None,
        }
    }
}

/// The operator of this number, if these elements are reduced by it here.
fn operator(code: u8, dtype: DType) -> Option<ReduceOp> {
    const REDUCING: [ReduceOp; 10] = [
        ReduceOp::Sum,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
        ReduceOp::Land,
        ReduceOp::Lor,
        ReduceOp::Lxor,
    ];
    REDUCING.into_iter().find(|op| op.code() == code && op.supports(dtype))
}

impl OpenWindow {
    /// Begins a fence; its number.
    pub(super) fn next_fence(&mut self) -> u64 {
        self.fences += 1;
        self.fences
    }
}
