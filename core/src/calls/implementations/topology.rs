//! `Topology`: what is known of a grid or a graph, and the lengths that a grid can have.

use crate::calls::Value;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::parameters::distributed::compute_dims as lengths;
use crate::calls::parameters::topology::*;
use crate::generated::error::Result;
use crate::process_group::topology;

/// Balanced lengths of the dimensions of a grid.
pub(crate) fn compute_dims(mut call: Invocation) -> Result<Answer> {
    let size: u32 = call.take(lengths::SIZE)?;
    let dims: Vec<u32> = match call.value(lengths::DIMS) {
        Value::List(_) => call.take(lengths::DIMS)?,
        _ => {
            let count: u32 = call.take(lengths::DIMS)?;
            // More are refused, however many.
            vec![0; count.min(1 << 10) as usize]
        }
    };
    topology::compute_dims(size, &dims).into_answer()
}

/// The length of each dimension.
pub(crate) fn dims(call: Invocation) -> Result<Answer> {
    call.this_topology()?.dims().into_answer()
}

/// Whether each dimension is periodic.
pub(crate) fn periods(call: Invocation) -> Result<Answer> {
    call.this_topology()?.periods().map(<[bool]>::to_vec).into_answer()
}

/// The ranks from which this one gets.
pub(crate) fn sources(call: Invocation) -> Result<Answer> {
    call.this_topology()?.sources().into_answer()
}

/// The ranks to which this one gives.
pub(crate) fn destinations(call: Invocation) -> Result<Answer> {
    call.this_topology()?.destinations().into_answer()
}

/// The index of a rank in each dimension.
pub(crate) fn coordinates(mut call: Invocation) -> Result<Answer> {
    let rank: u32 = call.take(coordinates::RANK)?;
    call.this_topology()?.coordinates(rank).into_answer()
}

/// The rank with this index in each dimension.
pub(crate) fn rank_at(mut call: Invocation) -> Result<Answer> {
    let indices: Vec<i32> = call.take(rank_at::COORDINATES)?;
    call.this_topology()?.rank_at(&indices).into_answer()
}

/// The two ranks with which this one shifts something.
pub(crate) fn shift(mut call: Invocation) -> Result<Answer> {
    let dimension: u32 = call.take(shift::DIMENSION)?;
    let displacement: i32 = call.take(shift::DISPLACEMENT)?;
    let (source, destination) = call.this_topology()?.shift(dimension, displacement)?;
    vec![source, destination].into_answer()
}
