//! Operations in the language's own memory, for as long as none of its code runs: nothing is copied
//! if they are over by then. Of those that are not, what they have goes on as a copy, and other
//! ranks that may read an input where it lies are told where that is. Knows no language.

use super::{CallerMemory, StagedOperation, State, current};
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
        for index in 0..self.tensors.all.len() {
            let staging = &self.tensors.all[index];
            let region = staging.tensor.region();
            let is_whole = staging.foreign.as_ref().is_some_and(|foreign| foreign.is_whole());
            if is_whole && self.is_used(index) {
                let (memory, _) = current(self.name, memories.get(index), staging)?;
                loans.0.extend(memory.lend(region));
            }
        }
        if !loans.is_empty() {
            self.note_lent(memories)?;
        }
        Ok(loans)
    }

    /// Notes which tensors lie in memory that is lent: what was lent for one may be a part of what
    /// was lent for another, as the copies would share memory, too.
    fn note_lent<M: CallerMemory>(&mut self, memories: &[M]) -> Result<()> {
        for index in 0..self.tensors.all.len() {
            let (staging, is_used) = (&self.tensors.all[index], self.is_used(index));
            if is_used && staging.tensor.region().is_on_loan() {
                current(self.name, memories.get(index), staging)?;
                let is_input = self.inputs.contains(&index);
                self.bytes_copied_in += if is_input { staging.copied_bytes() } else { 0 };
                self.tensors.all[index].is_lent = true;
            }
        }
        Ok(())
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
            if let (Some(group), Some(work)) = (&self.group, self.work()) {
                group.note_moved(work.sequence());
            }
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

    fn is_used(&self, index: usize) -> bool {
        self.inputs.contains(&index) || self.outputs.contains(&index)
    }
}
