//! Operations of the group that never end the training loop: what fails in them is known at the
//! vote.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyrank::options::{AllreduceCoalescedOptions, AllreduceOptions};
use polyrank::{DType, Device, Element, Error, OwnedBuffers, ProcessGroup, ReduceOp, Tensor, Work};

use crate::average;
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::shared::{Phase, Shared};

/// How an operation is run in this step.
struct Plan {
    turn: u64,
    /// What the group is asked for.
    op: ReduceOp,
    /// By what a sum is divided here.
    divisor: Option<u32>,
    /// Whether this rank contributes nothing.
    is_neutral: bool,
}

/// An operation of a step: wait for it, or `.await` it; if it is dropped,
/// [`Manager::should_commit`] waits for it. It gives the tensors in any case; if it failed, they
/// are what they were when nothing was sent, and nothing defined otherwise, and that says no. If
/// this rank contributes nothing, what it gave is overwritten also where nothing could be sent.
#[must_use = "the operation is not done before it is waited for"]
pub struct ManagedWork {
    shared: Arc<Shared>,
    turn: u64,
    /// None if nothing was sent.
    work: Option<Work>,
    tensors: Vec<Tensor>,
    divisor: Option<u32>,
}

impl fmt::Debug for ManagedWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Some(work) => write!(formatter, "ManagedWork({work})"),
            None => formatter.write_str("ManagedWork(nothing was sent)"),
        }
    }
}

impl ManagedWork {
    /// Waits for it, and gives the tensors back. Never fails.
    #[must_use]
    pub fn wait(mut self) -> Vec<Tensor> {
        let ended = self.work.as_ref().map(|work| work.wait(None));
        self.end(ended)
    }

    /// As a work of the group, which ends well.
    fn into_work(mut self) -> Work {
        let name = self.work.as_ref().map_or("allreduce", Work::name);
        let Some(first) = self.work.take() else {
            return Work::done(name, self.shared.group.identity(), 0);
        };
        let (shared, turn, divisor) = (self.shared.clone(), self.turn, self.divisor);
        let tensors = std::mem::take(&mut self.tensors);
        let work = first.followed_by(move |ended| {
            match ended {
                Err(cause) => shared.report(Some(turn), shared.of_group(name, cause.clone())),
                Ok(()) => {
                    if let Some(by) = divisor {
                        tensors.iter().for_each(|tensor| average::divide(tensor, by));
                    }
                }
            }
            Ok(())
        });
        // The vote waits for the division, too.
        self.shared.lock().works.push_back(work.clone());
        work
    }

    /// Whether it is done, well or not. Does not block.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.work.as_ref().is_none_or(Work::is_completed)
    }

    fn end(&mut self, ended: Option<Result<(), Error>>) -> Vec<Tensor> {
        let tensors = std::mem::take(&mut self.tensors);
        let work = self.work.take();
        match ended {
            None => {}
            Some(Err(cause)) => {
                let name = work.as_ref().map_or("an operation", Work::name);
                self.shared.report(Some(self.turn), self.shared.of_group(name, cause));
            }
            Some(Ok(())) => {
                // What holds the tensors besides would have them copied.
                drop(work.map(Work::into_result));
                if let Some(by) = self.divisor {
                    tensors.iter().for_each(|tensor| average::divide(tensor, by));
                }
            }
        }
        tensors
    }
}

impl Drop for ManagedWork {
    fn drop(&mut self) {
        let (Some(work), Some(by)) = (self.work.take(), self.divisor) else { return };
        let mut state = self.shared.lock();
        if state.turn == self.turn {
            // The program may have other views of what is a sum now.
            state.undivided.push((work, std::mem::take(&mut self.tensors), by));
        }
    }
}

impl Future for ManagedWork {
    type Output = Vec<Tensor>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<Tensor>> {
        let ended = match self.work.as_mut().map(|work| Pin::new(work).poll(context)) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(ended)) => Some(ended),
            None => None,
        };
        Poll::Ready(self.end(ended))
    }
}

