//! A send and a receive that go together, so that ranks may exchange in whatever order. Knows no
//! backend.

use super::hook_arguments::without_tensors;
use super::{MessageRequest, ProcessGroup};
use crate::completion::WaitIntent;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
use crate::tensor::{
    Buffers, ConstBuffers, OwnedBuffers, Tensor, TensorRef, lend, lend_mut, single_tensor,
};
use crate::work::Work;

/// The name of the method.
const NAME: &str = "sendrecv";

/// A message to a rank, and one from a rank.
#[derive(Clone, Debug)]
pub struct ExchangeRequest {
    /// What is sent.
    pub input: Tensor,
    /// The rank that gets it, and the tag of that message.
    pub to: (u32, u32),
    /// Where what comes is put. It may be what is sent.
    pub output: Tensor,
    /// The rank from which it comes, and the tag of that message.
    pub from: (u32, u32),
}

impl ProcessGroup {
    /// Sends `input` to the rank `to.0` with the tag `to.1`, and receives `output` from the rank
    /// `from.0` with the tag `from.1` (MPI's `Sendrecv`). Both go on at once, so that ranks that
    /// exchange, in a ring or in pairs, never wait for each other in a circle.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`] and [`ProcessGroup::recv`].
    pub fn sendrecv<I: ConstBuffers + ?Sized, B: Buffers + ?Sized>(
        &self,
        input: &I,
        to: (u32, u32),
        output: &mut B,
        from: (u32, u32),
    ) -> Result<()> {
        let input = single_tensor(NAME, lend(input))?;
        let output = single_tensor(NAME, lend_mut(output))?;
        self.issue_exchange(ExchangeRequest { input, to, output, from }, WaitIntent::Soon)?
            .wait(None)
    }

    /// As [`ProcessGroup::sendrecv`], owning the tensors until the work is done, which hands
    /// `output` back.
    ///
    /// # Errors
    /// As [`ProcessGroup::sendrecv`].
    pub fn sendrecv_async(
        &self,
        input: impl OwnedBuffers,
        to: (u32, u32),
        output: impl OwnedBuffers,
        from: (u32, u32),
    ) -> Result<Work> {
        let input = single_tensor(NAME, input.into_tensors())?;
        let output = single_tensor(NAME, output.into_tensors())?;
        self.issue_exchange(ExchangeRequest { input, to, output, from }, WaitIntent::Later)
    }

    /// Checks that both ranks of an exchange are members of the group.
    pub(crate) fn check_exchange(&self, exchange: &ExchangeRequest) -> Result<()> {
        self.check_peer(NAME, "destination", exchange.to.0)?;
        self.check_peer(NAME, "source", exchange.from.0)
    }

    /// Issues both messages of an exchange; the work is over when both are.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue_messages`].
    pub fn issue_exchange(&self, exchange: ExchangeRequest, waiting: WaitIntent) -> Result<Work> {
        self.check_exchange(&exchange)?;
        let ExchangeRequest { mut input, to, output, from } = exchange;
        let is_in_place = input.region().overlaps(output.region());
        if is_in_place && input.region().device().is_some() {
            let message = format!("{NAME}: on a device, the two tensors must not share memory");
            return Err(Error::InvalidArgument { message });
        }
        if is_in_place {
            // It is still being sent while the other one comes.
            input = input.to_contiguous();
        }
        #[cfg(not(target_family = "wasm"))]
        let outputs = vec![output.clone()];
        let issue = || {
            let hooked = self.before(|| PreHookArgs {
                name: "SENDRECV",
                input_tensors: vec![TensorRef::of(&input)],
                output_tensors: vec![TensorRef::of(&output)],
                ..without_tensors(to.0 as i32, waiting)
            })?;
            let messages = [
                MessageRequest::receive(output.clone(), Some(from.0), from.1),
                MessageRequest::send(input, to.0, to.1),
            ];
            let issued = self.issue_as_one(NAME, &messages, vec![output], None, waiting);
            Self::after(hooked, issued)
        };
        #[cfg(not(target_family = "wasm"))]
        if let Some(wrapper) = &self.wrapper {
            return wrapper.run(self, self.epoch(), (NAME, outputs), issue);
        }
        issue()
    }
}
