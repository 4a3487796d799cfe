//! Backends that are written in another language: what the core asks of them becomes tasks, which
//! the binding carries to where code of its language runs, and which it ends from there. Knows no
//! language, and nothing of what a backend does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::answer::{Answer, IntoAnswer};
use super::object::StoreObject;
use super::{Object, device_named};
use crate::backend::custom::{self, Driver, DriverFactory, DriverFuture, until_ended};
use crate::backend::options::{GivenOptions, ProgramOptions};
use crate::backend::{
    BackendContext, BackendOptions, Call, Direction, EndFuture, IssueOptions, IssuedOperation,
    Leaving, Transfer,
};
use crate::clock::{self, Instant};
use crate::completion::Completion;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::next_identity;
use crate::tensor::{Region, Tensor};

/// What a backend of another language is asked to do, on the rank that it belongs to.
#[derive(Debug)]
pub struct BackendTask {
    /// The name under which the backend was registered.
    pub backend: String,
    /// Which of all backends that factories made is asked: that of one rank in one group.
    pub instance: u64,
    /// `make`, `abort`, `shutdown`, `release` when the group was left, `forget` when it is gone, or
    /// the method of the operation in c10d's names: `allreduce`, `recv_anysource`.
    pub method: &'static str,
    /// Which operation of which group and rank it is, as what it fails with begins.
    pub place: String,
    /// What the factory is told, for `make`.
    pub context: Option<BackendContext>,
    /// What the operation reads. The memory is the backend's, and so is that of the outputs.
    pub inputs: Vec<Region>,
    /// What it writes. Operations that work in place find what they read in it.
    pub outputs: Vec<Region>,
    /// The element type of all of them.
    pub dtype: DType,
    /// How elements are reduced, if they are.
    pub reduce_op: Option<ReduceOp>,
    /// The root, if there is one.
    pub root: Option<u32>,
    /// The other rank of a message; none: any.
    pub peer: Option<u32>,
    /// The tag of a message.
    pub tag: u32,
    /// Limit of the operation; none: no limit.
    pub timeout: Option<Duration>,
    /// Why the group is aborted.
    pub why: String,
    completion: Arc<Completion>,
    is_ended: AtomicBool,
}

/// Carries tasks to where code of the language runs.
pub trait TaskCarrier: Send + Sync + 'static {
    /// Takes a task, and does not wait. A task that is dropped has failed.
    fn carry(&self, task: BackendTask);
}

/// Registers a backend whose tasks `carrier` takes; devices are separated by commas.
///
/// # Errors
/// As [`register_backend`](crate::backend::register_backend).
pub fn register(name: &str, devices: &str, carrier: Arc<dyn TaskCarrier>) -> Result<()> {
    custom::register(name, devices, Arc::new(Factory { carrier }))
}

/// What serves a device in a group: the backend's name, and the number of its kind.
///
/// # Errors
/// [`Error::InvalidArgument`] for what is not a device, and if no backend serves it.
pub fn served(group: &Object, device: &str) -> Result<Answer> {
    let backend = group.group()?.get_backend(device_named(device)?)?;
    let kind = backend.backend_type() as i64;
    Ok(Answer::List(vec![Answer::Str(backend.name().to_owned()), Answer::Int(kind)]))
}

/// A number more than any limit of an operation, where that is none: a hundred years.
const NO_LIMIT: Duration = Duration::from_secs(90 * 365 * 86_400);

struct Factory {
    carrier: Arc<dyn TaskCarrier>,
}

/// A backend of another language, on one rank of one group.
struct Foreign(Arc<Instance>);

/// How the language is told of it.
struct Instance {
    name: String,
    number: u64,
    process: u32,
    carrier: Arc<dyn TaskCarrier>,
}

impl BackendTask {
    pub(super) fn new(backend: &str, instance: u64, method: &'static str) -> BackendTask {
        BackendTask {
            backend: backend.to_owned(),
            instance,
            method,
            place: String::new(),
            context: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            dtype: DType::U8,
            reduce_op: None,
            root: None,
            peer: None,
            tag: 0,
            timeout: None,
            why: String::new(),
            completion: Arc::new(Completion::new()),
            is_ended: AtomicBool::new(false),
        }
    }

    /// It is over. `source` is the sender of what was received, if the backend knows it. A second
    /// call does nothing.
    pub fn end(&self, result: Result<()>, source: Option<u32>) {
        if !self.is_ended.swap(true, Ordering::AcqRel) {
            source.iter().for_each(|&source| self.completion.set_source_rank(source));
            self.completion.complete(result);
        }
    }

