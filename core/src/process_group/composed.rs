//! Operations that consist of several others, of which hooks and errors show one. Knows none of
//! them.

use std::future::Future;
use std::time::Duration;

use super::ProcessGroup;
use super::hook_arguments::without_tensors;
use crate::blocking::WaitMode;
use crate::completion::WaitIntent;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
use crate::generated::options::AllgatherOptions;
use crate::request::{Role, TypedCall, tables};
use crate::tensor::{Element, Tensor};
use crate::work::comm_name::CommName;

impl ProcessGroup {
    /// Runs an operation with the hooks of the group, to which it is `name`, as `ALLREDUCE`: its
    /// parts, which run by [`ProcessGroup::run_part`], have none of their own.
    ///
    /// # Errors
    /// Those of `run`, about the operation instead of a part of it; those of a hook.
    pub(crate) async fn composed<T>(
        &self,
        name: &'static str,
        root: i32,
        run: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.composed_of(name, |waiting| without_tensors(root, waiting), run).await
    }

    /// As [`ProcessGroup::composed`], with more that hooks learn.
    ///
    /// # Errors
    /// As [`ProcessGroup::composed`].
    pub(crate) async fn composed_of<'a, T>(
        &self,
        name: &'static str,
        arguments: impl FnOnce(WaitIntent) -> PreHookArgs<'a>,
        run: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        #[cfg(not(target_family = "wasm"))]
        let epoch = self.epoch();
        self.require_members(&name.to_lowercase())?;
        let hooked = self.before(|| {
            let waiting = WaitMode::current().waiting();
            PreHookArgs { name, ..arguments(waiting) }
        })?;
        let operation = name.to_lowercase();
        let run = self.among_members(&operation, run);
        let result = match CommName::current() {
            Some(name) => name.apply_to(run).await,
            None => run.await,
        };
        let result = result.map_err(|error| of_whole(error, &name.to_lowercase()));
        #[cfg(not(target_family = "wasm"))]
        if let (Some(wrapper), Err(error)) = (&self.wrapper, &result) {
            wrapper.note(epoch, error);
        }
        if let Some(hooked) = hooked {
            hooked.ended(result.as_ref().err());
        }
        result
    }

    /// Runs a collective that is a part of another operation, as its caller waits; its number and
    /// its output tensors.
    ///
    /// # Errors
    /// Those of the collective.
    pub(crate) async fn run_part(&self, call: TypedCall) -> Result<(u64, Vec<Tensor>)> {
        let request = self.request(call)?;
        let work = self.issue_unhooked(request, WaitMode::current().waiting())?;
        work.settle().await?;
        Ok((work.sequence(), work.into_result()?))
    }

    /// Has each rank's elements brought to all, as a part of another operation: `all` is room for
    /// those of each rank, which may differ in length.
    ///
    /// # Errors
    /// Those of an allgather.
    pub(crate) async fn all_gather_vecs<T: Element>(
        &self,
        all: Vec<Vec<T>>,
        mine: Vec<T>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Vec<T>>> {
        Ok(self.all_gather_numbered(all, mine, timeout).await?.1)
    }

    /// As [`ProcessGroup::all_gather_vecs`], with the number of the operation.
    pub(crate) async fn all_gather_numbered<T: Element>(
        &self,
        all: Vec<Vec<T>>,
        mine: Vec<T>,
        timeout: Option<Duration>,
    ) -> Result<(u64, Vec<Vec<T>>)> {
        let options = AllgatherOptions { timeout, ..Default::default() };
        let call = TypedCall::new(&tables::PROCESS_GROUP_ALLGATHER, options)
            .tensors(Role::Out, all.into_iter().map(Tensor::from).collect())
            .tensors(Role::In, vec![mine.into()]);
        let (sequence, outputs) = self.run_part(call).await?;
        let lists = outputs.into_iter().map(Tensor::into_vec).collect::<Result<_>>()?;
        Ok((sequence, lists))
    }
}

/// Zeroed memory for as many elements as another rank announces; an error if they are more than
/// there is memory for.
pub(crate) fn room_for<T: Element + Default>(elements: u64) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let length = usize::try_from(elements).unwrap_or(usize::MAX);
    if room.try_reserve_exact(length).is_err() {
        let bytes = elements.saturating_mul(size_of::<T>() as u64);
        let message = format!("not enough memory for {bytes} bytes that another rank sends");
        return Err(Error::InvalidArgument { message });
    }
    room.resize(length, T::default());
    Ok(room)
}

/// `error`, about the operation of this name where it was about a part of it. What the user calls
/// it, behind its name, stays.
pub(crate) fn of_whole(mut error: Error, name: &str) -> Error {
    if let Some(collective) = error.collective_mut() {
        let behind = collective.find(" '").unwrap_or(collective.len());
        collective.replace_range(..behind, name);
    }
    error
}
