//! Calls that are not operations on tensors, for languages without generated code of their own:
//! found by name, resolved, and run. Knows nothing of what any of them does.
//!
//! A call is resolved immediately, so that wrong arguments raise where they are given; what it does
//! is a future. On a platform with threads [`Invocation::run`] has its result, and blocks
//! meanwhile.

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
#[cfg(not(target_family = "wasm"))]
use std::sync::Arc;
use std::task::Poll;

use super::FromValue;
use super::answer::Answer;
use super::object::{Object, StoreObject};
use super::origin::Origin;
#[cfg(not(target_family = "wasm"))]
use super::replicas::{LighthouseServer, ReplicaManager};
use super::resolve::{ResolvedCall, resolve, unsupported};
use super::settings::Settings;
use super::value::{Arguments, Foreign, Language, Value};
use crate::backend::registry::{self, BackendSpec};
use crate::blocking::poll_once;
use crate::device_mesh::DeviceMesh;
use crate::distributed;
use crate::generated::dispatch::ENTRIES;
use crate::generated::error::{Error, Result};
use crate::generated::roles::Order;
use crate::process_group::topology::Topology;
use crate::process_group::{ProcessGroup, Window};
use crate::request::{Method, Role};

/// What a call does, on its way.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer>>>>;

/// A method, free function, constructor or attribute, by the name of its table.
#[derive(Debug)]
pub struct Entry {
    /// The name of its table: `STORE_GET`; an attribute's is made in the same way.
    pub key: &'static str,
    /// What it takes.
    pub method: &'static Method,
    pub(crate) order: Order,
    /// Whether it may wait for other ranks or for a store.
    pub waits: bool,
    /// What it does. None for calls on tensors, which [`StagedOperation`](super::StagedOperation)
    /// runs, and for those that each language implements in its own way.
    pub(crate) run: Option<Run>,
}

/// The body of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// One that never waits.
    Now(fn(Invocation) -> Result<Answer>),
    /// One that may wait for other ranks or for a store.
    Later(fn(Invocation) -> AnswerFuture),
}

/// What calls begin one after the other, though each may run on a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSequence {
    /// The requests of the store of this number.
    Store(u64),
    /// The calls that make groups out of the group of this number.
    NewGroups(u64),
}

/// A place in a sequence of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlace {
    /// Which sequence.
    pub sequence: CallSequence,
    /// Whether those after it may begin as soon as it has to wait.
    pub until_begun: bool,
}

/// A call whose overload is known, and the objects that it was given.
#[derive(Debug)]
pub struct Invocation {
    entry: &'static Entry,
    this: Option<Object>,
    resolved: ResolvedCall,
    objects: Vec<Object>,
    /// A socket that the language was given, where it knows its sockets by numbers.
    listener: Option<TcpListener>,
    origin: Origin,
}

/// The entry of this name.
///
/// # Errors
/// [`Error::Unsupported`] if there is none.
pub fn entry(key: &str) -> Result<&'static Entry> {
    let found = ENTRIES.binary_search_by(|entry| entry.key.cmp(key));
    found.map(|position| &ENTRIES[position]).map_err(|_| unsupported(key.to_owned()))
}

