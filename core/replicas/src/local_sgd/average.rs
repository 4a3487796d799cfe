//! The average of numbers over the replicas that count.

use polyrank::ReduceOp;
use polyrank::options::AllreduceOptions;

use super::real::Real;
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::operations::ManagedWork;

/// One that is on its way.
pub(super) struct Average {
    numbers: ManagedWork,
    count: ManagedWork,
}

impl Average {
    /// Of `numbers`, which do not count if this replica has taken them from another.
    pub(super) fn begin<T: Real>(
        manager: &Manager,
        mut numbers: Vec<T>,
        counts: bool,
        compress: Option<&str>,
    ) -> Result<Average, ManagerError> {
        if !counts {
            numbers.fill(T::default());
        }
        let mut options = AllreduceOptions::default().reduce_op(ReduceOp::Avg);
        options.compress = compress.map(str::to_owned);
        let numbers = manager.allreduce_async(numbers, options)?;
        let options = AllreduceOptions::default().reduce_op(ReduceOp::Sum);
        let count = manager.allreduce_async(vec![i32::from(counts)], options)?;
        Ok(Average { numbers, count })
    }

    /// None if no replica counted. If anything failed, it may be anything: the vote says so.
    pub(super) fn wait<T: Real>(self, manager: &Manager) -> Option<Vec<T>> {
        let mut numbers = elements::<T>(self.numbers)?;
        let (count, participants) =
            (*elements::<i32>(self.count)?.first()?, manager.num_participants());
        if count == 0 {
            return None;
        }
        if i64::from(count) != i64::from(participants) {
            // The sum was divided by all, of whom some gave zeros.
            let factor = T::from_f64(f64::from(participants) / f64::from(count));
            numbers.iter_mut().for_each(|number| *number = *number * factor);
        }
        Some(numbers)
    }
}

fn elements<T: polyrank::Element>(work: ManagedWork) -> Option<Vec<T>> {
    // It was made of one vector of these elements, on the host.
    work.wait().pop()?.into_vec().ok()
}
