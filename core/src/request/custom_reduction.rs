//! Reduction operators that a program brings: a function of two tensors, and the number by which an
//! operation finds it. Knows neither groups nor languages.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crate::cause::Cause;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::sorted::SortedMap;
use crate::tensor::{Element, Region, Tensor};

/// Which function of the program combines elements: [`CustomReduction::op`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CustomOp(u32);

/// A reduction operator that is a function of the program.
///
/// The tensors of all ranks are combined in the order of the ranks, whole: first those of ranks 0
/// and 1, then what came of that and rank 2's, and so on. So the function need not commute, nor
/// even be associative. It must give the same on all ranks, which each pass an operator of their
/// own: [`CustomReduction::op`]. A clone is the same operator; operations can be called as long as
/// there is one.
///
/// ```
/// # use polyrank::store::HashStore;
/// # use polyrank::{CustomReduction, ProcessGroup};
/// # use std::sync::Arc;
/// # let store = Arc::new(HashStore::new());
/// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
/// let farthest = CustomReduction::new(|lower: &[f32], upper: &mut [f32]| {
///     for (upper, lower) in upper.iter_mut().zip(lower) {
///         if lower.abs() >= upper.abs() {
///             *upper = *lower;
///         }
///     }
/// });
/// let mut values = [1.0f32, -2.0];
/// group.allreduce(&mut values, farthest.op())?;
/// # Ok::<(), polyrank::Error>(())
/// ```
#[derive(Clone)]
pub struct CustomReduction(Arc<Registered>);

struct Registered {
    number: u32,
    /// The only element type that it takes, if there is but one.
    dtype: Option<DType>,
    combine: Box<dyn Combine>,
}

/// Combines the tensors of all ranks.
pub trait Combine: Send + Sync + 'static {
    /// Combines `task.operands()`, and ends the task, now or later. Called outside every lock, on
    /// the thread that moves the operation.
    fn combine(&self, task: ReductionTask);

    /// What a language keeps with it.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

/// The tensors of all ranks, to be combined. Dropping it fails the operation.
pub struct ReductionTask {
    operands: Vec<Tensor>,
    title: String,
    end: Option<EndOfReduction>,
}

type EndOfReduction = Box<dyn FnOnce(Result<&Region>) + Send>;

static KNOWN: ProcessMutex<Known> = ProcessMutex::new(Known { last: 0, all: SortedMap::new() });

struct Known {
    last: u32,
    all: SortedMap<u32, Weak<Registered>>,
}

impl CustomOp {
    /// That of no function.
    pub const NONE: CustomOp = CustomOp(0);

    /// The number, which no other operator of this process has.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The operator of this number.
    pub fn of_number(number: u32) -> CustomOp {
        CustomOp(number)
    }

    /// The operator, if anybody still has it.
    pub fn reduction(self) -> Option<CustomReduction> {
        known().all.get(&self.0).and_then(Weak::upgrade).map(CustomReduction)
    }
}

impl CustomReduction {
    /// `combine(lower, upper)` leaves in `upper` what the elements of lower ranks, `lower`, and of
    /// the next rank, `upper`, become. Both have all elements of the tensors. Only for tensors of
    /// this element type. A panic fails the operation.
    pub fn new<T: Element>(
        combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static,
    ) -> CustomReduction {
        let combine = move |lower: &Tensor, upper: &Tensor| {
            let changed = upper.region().change_elements(lower.region(), &combine);
            changed.map(|()| upper.clone()).ok_or_else(|| Error::ReductionFailed {
                message: "its operands do not lie as elements do".to_owned(),
                cause: Cause::default(),
            })
        };
        Self::register(Some(T::DTYPE), Box::new(OfTensors(combine)))
    }

    /// `combine(lower, upper)` returns what the tensors of lower ranks, `lower`, and of the next
    /// rank, `upper`, become: a tensor of the same element type and size. An error of it is that of
    /// the operation.
    pub fn of_tensors(
        combine: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> CustomReduction {
        Self::register(None, Box::new(OfTensors(combine)))
    }

    /// One of another language.
    #[doc(hidden)]
    pub fn foreign(combine: impl Combine) -> CustomReduction {
        Self::register(None, Box::new(combine))
    }

    fn register(dtype: Option<DType>, combine: Box<dyn Combine>) -> CustomReduction {
        let mut known = known();
        known.last += 1;
        let number = known.last;
        let registered = Arc::new(Registered { number, dtype, combine });
        known.all.insert(number, Arc::downgrade(&registered));
        CustomReduction(registered)
    }

    /// The operator, to be passed to operations.
    pub fn op(&self) -> ReduceOp {
        ReduceOp::Custom(CustomOp(self.0.number))
    }

    /// The number of the operator.
    #[doc(hidden)]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// How many clones of it there are, operations in flight among them.
    #[doc(hidden)]
    pub fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether it takes elements of this type.
    pub(crate) fn takes(&self, dtype: DType) -> bool {
        self.0.dtype.is_none_or(|only| only == dtype)
    }

    /// What a language keeps with it.
    #[doc(hidden)]
    pub fn kept<T: 'static>(&self) -> Option<&T> {
        self.0.combine.as_any()?.downcast_ref()
    }