    /// Calls `callback` when it is over.
    pub(super) fn on_end(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        self.completion.on_end(callback);
    }

    /// What an exception of the backend with this text is to the core.
    pub fn failure(&self, text: impl Into<String>) -> Error {
        Error::Backend { backend: self.backend.clone(), message: text.into() }
    }

    /// How the message of the error ends that this text becomes, of no other operation.
    pub fn told(&self, text: &str) -> String {
        format!("{}: {text}", self.place)
    }

    /// What it fails with if the backend has no such method.
    pub fn lacking(&self) -> Error {
        let who = format!("the backend '{}'", self.backend);
        Error::Unsupported { who, operation: self.method.to_owned() }
    }

    /// What it fails with for the kind of an error of the core, or none, and the text of what was
    /// raised.
    pub fn error(&self, kind: &str, text: String) -> Error {
        if kind == "Unsupported" { self.lacking() } else { self.failure(text) }
    }

    /// Memory of an operation as tensors of one dimension.
    pub fn tensors(&self, regions: &[Region]) -> Vec<Tensor> {
        let one = |region: &Region| {
            let elements = region.len() / self.dtype.size_bytes();
            Tensor::contiguous(region.clone(), self.dtype, vec![elements])
        };
        regions.iter().map(one).collect()
    }

    /// What the group was given as options, for a factory.
    pub fn given_options(&self) -> Option<&GivenOptions> {
        self.options()?.given()
    }

    /// Whether the group was given options that only this backend can know.
    fn has_foreign_options(&self) -> bool {
        let options = self.options().and_then(BackendOptions::get::<ProgramOptions>);
        options.is_some_and(|options| options.why_foreign.is_some())
    }

    fn options(&self) -> Option<&BackendOptions> {
        self.context.as_ref()?.options.as_ref()
    }

    /// What it is, under the number `id`, as a list: first one of numbers, which are -1 where there
    /// is none (`id`, `instance`, the element type, the operator, the root, the other rank, the
    /// tag, the limit in ms, and for a factory the rank, the number of ranks and the limit), then
    /// the backend, the method, the bytes of the inputs and of the outputs, for a factory the
    /// store, the name of the group, the global ranks, and in the end the place, the options that
    /// the group was given, as bytes, and whether no backend of polyrank's own takes such.
    ///
    /// # Errors
    /// None that is known.
    pub fn parts(&self, id: u32) -> Result<Answer> {
        let number = |number: Option<u32>| number.map_or(-1.0, f64::from);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut numbers = vec![
            f64::from(id),
            self.instance as f64,
            f64::from(self.dtype as u8),
            number(self.reduce_op.map(|op| u32::from(op.code()))),
            number(self.root),
            number(self.peer),
            f64::from(self.tag),
            self.timeout.map_or(-1.0, ms),
        ];
        let (mut store, mut group, mut ranks) = (Answer::Nothing, String::new(), Vec::new());
        let given = self.given_options().and_then(GivenOptions::get::<Vec<u8>>).cloned();
        if let Some(context) = &self.context {
            let (rank, size) = (f64::from(context.rank), f64::from(context.size));
            numbers.extend([rank, size, ms(context.timeout)]);
            store = StoreObject::any(context.store.clone()).into_answer()?;
            group.clone_from(&context.group_name);
            ranks.extend(context.global_ranks_in_group.iter().map(|&it| f64::from(it)));
        }
        let floats = |all: Vec<f64>| Answer::List(all.into_iter().map(Answer::Float).collect());
        let bytes = |regions: &[Region]| {
            let copy = |region: &Region| Answer::Bytes(region.read(<[u8]>::to_vec));
            Answer::List(regions.iter().map(copy).collect())
        };
        Ok(Answer::List(vec![
            floats(numbers),
            Answer::Str(self.backend.clone()),
            Answer::Str(self.method.to_owned()),
            bytes(&self.inputs),
            bytes(&self.outputs),
            store,
            Answer::Str(group),
            floats(ranks),
            Answer::Str(self.place.clone()),
            given.map_or(Answer::Nothing, Answer::Bytes),
            Answer::Bool(self.has_foreign_options()),
        ]))
    }

    /// Copies `bytes` into the outputs, as much as they hold.
    pub fn fill(&self, position: usize, bytes: &[u8]) {
        if let Some(output) = self.outputs.get(position) {
            output.write(|memory| {
                let length = memory.len().min(bytes.len());
                memory[..length].copy_from_slice(&bytes[..length]);
            });
        }
    }
}

impl Drop for BackendTask {
    fn drop(&mut self) {
        let why = "it was given up: the program ends, or the thread that registered it has ended";
        let error = self.failure(why);
        self.end(Err(error), None);
    }
}

