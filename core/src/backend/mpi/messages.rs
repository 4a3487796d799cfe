//! Messages as calls of MPI that do not block. Knows no waiting.

#![allow(unsafe_code)]

use std::ffi::c_int;

use super::abi::Handle;
use super::group::Group;
use super::job::Job;
use super::layout;
use super::running_operation::{
    Lists, MatchedMessage, PendingReceive, RequestBuffers, Requests, RunningOperation,
};
use crate::generated::error::Result;
use crate::tensor::Region;

/// Starts to send `memory` to `peer`.
///
/// # Errors
/// What MPI says of it.
pub(super) fn send<H: Handle>(
    job: &Job<H>,
    group: &Group<H>,
    (peer, tag): (u32, u32),
    memory: Region,
) -> Result<(Requests<H>, RequestBuffers<H>)> {
    let mut lists = Lists::default();
    let (count, mpi_type) = layout::bytes(job, memory.len(), &mut lists.made)?;
    let mut request = job.constants.request_null;
    // SAFETY: so many bytes lie there, and are kept until the request ends.
    let code = unsafe {
        (job.functions.isend)(
            layout::start_of(&memory).cast_const().cast(),
            count,
            mpi_type,
            peer as c_int,
            tag as c_int,
            group.comm,
            &raw mut request,
        )
    };
    job.check(code, "MPI_Isend")?;
    let lists = (!lists.made.is_empty()).then(|| Box::new(lists));
    Ok((Requests::One(request), RequestBuffers { regions: vec![memory], lists }))
}

/// Starts to receive what came for `receive`; into other memory if it does not fit.
///
/// # Errors
/// What MPI says of it.
pub(super) fn receive<H: Handle>(
    job: &Job<H>,
    receive: PendingReceive<H>,
    matched: MatchedMessage<H>,
) -> Result<RunningOperation<H>> {
    let mut message = matched.message;
    let bytes = matched.bytes as usize;
    let memory = match receive.memory.len() == bytes {
        true => receive.memory,
        false => Region::zeroed(bytes),
    };
    let mut lists = Lists::default();
    let (count, mpi_type) = layout::bytes(job, bytes, &mut lists.made)?;
    let mut request = job.constants.request_null;
    // SAFETY: so many bytes lie there, and are kept until the request ends; the message was matched
    // and is received once.
    let code = unsafe {
        (job.functions.imrecv)(
            layout::start_of(&memory).cast(),
            count,
            mpi_type,
            &raw mut message,
            &raw mut request,
        )
    };
    job.check(code, "MPI_Imrecv")?;
    let lists = (!lists.made.is_empty()).then(|| Box::new(lists));
    let place = ("recv", receive.sequence);
    let kept = RequestBuffers { regions: vec![memory], lists };
    let running =
        RunningOperation::new(receive.group, place, Requests::One(request), kept, receive.deadline);
    Ok(RunningOperation {
        since: Some(receive.since),
        finish: receive.finish,
        source: Some(matched.source),
        completion: Some(receive.completion),
        ..running
    })
}
