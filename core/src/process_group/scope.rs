//! Borrowed operations that run while the caller continues, as threads do in `std::thread::scope`.
//! Knows no particular collective: the generated methods are in `generated/process_group.rs`.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use crate::generated::error::Result;
use crate::process_group::ProcessGroup;
use crate::request::Request;
use crate::work::Work;

/// Where operations may borrow tensors that outlive the scope. See [`ProcessGroup::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    group: ProcessGroup,
    issued: Mutex<Vec<Work>>,
    /// Invariant in both, as in `std::thread::Scope`: a shorter `'scope` would let a borrow end
    /// before the scope does.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// The handle on an operation that borrows for a scope.
#[must_use = "the operation is not done before the work is waited for, or the scope ends"]
pub struct ScopedWork<'scope> {
    work: Work,
    _scope: PhantomData<&'scope ()>,
}

impl ProcessGroup {
    /// Runs `f` with a scope in which operations borrow their tensors instead of owning them, and
    /// waits at its end until all of them are done. The tensors can be used again afterwards, even
    /// if a [`ScopedWork`] was forgotten: it is the scope that waits.
    ///
    /// # Errors
    /// The first failure of an operation whose work nobody waited for, after `f` returned.
    ///
    /// # Panics
    /// With the panic of `f`, after all operations are done.
    pub fn scope<'env, F, R>(&self, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    {
        let scope = Scope {
            group: self.clone(),
            issued: Mutex::new(Vec::new()),
            _scope: PhantomData,
            _env: PhantomData,
        };
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        let issued = std::mem::take(&mut *lock(&scope.issued));
        let mut failure = Ok(());
        for work in issued {
            failure = failure.and(work.wait(None));
        }
        match result {
            Ok(result) => failure.map(|()| result),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// The group that the scope belongs to.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// Issues `request`, whose tensors are borrowed for `'scope`.
    pub(crate) fn issue(&'scope self, request: Request) -> Result<ScopedWork<'scope>> {
        let work = self.group.issue(request)?;
        lock(&self.issued).push(work.clone());
        Ok(ScopedWork { work, _scope: PhantomData })
    }
}

impl ScopedWork<'_> {
    /// Waits until the operation is done. Its failure is also the scope's.
    ///
    /// # Errors
    /// As [`Work::wait`].
    pub fn wait(&self) -> Result<()> {
        self.work.wait(None)
    }

    /// Whether it is done, well or not.
    pub fn is_completed(&self) -> bool {
        self.work.is_completed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