impl DriverFactory for Factory {
    fn make(&self, context: BackendContext) -> DriverFuture {
        Box::pin(make(self.carrier.clone(), context))
    }
}

async fn make(carrier: Arc<dyn TaskCarrier>, context: BackendContext) -> Result<Arc<dyn Driver>> {
    let (name, timeout) = (context.backend.clone(), context.timeout);
    let limit = if timeout.is_zero() { Duration::MAX } else { timeout };
    let until = clock::after(limit);
    let instance = next_identity();
    // Whatever becomes of it, the language forgets it in the end.
    let process = clock::process_id();
    let of_group = Instance { name: name.clone(), number: instance, process, carrier };
    let foreign = Foreign(Arc::new(of_group));
    let mut task = BackendTask::new(&name, instance, "make");
    task.place = custom::place_of_making(&context.group_name, context.rank);
    task.context = Some(context);
    let completion = task.completion.clone();
    foreign.0.carrier.carry(task);
    if !until_ended(&completion, until).await? {
        let ms = timeout.as_millis() as u64;
        let message = format!("its factory did not return within {ms} ms");
        return Err(Error::Backend { backend: name, message });
    }
    completion.result().unwrap_or(Ok(()))?;
    Ok(Arc::new(foreign))
}

impl Foreign {
    fn task(&self, method: &'static str, place: &str, options: IssueOptions) -> BackendTask {
        let left = options.deadline.saturating_duration_since(Instant::now());
        let timeout = (left < NO_LIMIT).then_some(left);
        let mut task = BackendTask::new(&self.0.name, self.0.number, method);
        (task.place, task.timeout) = (place.to_owned(), timeout);
        task
    }

    fn issue(&self, task: BackendTask) -> IssuedOperation {
        let completion = task.completion.clone();
        self.0.carrier.carry(task);
        IssuedOperation { sequence: 0, completion }
    }
}

impl Driver for Foreign {
    fn collective(
        &self,
        place: &str,
        call: Call,
        options: IssueOptions,
    ) -> Result<IssuedOperation> {
        let facts = call.collective.facts();
        let mut task = self.task(facts.name, place, options);
        task.dtype = call.dtype;
        task.reduce_op = facts.reduces.then_some(call.reduce_op);
        task.root = facts.rooted.then_some(call.root);
        let is_reduce = call.collective == Collective::Reduce;
        (task.inputs, task.outputs) = (call.input, call.output);
        if is_reduce {
            // In place, as with c10d; elsewhere than at the root, nobody looks at it afterwards.
            match (task.inputs.pop(), task.outputs.first()) {
                (Some(input), Some(output)) if !output.is_empty() => {
                    output.write_from(&input, |output, input| output.copy_from_slice(input));
                }
                (Some(input), None) => task.outputs.push(input),
                _ => {}
            }
        }
        Ok(self.issue(task))
    }

    fn message(
        &self,
        place: &str,
        direction: Direction,
        transfer: Transfer,
        options: IssueOptions,
    ) -> Result<IssuedOperation> {
        let is_send = direction == Direction::Send;
        let method = match transfer.peer {
            _ if is_send => "send",
            Some(_) => "recv",
            None => "recv_anysource",
        };
        let mut task = self.task(method, place, options);
        (task.dtype, task.peer, task.tag) = (transfer.dtype, transfer.peer, transfer.tag);
        let memory = if is_send { &mut task.inputs } else { &mut task.outputs };
        memory.push(transfer.memory);
        Ok(self.issue(task))
    }

    fn abort(&self, why: &str) {
        let mut task = BackendTask::new(&self.0.name, self.0.number, "abort");
        task.why = why.to_owned();
        self.0.carrier.carry(task);
    }

    fn leave(&self, leaving: Leaving) -> EndFuture {
        let issued = self.issue(BackendTask::new(&self.0.name, self.0.number, "shutdown"));
        let instance = self.0.clone();
        Box::pin(async move {
            let completion = issued.completion;
            // It is left all the same.
            let is_over = until_ended(&completion, clock::after(leaving.limit)).await?;
            // It may refer to its group, which would stay with it.
            instance.tell("release");
            completion.result().filter(|_| is_over).unwrap_or(Ok(()))
        })
    }
}

impl Instance {
    /// Tells the language to release or to forget it: it is asked nothing any more.
    fn tell(&self, method: &'static str) {
        // What a forked child has of it is its parent's.
        if self.process == clock::process_id() {
            self.carrier.carry(BackendTask::new(&self.name, self.number, method));
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.tell("forget");
    }
}