impl Manager {
    /// Reduces over the replicas that participate, in place. Waits for the quorum first. If
    /// anything has failed in this step, it returns at once, and `elements` stay as they are. If it
    /// fails itself, they may be anything.
    ///
    /// `AVG` is the sum divided by [`Manager::num_participants`]. A rank that does not participate
    /// contributes nothing, and has the result, too.
    ///
    /// # Errors
    /// None of the group or the network: those are kept for [`Manager::should_commit`]. What is
    /// wrong with the call itself, in each step alike: [`ManagerError::AverageOfIntegers`],
    /// [`ManagerError::Call`]. The step is not committed then, either. [`ManagerError::Order`]
    /// outside a step.
    pub fn allreduce<T: Element>(
        &self,
        elements: &mut [T],
        op: ReduceOp,
    ) -> Result<(), ManagerError> {
        let kinds = [(T::DTYPE, Device::Cpu)];
        self.shared.check_reduction(op, &kinds)?;
        let Some(plan) = self.shared.plan(op, &kinds) else { return Ok(()) };
        if plan.divisor.is_none() && !plan.is_neutral {
            let options = AllreduceOptions::default().reduce_op(plan.op);
            let ended = self.shared.group.allreduce(elements, options);
            return ended.or_else(|cause| self.shared.failed(plan.turn, "allreduce", cause));
        }
        let tensor = Tensor::from(elements.to_vec());
        let work = self.shared.issue(plan, vec![tensor], |group, op, tensors| {
            group.allreduce_async(tensors, AllreduceOptions::default().reduce_op(op))
        })?;
        let turn = work.turn;
        let result = work.wait().swap_remove(0).into_vec::<T>();
        // It was made of such elements, on the host.
        let result = result
            .or_else(|cause| self.shared.failed(turn, "allreduce", cause).map(|()| Vec::new()))?;
        if self.errored().is_none() && result.len() == elements.len() {
            elements.copy_from_slice(&result);
        }
        Ok(())
    }

    /// As [`Manager::allreduce`], of tensors that the operation owns until it is done.
    ///
    /// # Errors
    /// As [`Manager::allreduce`].
    pub fn allreduce_async(
        &self,
        tensors: impl OwnedBuffers,
        options: AllreduceOptions,
    ) -> Result<ManagedWork, ManagerError> {
        let tensors = tensors.into_tensors();
        self.shared.check_reduction(options.reduce_op, &kinds_of(&tensors))?;
        self.shared.reduce(tensors, options.reduce_op, |group, op, tensors| {
            group.allreduce_async(tensors, options.reduce_op(op))
        })
    }

    /// As [`Manager::allreduce_async`], each tensor for itself, in one operation.
    ///
    /// # Errors
    /// As [`Manager::allreduce`].
    pub fn allreduce_coalesced_async(
        &self,
        tensors: impl OwnedBuffers,
        options: AllreduceCoalescedOptions,
    ) -> Result<ManagedWork, ManagerError> {
        let tensors = tensors.into_tensors();
        self.shared.check_reduction(options.reduce_op, &kinds_of(&tensors))?;
        self.shared.reduce(tensors, options.reduce_op, |group, op, tensors| {
            group.allreduce_coalesced_async(tensors, options.reduce_op(op))
        })
    }

    /// Any operation of the group, as part of this step: `begin` issues it. It is not called if
    /// anything has failed in this step. What a rank contributes that does not participate is up to
    /// the program: [`Manager::is_participating`].
    ///
    /// # Errors
    /// As [`Manager::allreduce`].
    pub fn managed(
        &self,
        begin: impl FnOnce(&ProcessGroup) -> polyrank::Result<Work>,
    ) -> Result<ManagedWork, ManagerError> {
        self.shared.in_step()?;
        let Some((turn, ..)) = self.shared.ready() else {
            return Ok(self.shared.nothing(0, Vec::new()));
        };
        match begin(&self.shared.group) {
            Ok(work) => {
                let tensors = work.result();
                Ok(self.shared.begun(turn, work, tensors, None))
            }
            Err(cause) => {
                self.shared.failed(turn, "an operation", cause)?;
                Ok(self.shared.nothing(turn, Vec::new()))
            }
        }
    }
}