impl Invocation {
    /// A call of `entry` on `this`. The slot of an object among the arguments is its position in
    /// `objects`.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn new(
        entry: &'static Entry,
        this: Option<Object>,
        arguments: Arguments,
        objects: Vec<Object>,
    ) -> Result<Invocation> {
        let resolved = resolve(entry.method, arguments)?;
        Ok(Invocation::of(entry, this, resolved, objects))
    }

    /// As [`Invocation::new`], of arguments that were resolved for the method of `entry`.
    pub fn of(
        entry: &'static Entry,
        this: Option<Object>,
        resolved: ResolvedCall,
        objects: Vec<Object>,
    ) -> Invocation {
        let listener = None;
        // What issues operations stands in the order of a group, and is a future.
        let may_issue = matches!(entry.order, Order::Group | Order::NewGroup)
            && matches!(entry.run, Some(Run::Later(_)));
        let origin = if may_issue { Origin::here() } else { Origin::of_no_operation() };
        Invocation { entry, this, resolved, objects, listener, origin }
    }

    /// With the socket that a store is to serve on: what `master_listen_fd` names.
    #[must_use]
    pub fn with_listener(mut self, listener: TcpListener) -> Invocation {
        self.listener = Some(listener);
        self
    }

    /// Whether it is an operation of a group that this process is not a member of, which does
    /// nothing.
    pub fn is_left_out(&self) -> bool {
        // Others stand for what only the language knows.
        let is_group = |foreign: &Foreign| foreign.interfaces.contains(&"ProcessGroup");
        let is_outside = |value: &Value| match value {
            Value::Foreign(foreign) if is_group(foreign) => {
                matches!(self.objects.get(foreign.slot), Some(Object::NonGroupMember))
            }
            _ => false,
        };
        let is_of_group = matches!(self.entry.order, Order::Group | Order::NewGroup);
        is_of_group && self.resolved.values.iter().any(is_outside)
    }

    /// Starts what it does. A call that waits does nothing before the future is polled.
    pub fn start(mut self) -> AnswerFuture {
        let answer = match self.entry.run {
            Some(Run::Now(run)) => run(self),
            Some(Run::Later(run)) => {
                let origin = std::mem::take(&mut self.origin);
                #[cfg(feature = "tcp")]
                if let Some(call) = super::store_waits::waiting_call(&self) {
                    return Box::pin(call.of(origin.apply_to(run(self))));
                }
                return origin.apply_to(run(self));
            }
            None => Err(unsupported(self.path())),
        };
        Box::pin(std::future::ready(answer))
    }

    /// Does what of the call belongs on the thread of the caller, where [`run`](Self::run) is
    /// left to another one: the libraries of backends that it names are initialised here. What
    /// fails is the call's to report, when it runs.
    ///
    /// Such a library takes it that nobody else allocates meanwhile. UCX below Open MPI moves the
    /// end of the heap up and down again when it is loaded (`ucm_mmap_init`, "before other threads
    /// could execute the modified functions"): what the caller's thread was given in between would
    /// be unmapped.
    pub fn prepare(&self) {
        let mut parameters = self.resolved.parameters().iter().enumerate();
        let named = parameters.find_map(|(position, known)| match self.value(position) {
            Value::Str(backend) if known.name == "backend" => Some(backend.clone()),
            options => Settings::of(self.name(), known.name, options).ok()?.backend,
        });
        let spec = named.and_then(|named| named.parse::<BackendSpec>().ok());
        if let Some(Err(error)) = spec.map(|spec| registry::initialise(&spec)) {
            tracing::debug!(%error, "a backend is not initialised");
        }
    }

    /// Does it on this thread, blocking where it waits.
    ///
    /// # Errors
    /// Its own; [`Error::Unsupported`] where nothing can block and it would have to wait.
    pub fn run(self) -> Result<Answer> {
        let name = self.entry.method.name;
        match poll_once(self.start()) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(unsupported(format!("{name} without waiting"))),
        }
    }

    /// Numbers of the groups in whose order of calls it stands: what was called in them before it
    /// must be issued before it starts. Of the first, what is called after it must wait until it
    /// is over, because it may issue several operations one after the other, unless it
    /// [is concurrent](Self::is_concurrent). None if it belongs to no group.
    pub fn groups(&self) -> Vec<u64> {
        self.ordering_groups().iter().map(ProcessGroup::identity).collect()
    }

    /// Whether it issues nothing in its groups, so that it waits for no earlier call, and none
    /// waits for it, but for those that leave the groups: it makes a group whose members meet in
    /// the store. Ranks may then make several groups in any order, if they do not wait for one
    /// before they call for the next.
    pub fn is_concurrent(&self) -> bool {
        let splits = || self.ordering_groups().iter().any(ProcessGroup::splits_communicators);
        self.entry.order == Order::NewGroup && !splits()
    }

    /// Aborts those groups: the call leaves them, and what was called before it takes too long.
    pub fn abort_groups(&self) {
        self.ordering_groups().iter().for_each(ProcessGroup::abort);
    }

    /// This process's rank in the first of those groups.
    pub fn rank_in_group(&self) -> Option<u32> {
        self.ordering_groups().first().map(ProcessGroup::rank)
    }

    /// Aborts those groups, as this rank does not run the call, for a reason that every rank is
    /// told.
    pub fn refuse(&self, why: &str) {
        self.ordering_groups().iter().for_each(|group| group.abort_next(why));
    }

    fn ordering_groups(&self) -> Vec<ProcessGroup> {
        let named = self.objects.iter().find_map(|object| object.group().ok());
        let called_on = self.this.as_ref().and_then(|this| this.group().ok());
        match (self.entry.order, called_on.or(named)) {
            (Order::Free | Order::Store | Order::StoreUntilBegun, _) => Vec::new(),
            (Order::Left, _) => distributed::left_with(named),
            (Order::Group | Order::NewGroup, Some(group)) => vec![group.clone()],
            (Order::Group | Order::NewGroup, None) => {
                distributed::default_group().into_iter().collect()
            }
        }
    }

    /// Its place among the requests of its store, or among the calls that make groups out of a
    /// group: these are numbered before they wait, if they have no names.
    pub fn place(&self) -> Option<CallPlace> {
        let until_begun = match self.entry.order {
            Order::Store => false,
            Order::StoreUntilBegun => true,
            Order::NewGroup => {
                let group = self.ordering_groups().first()?.identity();
                let sequence = CallSequence::NewGroups(group);
                return Some(CallPlace { sequence, until_begun: true });
            }
            Order::Free | Order::Group | Order::Left => return None,
        };
        let store = self.this.as_ref()?.store().ok()?;
        // Methods of the language may call others of the same store.
        let until_begun = until_begun || store.is_foreign();
        let sequence = CallSequence::Store(store.underlying_identity());
        Some(CallPlace { sequence, until_begun })
    }

    /// The rank in the group with which it exchanges a message; none: with any, or it is none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if two ranks are named, or one that is not in the group.
    pub fn peer(&self) -> Result<Option<u32>> {
        let global = self.resolved.look::<Option<u32>>(Role::GlobalPeer)?.flatten();
        let in_group = self.resolved.look::<Option<u32>>(Role::Peer)?.flatten();
        if global.is_none() && in_group.is_none() {
            return Ok(None);
        }
        let named = self.objects.iter().find_map(|object| object.group().ok());
        let mut parameters = self.resolved.parameters().iter();
        let name = parameters.find(|known| known.role == Role::GlobalPeer).map(|known| known.name);
        let group = distributed::group_or_default(named)?;
        rank_of(&group, name.unwrap_or_default(), global, in_group)
    }

    /// Takes the value of parameter `position`, once.
    pub(crate) fn take<T: FromValue>(&mut self, position: usize) -> Result<T> {
        self.resolved.take(position)
    }

    /// The socket that a store is to serve on, once.
    #[cfg(feature = "tcp")]
    pub(super) fn take_listener(&mut self) -> Option<TcpListener> {
        self.listener.take()
    }

    /// Whether it may wait for other ranks or for a store.
    pub fn waits(&self) -> bool {
        self.entry.waits
    }

    /// The name of its entry.
    #[cfg(feature = "tcp")]
    pub(super) fn key(&self) -> &'static str {
        self.entry.key
    }

    /// The method, for messages.
    pub fn name(&self) -> &'static str {
        self.entry.method.name
    }

    /// The interface and the method, for messages.
    pub(crate) fn path(&self) -> String {
        let Method { interface, name, .. } = self.entry.method;
        format!("{interface}.{}", self.language().name(name))
    }

    /// As [`ResolvedCall::take_rank`].
    #[cfg(feature = "objects")]
    pub(super) fn rank(
        &mut self,
        group: &ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> Result<Option<u32>> {
        self.resolved.take_rank(group, global, in_group)
    }

    /// As [`ResolvedCall::take_root`].
    #[cfg(feature = "objects")]
    pub(super) fn root(
        &mut self,
        group: &ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> Result<u32> {
        self.resolved.take_root(group, global, in_group)
    }

    /// The caller's language.
    pub(super) fn language(&self) -> Language {
        self.resolved.language
    }

    /// The position of the overload in the order of declaration.
    pub(super) fn overload(&self) -> usize {
        self.resolved.overload
    }

    /// The group that the method is called on.
    pub(crate) fn this_group(&self) -> Result<ProcessGroup> {
        self.this()?.group().cloned()
    }

    /// The window that the method is called on.
    pub(crate) fn this_window(&self) -> Result<Window> {
        self.this()?.window().cloned()
    }

    /// The mesh that the method is called on.
    pub(crate) fn this_mesh(&self) -> Result<DeviceMesh> {
        self.this()?.mesh().cloned()
    }

    /// The topology that the method is called on.
    pub(crate) fn this_topology(&self) -> Result<Topology> {
        self.this()?.topology().cloned()
    }

    /// The manager that the method is called on.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn this_manager(&self) -> Result<Arc<dyn ReplicaManager>> {
        self.this()?.manager()?.get().cloned()
    }

    /// The lighthouse that the method is called on.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn this_lighthouse(&self) -> Result<Arc<dyn LighthouseServer>> {
        self.this()?.lighthouse()?.get().cloned()
    }

    /// The store that the method is called on.
    pub(crate) fn this_store(&self) -> Result<StoreObject> {
        self.this()?.store().cloned()
    }

    /// The object that parameter `position` was given, if it was given one.
    pub(super) fn object(&self, position: usize) -> Option<&Object> {
        match self.resolved.values.get(position) {
            Some(Value::Foreign(Foreign { slot, .. })) => self.objects.get(*slot),
            _ => None,
        }
    }

    /// The objects that parameter `position` was given: one, or a list.
    pub(super) fn objects(&self, position: usize) -> Vec<&Object> {
        let items = match self.resolved.values.get(position) {
            Some(Value::List(items)) => items.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        let objects = items.iter().filter_map(|item| match item {
            Value::Foreign(Foreign { slot, .. }) => self.objects.get(*slot),
            _ => None,
        });
        objects.collect()
    }

    /// The value of parameter `position`, as it was given.
    pub fn value(&self, position: usize) -> &Value {
        self.resolved.values.get(position).unwrap_or(&Value::None)
    }

    /// The name of parameter `position`.
    pub(super) fn parameter(&self, position: usize) -> &'static str {
        self.resolved.parameters().get(position).map_or("", |parameter| parameter.name)
    }

    /// Whether parameter `position` was given what stands for a group without this process.
    pub(super) fn is_outside(&self, position: usize) -> bool {
        matches!(self.object(position), Some(Object::NonGroupMember))
    }

    /// The group that parameter `position` was given, or the default group.
    pub(super) fn group(&self, position: usize) -> Result<ProcessGroup> {
        let given = self.object(position).map(Object::group).transpose()?;
        distributed::group_or_default(given)
    }

    /// The store that parameter `position` was given, if it was given one.
    pub(super) fn store(&self, position: usize) -> Result<Option<StoreObject>> {
        Ok(self.object(position).map(Object::store).transpose()?.cloned())
    }

    fn this(&self) -> Result<&Object> {
        self.this.as_ref().ok_or_else(|| {
            let Method { interface, name, .. } = self.entry.method;
            Error::InvalidType { message: format!("{name}() must be called on a {interface}") }
        })
    }
}

