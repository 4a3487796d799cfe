//! Functions of a language as reduction operators, where code of the language does not run on any
//! thread: what is to be combined becomes a task, as for backends. Knows no language.

use std::sync::Arc;

use super::custom_backend::{BackendTask, TaskCarrier};
use crate::generated::error::Error;
use crate::request::{Combine, CustomReduction, ReductionTask};

/// An operator whose function has the number `function` in the language, with tasks that `carrier`
/// takes: `combine`, whose inputs are the tensors of all ranks in their order, and whose output
/// gets the result. The backend of the task is what messages call the operation.
pub fn register(function: u32, carrier: Arc<dyn TaskCarrier>) -> CustomReduction {
    CustomReduction::foreign(Carried { function, carrier })
}

struct Carried {
    function: u32,
    carrier: Arc<dyn TaskCarrier>,
}

impl Combine for Carried {
    fn combine(&self, reduction: ReductionTask) {
        let mut task = BackendTask::new(reduction.title(), self.function.into(), "combine");
        task.inputs = reduction.operands().iter().map(|it| it.region().clone()).collect();
        let Some(first) = reduction.operands().first().cloned() else { return };
        task.dtype = first.dtype();
        task.outputs.push(first.region().clone());
        task.on_end(move |result| match result {
            Ok(()) => reduction.end_with(&first),
            Err(Error::Backend { message, .. }) => reduction.fail(message),
            Err(error) => reduction.fail(&error.to_string()),
        });
        self.carrier.carry(task);
    }
}
