//! Operations whose operator is a function of the program. Knows no backend and no language.
//!
//! The tensors of all ranks come to where the result is needed: to every rank for an allreduce, to
//! the root for a reduce, and each rank's blocks to it for a reduce-scatter; to every rank for a
//! scan, of which each combines the first. There the function combines them, in the order of the
//! ranks, outside every lock, on the thread that found the operation done, or where the function's
//! language runs. So all schedules keep the order, and the function sees whole tensors; an
//! allreduce takes the memory of all ranks' tensors on each.

use std::sync::{Arc, Weak};

use super::check::CheckedOperation;
use super::memberships::Memberships;
use super::messages::to_read;
use super::stage::agreed;
use super::{Inner, ProcessGroup};
use crate::backend::{Backend, Call, IssueOptions, IssuedOperation};
use crate::completion::{Completion, guarded};
use crate::generated::collective::Collective;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::request::{CustomReduction, Request};
use crate::tensor::{Device, Tensor};
use crate::work::Work;

/// What is left to do when the tensors of all ranks are here.
struct Combination {
    reduction: CustomReduction,
    /// Those of all ranks, where this one needs the result.
    operands: Vec<Tensor>,
    /// The tensor that gets the result.
    result: Option<Tensor>,
}

/// Whom to tell if the function fails.
#[derive(Clone)]
struct Place {
    members: Weak<Memberships>,
    backend: Weak<dyn Backend>,
    name: &'static str,
    group: String,
    rank: u32,
}

/// The function of a request that has one.
///
/// # Errors
/// [`Error::InvalidArgument`] if nobody has it any more.
pub(super) fn reduction_of(request: &Request) -> Result<Option<CustomReduction>> {
    let ReduceOp::Custom(op) = request.reduce_op else { return Ok(None) };
    if !request.collective.facts().reduces {
        return Ok(None);
    }
    op.reduction().map(Some).ok_or_else(|| Error::InvalidArgument {
        message: format!(
            "{}: the custom operator has no function: it is made by one, and must be kept until \
             the operation is called",
            request.name
        ),
    })
}

impl ProcessGroup {
    /// Issues checked operations of `request` on `backend`, whose operator is `reduction`.
    pub(super) fn issue_custom(
        &self,
        members: &Inner,
        (request, operations): (&Request, Vec<CheckedOperation>),
        reduction: &CustomReduction,
        (backend, options): (Arc<dyn Backend>, IssueOptions),
    ) -> Result<Work> {
        let mut calls = Vec::with_capacity(operations.len());
        let mut combinations = Vec::with_capacity(operations.len());
        let mut outputs = Vec::new();
        for operation in operations {
            let is_on_device = request.tensors().any(|tensor| tensor.device() != Device::Cpu);
            let reduces = backend.capabilities().reduces(request.reduce_op, operation.dtype);
            if is_on_device || !reduces {
                return Err(Error::Unsupported {
                    who: format!("the {} backend", backend.name()),
                    operation: format!("{} with a custom operator", request.name),
                });
            }
            let (mut call, combination) =
                self.stage_custom(members, request, operation, reduction)?;
            outputs.append(&mut call.outputs);
            calls.push(call);
            combinations.push(combination);
        }
        let label = self.request_label(request);
        let issued = backend.together(calls, options)?;
        let place = Place {
            members: Arc::downgrade(&self.inner),
            backend: Arc::downgrade(&backend),
            name: request.name,
            group: self.group_name().to_owned(),
            rank: members.rank,
        };
        let followed = issued.iter().zip(combinations);
        let endings =
            followed.map(|(issued, combination)| combination.follow(issued, place.clone()));
        let endings = endings.collect();
        let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
        Ok(Work::followed(label, issued, endings, outputs, Vec::new()))
    }

    /// Lays out one operation: what this rank gives, and room for what it gets of all.
    fn stage_custom(
        &self,
        members: &Inner,
        request: &Request,
        checked: CheckedOperation,
        reduction: &CustomReduction,
    ) -> Result<(Call, Combination)> {
        let CheckedOperation { dtype, input, output, local, local_lists } = checked;
        if !(local.is_empty() && local_lists.is_empty()) {
            return Err(Error::Unsupported {
                who: "a custom operator".into(),
                operation: format!("{} of several tensors at once", request.name),
            });
        }
        let agreed = agreed(request, dtype, &input, &output);
        // Of a prefix, the tensors of the other ranks come, too, and are not looked at.
        let reduced = request.collective.reduced_ranks(members.rank, members.size());
        let needs_result = request.collective != Collective::Reduce || members.rank == request.root;
        let given = if input.is_empty() { &output } else { &input };
        let result = output.first().filter(|_| needs_result).cloned();
        let operands = result.iter().flat_map(|result| (0..members.size()).map(move |_| result));
        let operands = operands.map(|like| Tensor::zeros(like.dtype(), like.shape()));
        let mut operands = operands.collect::<Result<Vec<_>>>()?;
        let call = Call {
            agreed,
            name: request.name,
            input: given.iter().map(|it| to_read(request.name, it)).collect::<Result<_>>()?,
            output: operands.iter().map(|operand| operand.region().clone()).collect(),
            finish: None,
            outputs: output,
        };
        operands.truncate(reduced as usize);
        let result = result.filter(|_| reduced > 0);
        Ok((call, Combination { reduction: reduction.clone(), operands, result }))
    }
}

impl Combination {
    /// What ends when the tensors were combined that `issued` brings.
    fn follow(self, issued: &IssuedOperation, place: Place) -> Arc<Completion> {
        let ending = Arc::new(Completion::new());
        let (ended, sequence) = (ending.clone(), issued.sequence);
        issued.completion.on_end(move |result| match (result, &self.result) {
            (Ok(()), Some(_)) => self.run(place, sequence, ended),
            _ => ended.complete(result.clone()),
        });
        ending
    }

    fn run(self, place: Place, sequence: u64, ending: Arc<Completion>) {
        let Combination { reduction, operands, result } = self;
        let title = format!(
            "{} (operation {sequence} of group '{}') on rank {}",
            place.name, place.group, place.rank
        );
        reduction.combine(operands, title, move |combined| {
            let outcome = match combined {
                Ok(region) => {
                    result.iter().for_each(|result| result.copy_from(region));
                    Ok(())
                }
                Err(error) => {
                    place.abort(sequence, &error);
                    Err(error)
                }
            };
            ending.complete(outcome);
        });
    }
}

impl Place {
    /// Tells all ranks why this one has no result.
    fn abort(&self, sequence: u64, error: &Error) {
        if let Some(members) = self.members.upgrade() {
            members.hooks.note_own_end();
        }
        if let Some(backend) = self.backend.upgrade() {
            guarded(|| backend.abort_from(Some(sequence), &error.to_string()));
        }
    }
}