fn kinds_of(tensors: &[Tensor]) -> Vec<(DType, Device)> {
    tensors.iter().map(|tensor| (tensor.dtype(), tensor.device())).collect()
}

impl Shared {
    /// As [`Manager::allreduce_async`], as a work that ends well whatever becomes of it. Until
    /// there is a quorum the operation waits in a queue, not the caller.
    pub(crate) fn allreduce_work(
        self: &Arc<Self>,
        tensors: Vec<Tensor>,
        op: ReduceOp,
        is_coalesced: bool,
    ) -> Result<Work, ManagerError> {
        self.check_reduction(op, &kinds_of(&tensors))?;
        let mut state = self.lock();
        if !state.is_on_its_way() {
            drop(state);
            return Ok(self.reduce_any(tensors, op, is_coalesced)?.into_work());
        }
        let (work, end) = Work::ending_with("allreduce", self.group.identity());
        if state.is_closed {
            return Ok(work);
        }
        state.works.push_back(work.clone());
        state.queued.push_back(Box::new(move |shared| {
            // What was wrong with it has been reported.
            if let Ok(managed) = shared.reduce_any(tensors, op, is_coalesced) {
                managed.into_work().on_end(move || drop(end));
            }
        }));
        Ok(work)
    }

    /// Reduces tensors that [`Shared::check_reduction`] has seen, each for itself or together.
    fn reduce_any(
        self: &Arc<Self>,
        tensors: Vec<Tensor>,
        op: ReduceOp,
        is_coalesced: bool,
    ) -> Result<ManagedWork, ManagerError> {
        self.reduce(tensors, op, |group, op, tensors| match is_coalesced {
            true => {
                let options = AllreduceCoalescedOptions::default().reduce_op(op);
                group.allreduce_coalesced_async(tensors, options)
            }
            false => group.allreduce_async(tensors, AllreduceOptions::default().reduce_op(op)),
        })
    }

    /// As [`Shared::reduce_any`], as `begin` does it.
    fn reduce(
        self: &Arc<Self>,
        tensors: Vec<Tensor>,
        op: ReduceOp,
        begin: impl FnOnce(&ProcessGroup, ReduceOp, Vec<Tensor>) -> polyrank::Result<Work>,
    ) -> Result<ManagedWork, ManagerError> {
        match self.plan(op, &kinds_of(&tensors)) {
            Some(plan) => self.issue(plan, tensors, begin),
            None => Ok(self.nothing(0, tensors)),
        }
    }

    fn issue(
        self: &Arc<Self>,
        plan: Plan,
        tensors: Vec<Tensor>,
        begin: impl FnOnce(&ProcessGroup, ReduceOp, Vec<Tensor>) -> polyrank::Result<Work>,
    ) -> Result<ManagedWork, ManagerError> {
        let Plan { turn, op, divisor, is_neutral } = plan;
        if is_neutral {
            // The group refuses what may not be written.
            for tensor in tensors.iter().filter(|tensor| !tensor.is_read_only()) {
                // `plan` refuses operators without one.
                let Some(element) = average::neutral(op, tensor.dtype()) else { continue };
                average::fill(tensor, &element);
            }
        }
        match begin(&self.group, op, tensors.clone()) {
            Ok(work) => Ok(self.begun(turn, work, tensors, divisor)),
            Err(cause) => {
                self.failed(turn, "allreduce", cause)?;
                Ok(self.nothing(turn, tensors))
            }
        }
    }

