//! Calls on windows, of which all but a few take tensors. Knows nothing of copies.

use std::time::Duration;

use crate::calls::Role;
use crate::calls::parameters::window::{
    accumulate, compare_and_swap, fetch_and_add, flush, get, put, signal, tensor_register,
    wait_signal,
};
use crate::calls::resolve::{ResolvedCall, unsupported};
use crate::completion::WaitIntent;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::Window;
use crate::tensor::{Tensor, single_tensor};
use crate::work::Work;

/// The elements of a rank's memory: the rank, and where they begin.
type Place = (u32, u64);

/// What a resolved call on a window does.
#[derive(Debug)]
pub(super) enum WindowCall {
    Register(Tensor),
    Deregister,
    Put(Tensor, Place),
    Get(Tensor, Place),
    Accumulate(Tensor, Place, ReduceOp),
    FetchAndAdd(Tensor, Tensor, Place),
    /// The new elements and the expected ones, and where the old ones go.
    CompareAndSwap([Tensor; 2], Tensor, Place),
    Signal(u32),
    WaitSignal(u32),
    Flush(Option<u32>),
    Fence,
}

impl WindowCall {
    /// What a call asks for.
    pub(super) fn of(mut call: ResolvedCall) -> Result<WindowCall> {
        Ok(match call.method.name {
            "tensor_register" => WindowCall::Register(call.tensor(tensor_register::TENSOR)?),
            "tensor_deregister" => WindowCall::Deregister,
            "put" => {
                let place = (call.take(put::DST)?, call.take(put::OFFSET_NELEMS)?);
                WindowCall::Put(call.tensor(put::TENSOR)?, place)
            }
            "get" => {
                let place = (call.take(get::SRC)?, call.take(get::OFFSET_NELEMS)?);
                WindowCall::Get(call.tensor(get::TENSOR)?, place)
            }
            "accumulate" => {
                let place = (call.take(accumulate::DST)?, call.take(accumulate::OFFSET_NELEMS)?);
                let tensor = call.tensor(accumulate::TENSOR)?;
                WindowCall::Accumulate(tensor, place, call.take(accumulate::OP)?)
            }
            "fetch_and_add" => {
                use fetch_and_add::{DST, OFFSET_NELEMS, RESULT, TENSOR};
                let place = (call.take(DST)?, call.take(OFFSET_NELEMS)?);
                WindowCall::FetchAndAdd(call.tensor(TENSOR)?, call.tensor(RESULT)?, place)
            }
            "compare_and_swap" => {
                use compare_and_swap::{COMPARE, DST, OFFSET_NELEMS, RESULT, TENSOR};
                let place = (call.take(DST)?, call.take(OFFSET_NELEMS)?);
                let given = [call.tensor(TENSOR)?, call.tensor(COMPARE)?];
                WindowCall::CompareAndSwap(given, call.tensor(RESULT)?, place)
            }
            "signal" => WindowCall::Signal(call.take(signal::PEER)?),
            "wait_signal" => WindowCall::WaitSignal(call.take(wait_signal::PEER)?),
            "flush" => WindowCall::Flush(call.take(flush::PEER)?),
            "fence" => WindowCall::Fence,
            other => return Err(unsupported(format!("Window.{other}"))),
        })
    }

    /// Whether no other rank has to call the same.
    pub(super) fn is_one_sided(&self) -> bool {
        !matches!(self, WindowCall::Register(_) | WindowCall::Deregister | WindowCall::Fence)
    }

    /// Issues it.
    pub(super) fn issue(self, window: &Window, waiting: WaitIntent) -> Result<Work> {
        match self {
            WindowCall::Register(tensor) => window.issue_register(tensor),
            WindowCall::Deregister => window.issue_deregister(waiting),
            WindowCall::Put(tensor, (peer, offset)) => {
                window.issue_put(tensor, peer, offset, waiting)
            }
            WindowCall::Get(tensor, (peer, offset)) => {
                window.issue_get(tensor, peer, offset, waiting)
            }
            WindowCall::Accumulate(tensor, (peer, offset), op) => {
                window.issue_accumulate(tensor, peer, (offset, op), waiting)
            }
            WindowCall::FetchAndAdd(tensor, result, place) => {
                window.issue_fetch_and_add(tensor, result, place, waiting)
            }
            WindowCall::CompareAndSwap(given, result, place) => {
                window.issue_compare_and_swap(given, result, place, waiting)
            }
            WindowCall::Signal(peer) => window.issue_signal(peer, waiting),
            WindowCall::WaitSignal(peer) => window.issue_wait_signal(peer, waiting),
            WindowCall::Flush(peer) => window.issue_flush(peer, waiting),
            WindowCall::Fence => window.issue_fence(waiting),
        }
    }
}

impl ResolvedCall {
    /// Issues the call on a window that it is.
    ///
    /// # Errors
    /// Wrong ranks, offsets and tensors; those of a broken group.
    pub fn issue_on_window(self, window: &Window, waiting: WaitIntent) -> Result<Work> {
        let window = self.limit(window)?;
        WindowCall::of(self)?.issue(&window, waiting)
    }

    /// The window with the limit that the call gives, if it does.
    pub(super) fn limit(&self, window: &Window) -> Result<Window> {
        let timeout: Option<Option<Duration>> = self.look(Role::Timeout)?;
        Ok(match timeout.flatten() {
            Some(timeout) => window.with_timeout(timeout),
            None => window.clone(),
        })
    }

    /// The one tensor of parameter `position`.
    fn tensor(&self, position: usize) -> Result<Tensor> {
        let tensors = self.values.get(position).map(|it| it.tensors()).unwrap_or_default();
        single_tensor(self.method.name, tensors)
    }
}
