//! The half of an allreduce, or the whole of a reduce-scatter, in which every rank reduces its part
//! of the result: it reads what the other ranks have of that where it lies, a piece at a time, into
//! memory that stays in its caches. Knows no schedule.

use super::direct_exchange::{LentAddress, LentRead, PartOutcome, TURN_BYTES};
use super::operation::SmallOperation;
use super::small_collective::SmallCollective;
use super::state::State;
use crate::kernels::{self, Order, Stores};
use crate::schedule::Rank;
use crate::tensor::Region;
use crate::wire::abort::Abort;

/// Bytes that are read before they are reduced. With their operand they fit the second-level cache
/// of every processor of the last ten years, and a system call for that many costs a fiftieth of
/// the copy. Between 64 and 256 KiB it makes a difference of 3 % (Intel Xeon, family 6 model 167,
/// 128 KiB to 16 MiB).
const PIECE_BYTES: usize = 128 << 10;

/// Memory for what was read.
struct Scratch {
    /// What the ranks before this one have, reduced.
    earlier: Region,
    /// What one rank has.
    one: Region,
}

/// A piece of this rank's part of the result, and what this rank gives to it.
struct Piece<'a> {
    own: &'a Region,
    into: &'a Region,
    stores: Stores,
}

impl State {
    /// Reduces more of this rank's part of the result of an operation for which all ranks are
    /// there.
    pub(super) fn reduce_own_part(
        &mut self,
        operation: &SmallOperation,
    ) -> Result<PartOutcome, Abort> {
        let mut kept = vec![self.scratch.take(PIECE_BYTES)];
        if self.size > 2 {
            kept.push(self.scratch.take(PIECE_BYTES));
        }
        let scratch = Scratch { earlier: kept[0].clone(), one: kept[kept.len() - 1].clone() };
        let outcome = self.reduce_pieces(operation, &scratch);
        drop(scratch);
        self.scratch.give_back(&mut kept);
        outcome
    }

    fn reduce_pieces(
        &mut self,
        operation: &SmallOperation,
        scratch: &Scratch,
    ) -> Result<PartOutcome, Abort> {
        let unavailable = Ok(PartOutcome::Unavailable);
        let (Some(exchange), Some(running)) =
            (&mut self.exchange, self.in_flight.get(operation.sequence))
        else {
            return unavailable;
        };
        exchange.check(self.rank)?;
        let Some(reduction) = running.direct_collective().and_then(|it| it.own_reduction()) else {
            return unavailable;
        };
        let (own, into) = (&reduction.own, &reduction.into);
        if own.len() != into.len() || (own.overlaps(into) && !own.same_memory(into)) {
            let why = "input and output memory overlap in part, or differ in length".to_owned();
            return Err(Abort::User { rank: self.rank, why });
        }
        let mut addresses = Vec::with_capacity(self.size as usize);
        for source in 0..self.size {
            if source == self.rank {
                addresses.push(0);
                continue;
            }
            match exchange.lent_address(running, (self.rank, source), &reduction.theirs)? {
                LentAddress::At(address) => addresses.push(address),
                LentAddress::OnBoard(_) | LentAddress::Nowhere => return unavailable,
            }
        }
        let start = running.direct.reduced;
        let end = into.len().min(start + TURN_BYTES);
        for from in (start..end).step_by(PIECE_BYTES) {
            let range = from..end.min(from + PIECE_BYTES);
            let (own, into) = (own.slice(range.clone()), into.slice(range));
            let piece = Piece { own: &own, into: &into, stores: running.result_stores };
            let read = |source: Rank, scratch: &Region| {
                let (address, part) = (addresses[source as usize], &reduction.theirs);
                let has_moved = false;
                let lent = LentRead { running, operation, source, part, address, has_moved };
                let scratch = scratch.slice(0..into.len());
                scratch.write(|bytes| exchange.read_lent(&lent, from, bytes))
            };
            // A piece that was not complete is never begun again: the group breaks.
            if let Some(outcome) = reduce_piece(operation, &piece, scratch, read)? {
                return Ok(outcome);
            }
        }
        Ok(PartOutcome::Taken(end - start))
    }
}

/// Reduces a piece, in the order of the ranks: none if it is done, else what came of `read`, which
/// brings what a rank has to where it is told.
fn reduce_piece(
    operation: &SmallOperation,
    piece: &Piece<'_>,
    scratch: &Scratch,
    mut read: impl FnMut(Rank, &Region) -> Result<Option<PartOutcome>, Abort>,
) -> Result<Option<PartOutcome>, Abort> {
    let SmallCollective { reduce_op, dtype, rank, size, .. } = operation.small;
    let &Piece { own, into, stores } = piece;
    let in_place = own.same_memory(into);
    let bytes = into.len();
    let (earlier, one) = (scratch.earlier.slice(0..bytes), scratch.one.slice(0..bytes));
    let fold = |into: &Region, from: &Region, order| {
        into.write_from(from, |into, from| kernels::reduce(reduce_op, dtype, into, from, order));
    };
    // `left` and `right`, of which only `own` may be of the same allocation as the result.
    let combine = |scratch: &Region, is_own_first: bool| {
        scratch.read(|scratch| {
            into.write_from(own, |into, own| {
                let (left, right) = if is_own_first { (own, scratch) } else { (scratch, own) };
                kernels::reduce_into(reduce_op, dtype, into, left, right, stores);
            });
        });
    };
    for source in 0..size {
        if source == rank {
            match (rank, in_place) {
                // What comes next is added to it.
                (0, _) => {}
                (_, true) => fold(into, &earlier, Order::FromFirst),
                (_, false) => combine(&earlier, false),
            }
            continue;
        }
        let place = if source == 0 { &earlier } else { &one };
        if let Some(outcome) = read(source, place)? {
            return Ok(Some(outcome));
        }
        match source {
            // The others are added to it.
            0 => {}
            _ if source < rank => fold(&earlier, &one, Order::IntoFirst),
            1 if rank == 0 && !in_place => combine(&one, true),
            _ => fold(into, &one, Order::IntoFirst),
        }
    }
    Ok(None)
}