impl ResolvedCall {
    /// Takes the rank in `group` that one of two parameters names: `global` a global rank,
    /// `in_group` a rank in the group. None if neither is given.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if both are given, or what is not a rank;
    /// [`Error::RankNotInGroup`].
    pub fn take_rank(
        &mut self,
        group: &ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> Result<Option<u32>> {
        let name = self.parameters()[global].name;
        rank_of(group, name, self.take(global)?, self.take(in_group)?)
    }

    /// As [`ResolvedCall::take_rank`], for a root: the global rank 0 if none is named.
    ///
    /// # Errors
    /// As [`ResolvedCall::take_rank`].
    pub fn take_root(
        &mut self,
        group: &ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> Result<u32> {
        self.take_rank(group, global, in_group)?.map_or_else(|| group.group_rank(0), Ok)
    }
}

/// The rank in `group` that is meant by a global rank or by a rank in the group.
pub(super) fn rank_of(
    group: &ProcessGroup,
    name: &str,
    global: Option<u32>,
    in_group: Option<u32>,
) -> Result<Option<u32>> {
    match (global, in_group) {
        (Some(_), Some(_)) => {
            let message = format!("Can't specify both {name} and group_{name}");
            Err(Error::InvalidArgument { message })
        }
        (Some(global), None) => group.group_rank(global).map(Some),
        (None, in_group) => Ok(in_group),
    }
}

impl Value {
    /// The value that stands for the object at `slot` of a call's objects.
    pub fn of_object(object: &Object, slot: usize) -> Value {
        let interfaces = object.interfaces();
        let type_name = object.type_name().to_owned();
        Value::Foreign(Foreign { type_name, interfaces, callable: false, slot })
    }
}

/// The keys as the stores take them.
pub(crate) fn references<T: AsRef<R>, R: ?Sized>(values: &[T]) -> Vec<&R> {
    values.iter().map(AsRef::as_ref).collect()
}