    /// Refuses, in a step, what no step reduces.
    fn check_reduction(&self, op: ReduceOp, kinds: &[(DType, Device)]) -> Result<(), ManagerError> {
        self.in_step()?;
        let indivisible = kinds.iter().find(|(dtype, _)| !average::is_divisible(*dtype));
        if let (ReduceOp::Avg, Some((dtype, _))) = (op, indivisible) {
            return self.refuse(ManagerError::AverageOfIntegers { dtype: dtype.name() });
        }
        let refused = kinds.iter().find(|(dtype, _)| !op.supports(*dtype));
        if let Some((dtype, _)) = refused {
            let (reduce_op, dtype) = (op.name().to_owned(), dtype.name().to_owned());
            let error = Error::UnsupportedDType { reduce_op, dtype };
            return self.refuse(ManagerError::Call(Box::new(error)));
        }
        if average::neutral(op, DType::F32).is_none() {
            let operation = format!(
                "{} in a manager's allreduce, where a rank may have nothing to contribute: reduce \
                 by managed(), and see is_participating()",
                op.name()
            );
            let who = "polyrank-replicas".to_owned();
            return self
                .refuse(ManagerError::Call(Box::new(Error::Unsupported { who, operation })));
        }
        Ok(())
    }

    /// How this step reduces tensors of these kinds; none if it is lost already.
    fn plan(&self, op: ReduceOp, kinds: &[(DType, Device)]) -> Option<Plan> {
        let (turn, is_participating, participants) = self.ready()?;
        // The group divides by as many as it has.
        let is_exact = participants == self.group.size();
        let divides = op == ReduceOp::Avg && !is_exact;
        let is_on_device = kinds.iter().any(|(_, device)| *device != Device::Cpu);
        if is_on_device && (divides || !is_participating) {
            let why = "tensors of devices cannot be reduced in a step in which a replica does not \
                       participate: copy them to the host, or set use_async_quorum to false";
            self.report(Some(turn), ManagerError::Reported(why.to_owned()));
            return None;
        }
        let (op, divisor) = match divides {
            true => (ReduceOp::Sum, Some(participants)),
            false => (op, None),
        };
        Some(Plan { turn, op, divisor, is_neutral: !is_participating })
    }

    /// The step, whether this rank participates, and how many do; none if the step is lost.
    fn ready(&self) -> Option<(u64, bool, u32)> {
        if self.lock().error.is_some() {
            return None;
        }
        if let Err(error) = self.wait_quorum() {
            self.report(None, error);
            return None;
        }
        let state = self.lock();
        let ready = (state.turn, state.is_participating(), state.membership.participants);
        state.error.is_none().then_some(ready)
    }

    /// An error outside a step, of which the others need not know.
    fn in_step(&self) -> Result<(), ManagerError> {
        self.unless_own_thread()?;
        let state = self.lock();
        match state.phase {
            _ if state.is_closed => Err(self.closed()),
            Phase::Unasked => Err(ManagerError::Order(
                "call start_quorum before the operations of a step".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// The call is wrong: nothing is sent, and the step is not committed.
    fn refuse<T>(&self, error: ManagerError) -> Result<T, ManagerError> {
        self.report(None, error.clone());
        Err(error)
    }

    /// An operation failed: an error of the step, or of the call.
    fn failed(&self, turn: u64, name: &str, cause: Error) -> Result<(), ManagerError> {
        let is_of_call = matches!(
            cause,
            Error::InvalidArgument { .. }
                | Error::InvalidType { .. }
                | Error::UnsupportedDType { .. }
                | Error::Unsupported { .. }
        );
        if is_of_call {
            return self.refuse(ManagerError::Call(Box::new(cause)));
        }
        self.report(Some(turn), self.of_group(name, cause));
        Ok(())
    }

    fn begun(
        self: &Arc<Self>,
        turn: u64,
        work: Work,
        tensors: Vec<Tensor>,
        divisor: Option<u32>,
    ) -> ManagedWork {
        let mut state = self.lock();
        // Those that ended well need not be looked at again.
        while state.works.front().is_some_and(|work| work.is_done() && work.is_success()) {
            state.works.pop_front();
        }
        state.works.push_back(work.clone());
        drop(state);
        ManagedWork { shared: self.clone(), turn, work: Some(work), tensors, divisor }
    }

    fn nothing(self: &Arc<Self>, turn: u64, tensors: Vec<Tensor>) -> ManagedWork {
        ManagedWork { shared: self.clone(), turn, work: None, tensors, divisor: None }
    }
}
