//! Messages, and the barrier that names who is missing, over the default group. Knows no backend.

use std::time::Duration;

use super::default_group;
use crate::backend::MessageInfo;
use crate::generated::error::Result;
use crate::tensor::{Buffers, ConstBuffers, OwnedBuffers};
use crate::work::Work;

/// Sends a tensor to rank `dst` of the default group.
///
/// # Errors
/// As [`ProcessGroup::send`](crate::ProcessGroup::send).
pub fn send<I: ConstBuffers + ?Sized>(tensor: &I, dst: u32, tag: u32) -> Result<()> {
    default_group()?.send(tensor, dst, tag)
}

/// Receives a tensor from rank `src` of the default group, or from any that sends; the sender.
///
/// # Errors
/// As [`ProcessGroup::recv`](crate::ProcessGroup::recv).
pub fn recv<B: Buffers + ?Sized>(tensor: &mut B, src: Option<u32>, tag: u32) -> Result<u32> {
    let group = default_group()?;
    match src {
        Some(src) => group.recv(tensor, src, tag).map(|()| src),
        None => group.recv_anysource(tensor, tag),
    }
}

/// As [`send`], owning the tensor until the work is done.
///
/// # Errors
/// As [`ProcessGroup::send`](crate::ProcessGroup::send).
pub fn isend(tensor: impl OwnedBuffers, dst: u32, tag: u32) -> Result<Work> {
    default_group()?.send_async(tensor, dst, tag)
}

/// As [`recv`], owning the tensor until the work is done.
///
/// # Errors
/// As [`ProcessGroup::recv`](crate::ProcessGroup::recv).
pub fn irecv(tensor: impl OwnedBuffers, src: Option<u32>, tag: u32) -> Result<Work> {
    default_group()?.recv_async(tensor, src, tag)
}

/// Sends `input` to a rank of the default group, and receives `output` from one; ranks stand with
/// the tags of their messages.
///
/// # Errors
/// As [`ProcessGroup::sendrecv`](crate::ProcessGroup::sendrecv).
pub fn sendrecv<I: ConstBuffers + ?Sized, B: Buffers + ?Sized>(
    input: &I,
    to: (u32, u32),
    output: &mut B,
    from: (u32, u32),
) -> Result<()> {
    default_group()?.sendrecv(input, to, output, from)
}

/// Ranks of the default group hand their tensors on, from the first to the second of each pair.
///
/// # Errors
/// As [`ProcessGroup::ppermute`](crate::ProcessGroup::ppermute).
pub fn ppermute<B: Buffers + ?Sized, I: ConstBuffers + ?Sized>(
    output: &mut B,
    input: &I,
    pairs: &[(u32, u32)],
) -> Result<()> {
    default_group()?.ppermute(output, input, pairs)
}

/// Waits for a message from rank `src` of the default group, or from any: what `recv` would take.
///
/// # Errors
/// As [`ProcessGroup::probe`](crate::ProcessGroup::probe).
pub fn probe(src: Option<u32>, tag: u32) -> Result<MessageInfo> {
    default_group()?.probe(src, tag)
}

/// As [`probe`], without waiting.
///
/// # Errors
/// As [`ProcessGroup::iprobe`](crate::ProcessGroup::iprobe).
pub fn iprobe(src: Option<u32>, tag: u32) -> Result<Option<MessageInfo>> {
    default_group()?.iprobe(src, tag)
}

/// Waits until all ranks of the default group came, and says which did not.
///
/// # Errors
/// As [`ProcessGroup::monitored_barrier`](crate::ProcessGroup::monitored_barrier).
pub fn monitored_barrier(timeout: Option<Duration>, wait_all_ranks: bool) -> Result<()> {
    default_group()?.monitored_barrier(timeout, wait_all_ranks)
}

/// As [`monitored_barrier`], without blocking.
///
/// # Errors
/// As [`monitored_barrier`].
pub async fn monitored_barrier_async(
    timeout: Option<Duration>,
    wait_all_ranks: bool,
) -> Result<()> {
    default_group()?.monitored_barrier_async(timeout, wait_all_ranks).await
}
