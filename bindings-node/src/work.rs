//! `NativeWork`: an operation on tensors, from its preparation to its result.

use std::time::Instant;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::backend::Waiting;
use polyrank::calls::staged::Staged;

use crate::convert::{Js, describe, raise, views};
use crate::farewell::abandon;
use crate::realm::{Event, realm};
use crate::waiters;

/// An operation on tensors.
#[napi]
pub struct NativeWork {
    id: u32,
    staged: Staged,
}

#[napi]
impl NativeWork {
    /// A number that no other operation of this realm has.
    #[napi(getter)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The method that was called, as the IDL has it.
    #[napi(getter)]
    pub fn name(&self) -> &'static str {
        self.staged.name()
    }

    /// Sequence number in the group; -1 before it is issued.
    #[napi(getter)]
    pub fn sequence(&self) -> f64 {
        self.staged.work().map_or(-1.0, |work| work.sequence() as f64)
    }

    /// The limit of the operation.
    #[napi(getter)]
    pub fn timeout_ms(&self) -> f64 {
        self.staged.timeout().as_secs_f64() * 1000.0
    }

    /// A number that all operations of its group have, and no others; 0 for no group.
    #[napi(getter)]
    pub fn group(&self) -> f64 {
        self.staged.group().map_or(0.0, |group| group.identity() as f64)
    }

    /// Positions of the tensors that are written.
    #[napi(getter)]
    pub fn outputs(&self) -> Vec<u32> {
        self.staged.outputs().iter().map(|&position| position as u32).collect()
    }

    /// Whether it is issued.
    #[napi(getter)]
    pub fn issued(&self) -> bool {
        self.staged.is_issued()
    }

    /// Copies about `budget` bytes in; bytes that are still to be copied.
    #[napi]
    pub fn copy_in(&mut self, env: Env, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
        let views = views(Js::of(tensors))?;
        let left = self.staged.copy_in(&views, budget as usize);
        left.map(|left| left as f64).map_err(|error| raise(env, &error))
    }

    /// Issues it, once everything is copied in.
    #[napi]
    pub fn issue(&mut self, env: Env) -> Result<()> {
        self.go(env)
    }

    /// Whether it is done; moves it once, without waiting.
    #[napi]
    pub fn is_done(&self) -> bool {
        match self.staged.work() {
            Some(work) => work.is_completed(),
            None => self.staged.is_issued(),
        }
    }

    /// Has the realm's listener told of it once it is done.
    #[napi]
    pub fn watch(&self, env: Env) -> Result<()> {
        let realm = realm(env)?;
        realm.expect_event(env);
        let (mailbox, id) = (realm.mailbox.clone(), self.id);
        match self.staged.work() {
            Some(work) => work.on_done(move |_| mailbox.send(Event::Completed(id))),
            None => mailbox.send(Event::Completed(id)),
        }
        Ok(())
    }

    /// What it failed with.
    #[napi]
    pub fn error<'env>(&self, env: Env) -> Result<Unknown<'env>> {
        let error = self.staged.work().and_then(polyrank::Work::error);
        let data = error.map_or_else(|| Js::nothing(env), |error| describe(env, &error));
        Ok(data?.into_unknown())
    }

    /// Copies about `budget` bytes of the result out; bytes that are still to be copied.
    #[napi]
    pub fn copy_out(&mut self, env: Env, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
        let views = views(Js::of(tensors))?;
        let left = self.staged.copy_out(&views, budget as usize);
        left.map(|left| left as f64).map_err(|error| raise(env, &error))
    }

    /// Gives up the copies: nothing is copied any more.
    #[napi]
    pub fn release(&mut self) {
        self.staged.release();
    }

    /// The rank, in the group, that sent what was received.
    #[napi]
    pub fn source_rank(&self) -> Option<u32> {
        self.staged.work().and_then(polyrank::Work::source_rank)
    }
}

impl NativeWork {
    /// An operation that is prepared. It is begun at once if no more than `start_within` bytes are
    /// to be copied in; a negative number is none.
    pub(crate) fn new(
        env: Env,
        staged: Staged,
        tensors: Js<'_>,
        start_within: f64,
    ) -> Result<NativeWork> {
        let mut work = NativeWork { id: realm(env)?.next_id(), staged };
        let bytes = work.staged.bytes_in();
        if work.staged.is_issued() || bytes as f64 > start_within {
            return Ok(work);
        }
        if bytes > 0 {
            let copied = work.staged.copy_in(&views(tensors)?, bytes);
            copied.map_err(|error| raise(env, &error))?;
        }
        work.go(env)?;
        Ok(work)
    }

    /// Issues it, and sees to it that somebody moves it on.
    fn go(&mut self, env: Env) -> Result<()> {
        let start = Instant::now();
        // Nobody else is woken for what is done in a moment.
        self.staged.issue(Waiting::Soon).map_err(|error| raise(env, &error))?;
        let (Some(work), Some(group)) = (self.staged.work(), self.staged.group()) else {
            return Ok(());
        };
        if work.is_completed() {
            return Ok(());
        }
        let patience = realm(env)?.patience.clone();
        if !waiters::is_attended(group) && work.wait_slice(patience.limit()).is_some() {
            patience.learn(start);
            return Ok(());
        }
        work.on_done(move |_| patience.learn(start));
        waiters::attend(group, work.clone());
        Ok(())
    }
}

impl Drop for NativeWork {
    fn drop(&mut self) {
        // The handle on the group may be gone already.
        if let (Some(group), Some(work)) = (self.staged.group(), self.staged.work())
            && !work.is_completed()
        {
            abandon(group.clone());
        }
    }
}
