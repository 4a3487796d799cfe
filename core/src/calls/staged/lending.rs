//! Operations in the language's own memory, for as long as none of its code runs: nothing is copied
//! if they are over by then. Of those that are not, what they have goes on as a copy. Knows no
//! language.

use super::operation::Operation;
use super::{CallerMemory, StagedOperation, State, current};
use crate::generated::collective::Collective;
use crate::generated::error::Result;
use crate::tensor::Loan;
use crate::work::Work;

/// The memory that a language lends to one operation.
#[derive(Debug, Default)]
#[must_use = "the memory is given back when this is dropped"]
pub struct Loans(Vec<Loan>);

impl Loans {
    /// Whether nothing was lent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl StagedOperation {
    /// Has the operation, if it is not issued and nothing is copied in yet, work in
    /// `memories` where those can be lent. None of the language's code may run before
    /// [`StagedOperation::give_back`].
    ///
    /// # Errors
    /// As [`StagedOperation::copy_in`].
    pub fn borrow<M: CallerMemory>(&mut self, memories: &[M]) -> Result<Loans> {
        let mut loans = Loans::default();
        if self.bytes_copied_in > 0 || !self.takes_loans() {
            return Ok(loans);
        }
        let reads_elsewhere = self.is_read_by_others();
        let mut bytes_in = 0;
        for (index, staging) in self.tensors.all.iter_mut().enumerate() {
            let is_input = self.inputs.contains(&index);
            let is_used = is_input || self.outputs.contains(&index);
            let is_whole = staging.foreign.as_ref().is_some_and(|foreign| foreign.is_whole());
            if !is_used || !is_whole || (reads_elsewhere && is_input) {
                continue;
            }
            let (memory, _) = current(self.name, memories.get(index), staging)?;
            let Some(loan) = memory.lend(staging.tensor.region()) else { continue };
            loans.0.push(loan);
            bytes_in += if is_input { staging.copied_bytes() } else { 0 };
            staging.is_lent = true;
        }
        self.bytes_copied_in += bytes_in;
        Ok(loans)
    }

    /// Gives back what was lent. What an operation has that is not over goes on as a copy, of which
    /// the outputs are to be copied out.
    pub fn give_back(&mut self, loans: Loans) {
        let is_issued = matches!(self.state, State::Issued(_));
        if self.work().is_some_and(Work::is_success) {
            loans.0.into_iter().for_each(Loan::end_without_copy);
            return;
        }
        self.tensors.all.iter_mut().for_each(|staging| staging.is_lent = false);
        if is_issued {
            drop(loans);
        } else {
            // It has nothing yet.
            self.bytes_copied_in = 0;
            loans.0.into_iter().for_each(Loan::end_without_copy);
        }
    }

    fn takes_loans(&self) -> bool {
        let group = self.group.as_ref();
        matches!(self.state, State::Prepared(_)) && group.is_some_and(|it| it.takes_loans())
    }

    /// Whether other ranks may read the inputs where they lie, whenever that is.
    fn is_read_by_others(&self) -> bool {
        let State::Prepared(Operation::Collective(checked)) = &self.state else { return false };
        matches!(checked.request().collective, Collective::Allgather | Collective::Alltoall)
    }
}
