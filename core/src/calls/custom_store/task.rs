//! What a store of another language is asked, and how that is answered. Knows no store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::calls::Answer;
use crate::calls::answer::camel_case;
use crate::clock::Instant;
use crate::completion::Completion;
use crate::generated::error::{Error, Result};
use crate::store::{StoreReply, StoreRequest};

/// What a store of another language is asked.
#[derive(Debug)]
pub struct StoreTask {
    /// The number of the store.
    pub store: u64,
    /// `forget`, or the method, in the IDL's names.
    pub method: &'static str,
    name: String,
    keys: Vec<String>,
    values: Vec<Vec<u8>>,
    /// What is added, or how many come to a barrier.
    amount: i64,
    /// Whether to wait for a value of a queue.
    block: bool,
    /// The limit that the caller gave.
    timeout: Option<Duration>,
    began: Instant,
    pending: PendingAnswer,
    is_ended: AtomicBool,
}

/// Carries tasks to where code of the language runs.
pub trait StoreCarrier: Send + Sync + 'static {
    /// Takes a task, and does not wait. A task that is dropped has failed.
    fn carry(&self, task: StoreTask);
    /// Whether tasks run on this thread alone, so that it must not wait for one.
    fn is_here(&self) -> bool;
}

/// An answer that is awaited.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingAnswer {
    completion: Arc<Completion>,
    reply: Arc<Mutex<Option<StoreReply>>>,
}

impl StoreTask {
    /// `request` as a task for `method`, and its answer.
    pub(super) fn new(
        name: &str,
        store: u64,
        method: &'static str,
        request: &StoreRequest<'_>,
    ) -> (StoreTask, PendingAnswer) {
        let mut task = StoreTask::forget(name, store);
        task.method = method;
        task.keys = keys_of(request);
        let values: &[&[u8]] = match request {
            StoreRequest::Set { value, .. }
            | StoreRequest::Append { value, .. }
            | StoreRequest::QueuePush { value, .. } => &[*value],
            StoreRequest::CompareSet { expected, desired, .. } => &[*expected, *desired],
            StoreRequest::MultiSet { values, .. } => values,
            _ => &[],
        };
        task.values = values.iter().map(|value| value.to_vec()).collect();
        match *request {
            StoreRequest::Add { amount, .. } => task.amount = amount,
            StoreRequest::QueuePop { block, .. } => task.block = block,
            StoreRequest::Wait { timeout, .. } => task.timeout = timeout,
            StoreRequest::Barrier { world_size, timeout, .. } => {
                (task.amount, task.timeout) = (world_size.into(), timeout);
            }
            _ => {}
        }
        let answer = task.pending.clone();
        (task, answer)
    }

    /// Has the language forget a store.
    pub(super) fn forget(name: &str, store: u64) -> StoreTask {
        StoreTask {
            store,
            method: "forget",
            name: name.to_owned(),
            keys: Vec::new(),
            values: Vec::new(),
            amount: 0,
            block: false,
            timeout: None,
            began: Instant::now(),
            pending: PendingAnswer::default(),
            is_ended: AtomicBool::new(false),
        }
    }

    /// What it is, under the number `id`, as a list: that number, the store's, the method, the
    /// keys, the values, what is added, whether to wait, and the limit in ms, -1 where none was
    /// given.
    pub fn parts(&self, id: u32) -> Answer {
        Answer::List(vec![
            Answer::Float(f64::from(id)),
            // Numbers are given one after the other, and never reach 2^53.
            Answer::Float(self.store as f64),
            Answer::Str(self.method.to_owned()),
            Answer::List(self.keys.iter().cloned().map(Answer::Str).collect()),
            Answer::List(self.values.iter().cloned().map(Answer::Bytes).collect()),
            Answer::Int(self.amount),
            Answer::Bool(self.block),
            Answer::Float(self.timeout.map_or(-1.0, |timeout| timeout.as_secs_f64() * 1e3)),
        ])
    }

    /// It is answered, with a number in digits (1 for yes), or with values; names of keys are
    /// values, too.
    pub fn answer(&self, number: &str, mut values: Vec<Vec<u8>>) {
        let reply = match self.method {
            "get" | "compare_set" | "queue_pop" => values.pop().map(StoreReply::Value),
            "multi_get" => Some(StoreReply::Values(values)),
            "list_keys" => {
                let names = values.into_iter().map(String::from_utf8);
                names.collect::<Result<_, _>>().ok().map(StoreReply::Keys)
            }
            "add" | "num_keys" | "queue_len" => number.parse().ok().map(StoreReply::Number),
            "check" | "delete_key" => Some(StoreReply::Flag(number == "1")),
            _ => Some(StoreReply::Done),
        };
        match reply {
            Some(reply) => self.end(Ok(reply)),
            None => self.fail("", "what it gave cannot be told"),
        }
    }

    /// It has failed, with an error of this kind of the core, or of none, and this text.
    pub fn fail(&self, kind: &str, text: &str) {
        let method = camel_case(self.method);
        let waited_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let keys = || self.keys.join(", ");
        self.end(Err(match kind {
            "StoreTimeout" => {
                Error::StoreTimeout { operation: self.method.into(), keys: keys(), waited_ms }
            }
            "NotACounter" => Error::NotACounter { key: keys() },
            "QueueEmpty" => Error::QueueEmpty,
            _ => Error::Store { message: format!("{}.{method}: {text}", self.name) },
        }));
    }

    fn end(&self, result: Result<StoreReply>) {
        if !self.is_ended.swap(true, Ordering::AcqRel) {
            let result = result.map(|reply| {
                *self.pending.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            });
            self.pending.completion.complete(result);
        }
    }
}

impl Drop for StoreTask {
    fn drop(&mut self) {
        self.fail("", "it was given up: the program ends, or the thread of the store has ended");
    }
}

impl PendingAnswer {
    /// Done when it is there.
    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// What it is, once it is there.
    pub(super) fn taken(&self) -> Result<StoreReply> {
        self.completion.result().unwrap_or(Ok(()))?;
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        reply.ok_or_else(|| Error::Store { message: "a store gave no answer".to_owned() })
    }
}

/// The method of a request, in the IDL's names.
pub(super) fn method_of(request: &StoreRequest<'_>) -> &'static str {
    match request {
        StoreRequest::Set { .. } => "set",
        StoreRequest::Get { .. } => "get",
        StoreRequest::Add { .. } => "add",
        StoreRequest::Append { .. } => "append",
        StoreRequest::Check { .. } => "check",
        StoreRequest::CompareSet { .. } => "compare_set",
        StoreRequest::DeleteKey { .. } => "delete_key",
        StoreRequest::Wait { .. } => "wait",
        StoreRequest::MultiGet { .. } => "multi_get",
        StoreRequest::MultiSet { .. } => "multi_set",
        StoreRequest::NumKeys => "num_keys",
        StoreRequest::ListKeys => "list_keys",
        StoreRequest::QueuePush { .. } => "queue_push",
        StoreRequest::QueuePop { .. } => "queue_pop",
        StoreRequest::QueueLen { .. } => "queue_len",
        StoreRequest::Barrier { .. } => "barrier",
    }
}

/// The keys that a request names.
pub(super) fn keys_of(request: &StoreRequest<'_>) -> Vec<String> {
    let key = request.key();
    let keys = request.keys().unwrap_or(key.as_slice());
    keys.iter().map(|&key| key.to_owned()).collect()
}
