//! Works that are made of others: with something that follows, without their tensors. Knows no
//! operation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};

use super::{Inner, Work};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::generated::error::Result;
#[cfg(not(target_family = "wasm"))]
use crate::tensor::Tensor;

/// Ends a work well when it is dropped.
#[derive(Debug)]
pub struct WorkEnd(Arc<Completion>);

impl Drop for WorkEnd {
    fn drop(&mut self) {
        self.0.complete(Ok(()));
    }
}

impl Work {
    /// The work of an operation of this name that is still to be issued, in the group of this
    /// identity, and what ends it. Others move what it waits for.
    pub fn ending_with(name: &'static str, group: u64) -> (Work, WorkEnd) {
        let completion = Arc::new(Completion::new());
        let end = WorkEnd(completion.clone());
        let inner = Inner::of_ending(name, 0, completion);
        (Work { name, sequence: 0, group, inner: Some(Arc::new(inner)) }, end)
    }

    /// The work of an operation of this name that is not run and ended well, in the group of this
    /// identity; its result is in these tensors.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn of_nothing(name: &'static str, group: u64, outputs: Vec<Tensor>) -> Work {
        let completion = Arc::new(Completion::new());
        completion.complete(Ok(()));
        let inner = Inner::of_ending(name, 0, completion);
        let inner = Inner { outputs: Mutex::new(outputs), ..inner };
        Work { name, sequence: 0, group, inner: Some(Arc::new(inner)) }
    }

    /// The same operation, which is done when `follow` has run at its end, and ends as that says.
    /// It is called once, on any thread, as the callback of [`Work::on_done`], and may change the
    /// tensors; if it panics, the work ends well. The given work says how the operation itself
    /// ended.
    pub fn followed_by(
        &self,
        follow: impl FnOnce(&Result<()>) -> Result<()> + Send + 'static,
    ) -> Work {
        let ending = Arc::new(Completion::new());
        // Whatever becomes of `follow`, nobody waits for ever.
        let end = WorkEnd(ending.clone());
        self.on_outcome(move |ended| end.0.complete(follow(ended)));
        let inner = match &self.inner {
            None => Inner::of_ending(self.name, self.sequence, ending),
            Some(first) => Inner {
                endings: vec![ending.clone()],
                whole: ending,
                ends_by_itself: true,
                outputs: Mutex::new(self.result()),
                ..first.without_outputs()
            },
        };
        Work { inner: Some(Arc::new(inner)), ..*self }
    }

    /// The same operation, whose [`Work::result`] is empty: its tensors may be borrowed.
    pub(crate) fn without_tensors(&self) -> Work {
        let inner = self.inner.as_ref().map(|inner| Arc::new(inner.without_outputs()));
        Work { inner, ..*self }
    }
}

impl Inner {
    fn without_outputs(&self) -> Inner {
        Inner {
            name: self.name,
            began: self.began,
            sequence: self.sequence,
            parts: self.parts.clone(),
            endings: self.endings.clone(),
            whole: self.whole.clone(),
            ends_by_itself: self.ends_by_itself,
            outputs: Mutex::default(),
            devices: self.devices.clone(),
            losses: self.losses.clone(),
            comm_name: self.comm_name.clone(),
            is_hastened: AtomicBool::new(false),
            #[cfg(feature = "tcp")]
            is_failure_told: AtomicBool::new(false),
            #[cfg(feature = "tcp")]
            recorder: self.recorder.clone(),
        }
    }

    /// Of what is done when `ending` is, which others complete.
    fn of_ending(name: &'static str, sequence: u64, ending: Arc<Completion>) -> Inner {
        Inner {
            name,
            began: Instant::now(),
            sequence,
            parts: Vec::new(),
            endings: vec![ending.clone()],
            whole: ending,
            ends_by_itself: true,
            outputs: Mutex::default(),
            devices: Vec::new(),
            losses: OnceLock::new(),
            comm_name: None,
            is_hastened: AtomicBool::new(false),
            #[cfg(feature = "tcp")]
            is_failure_told: AtomicBool::new(false),
            #[cfg(feature = "tcp")]
            recorder: None,
        }
    }
}