    /// Combines `operands`, those of all ranks in their order, and calls `end` with the result. In
    /// words, the operation is `title`. A panic of the function fails it.
    pub(crate) fn combine(
        &self,
        operands: Vec<Tensor>,
        title: String,
        end: impl FnOnce(Result<&Region>) + Send + 'static,
    ) {
        operands.iter().for_each(|operand| operand.region().tidy_elements(operand.dtype()));
        let task = ReductionTask { operands, title, end: Some(Box::new(end)) };
        // The task is dropped by a panic, which ends it.
        let _ = catch_unwind(AssertUnwindSafe(|| match task.operands.first().cloned() {
            Some(first) if task.operands.len() == 1 || first.elements() == 0 => {
                task.end_with(&first);
            }
            _ => self.0.combine.combine(task),
        }));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        known().all.remove(&self.number);
    }
}

impl ReductionTask {
    /// The tensors of all ranks, in the order of the ranks: contiguous copies, at least two, with
    /// elements.
    pub fn operands(&self) -> &[Tensor] {
        &self.operands
    }

    /// Which operation it is for, on which rank.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// This is what they became: a contiguous tensor of the same element type and size.
    pub fn end_with(mut self, result: &Tensor) {
        let Some(end) = self.end.take() else { return };
        match self.mismatch(result) {
            Some(message) => end(Err(failure(message))),
            None if result.is_contiguous() => end(Ok(result.region())),
            None => end(Ok(result.to_contiguous().region())),
        }
    }

    /// What is wrong with a result.
    fn mismatch(&self, result: &Tensor) -> Option<String> {
        let expected = self.operands.first()?;
        let is_like =
            result.dtype() == expected.dtype() && result.elements() == expected.elements();
        let words = |it: &Tensor| format!("{} {}", it.elements(), it.dtype().name());
        let (came, expected) = (words(result), words(expected));
        let text = || self.message(&format!("it returned {came} where {expected} were expected"));
        (!is_like).then(text)
    }

    /// The function failed with an error of the core.
    pub fn fail_with(mut self, error: Error) {
        if let Some(end) = self.end.take() {
            end(Err(error));
        }
    }

    /// The function failed with what this text says.
    pub fn fail(self, text: &str) {
        self.fail_because(text, Cause::default());
    }

    /// The function failed with what this text says, which its language has as `cause`.
    pub fn fail_because(self, text: &str, cause: Cause) {
        let message = self.message(text);
        self.fail_with(Error::ReductionFailed { message, cause });
    }

    /// The message of the error that an operation ends with whose function failed.
    pub fn message(&self, text: &str) -> String {
        format!("the reduction function of {} failed: {text}", self.title)
    }
}

impl Drop for ReductionTask {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let what = if std::thread::panicking() { "it panicked" } else { "it was given up" };
            end(Err(failure(self.message(what))));
        }
    }
}

/// A function of Rust.
struct OfTensors<F>(F);

impl<F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static> Combine for OfTensors<F> {
    fn combine(&self, task: ReductionTask) {
        let mut operands = task.operands().iter();
        let Some(first) = operands.next() else { return };
        let combined = operands.try_fold(first.clone(), |lower, upper| {
            let result = (self.0)(&lower, upper)?;
            match task.mismatch(&result) {
                Some(message) => Err(failure(message)),
                None if result.is_contiguous() => Ok(result),
                None => Ok(result.to_contiguous()),
            }
        });
        match combined {
            Ok(result) => task.end_with(&result),
            Err(error) => task.fail_with(error),
        }
    }
}

fn failure(message: String) -> Error {
    Error::ReductionFailed { message, cause: Cause::default() }
}

fn known() -> ProcessMutexGuard<'static, Known> {
    KNOWN.lock()
}

impl fmt::Debug for CustomReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomReduction({})", self.0.number)
    }
}

impl fmt::Debug for ReductionTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReductionTask({}, {} operands)", self.title, self.operands.len())
    }
}
