//! Objects that calls are made on, take and return: groups, meshes, topologies, windows and stores.
//! Knows nothing of methods.

use std::fmt;
#[cfg(not(target_family = "wasm"))]
use std::path::Path;
use std::sync::Arc;

use super::custom_store::ForeignStore;
#[cfg(not(target_family = "wasm"))]
use super::replicas::{LighthouseObject, ReplicaManagerObject};
use crate::device_mesh::DeviceMesh;
use crate::generated::error::{Error, Result};
use crate::process_group::topology::Topology;
use crate::process_group::{ProcessGroup, Window, next_identity};
#[cfg(not(target_family = "wasm"))]
use crate::store::FileStore;
#[cfg(feature = "tcp")]
use crate::store::TcpStore;
use crate::store::{HashStore, PrefixStore, Store};

/// An object of an interface of the IDL that a language holds a handle on. Cheap to clone: a clone
/// is the same object.
#[derive(Clone, Debug)]
pub enum Object {
    /// A process group.
    Group(ProcessGroup),
    /// What stands for a group that this process is not a member of.
    NonGroupMember,
    /// A store.
    Store(StoreObject),
    /// A window.
    Window(Window),
    /// A mesh.
    Mesh(DeviceMesh),
    /// A topology.
    Topology(Topology),
    /// What a rank of a replica trains with.
    #[cfg(not(target_family = "wasm"))]
    Manager(ReplicaManagerObject),
    /// What says which replicas train together.
    #[cfg(not(target_family = "wasm"))]
    Lighthouse(LighthouseObject),
}

/// A store, and what it was made as.
#[derive(Clone)]
pub struct StoreObject {
    /// The same for all clones.
    identity: u64,
    store: Arc<dyn Store>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// A store of which no more is known than its interfaces.
    Only(&'static [&'static str]),
    /// An object of the language, and what it is besides.
    Foreign(Arc<ForeignStore>, &'static [&'static str]),
    Hash,
    #[cfg(not(target_family = "wasm"))]
    File(Arc<Path>),
    /// With the prefix, and the store under it as it was given.
    Prefix(Arc<str>, Arc<Object>),
    #[cfg(feature = "tcp")]
    Tcp(Arc<TcpAddress>),
    /// With the address that was given.
    WebSocket(Arc<str>),
}

/// Where the server of a `TCPStore` is.
#[cfg(feature = "tcp")]
#[derive(Debug)]
pub(super) struct TcpAddress {
    /// The host that was given.
    pub(super) host: String,
    /// The port on which it listens.
    pub(super) port: u16,
}

impl Object {
    /// The interface that it is an object of.
    pub fn type_name(&self) -> &'static str {
        self.interfaces()[0]
    }

    /// The interface that it is an object of, and those which that inherits from.
    pub fn interfaces(&self) -> &'static [&'static str] {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Object::Group(group) => group.interfaces(),
            #[cfg(target_family = "wasm")]
            Object::Group(_) => &["ProcessGroup"],
            Object::NonGroupMember => &["NonGroupMember", "ProcessGroup"],
            Object::Window(_) => &["Window"],
            Object::Mesh(_) => &["DeviceMesh"],
            Object::Topology(_) => &["Topology"],
            #[cfg(not(target_family = "wasm"))]
            Object::Manager(_) => &["Manager"],
            #[cfg(not(target_family = "wasm"))]
            Object::Lighthouse(_) => &["LighthouseServer"],
            Object::Store(store) => match store.kind {
                Kind::Only(interfaces) | Kind::Foreign(_, interfaces) => interfaces,
                Kind::Hash => &["HashStore", "Store"],
                #[cfg(not(target_family = "wasm"))]
                Kind::File(_) => &["FileStore", "Store"],
                Kind::Prefix(..) => &["PrefixStore", "Store"],
                #[cfg(feature = "tcp")]
                Kind::Tcp(_) => &["TCPStore", "Store"],
                Kind::WebSocket(_) => &["WebSocketStore", "Store"],
            },
        }
    }

    /// A number that no other object of this process ever has.
    pub fn identity(&self) -> u64 {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Object::Group(group) => group.handle_identity(),
            #[cfg(target_family = "wasm")]
            Object::Group(group) => group.identity(),
            Object::NonGroupMember => 0,
            Object::Store(store) => store.identity,
            Object::Window(window) => window.identity(),
            Object::Mesh(mesh) => mesh.identity(),
            Object::Topology(topology) => topology.identity(),
            #[cfg(not(target_family = "wasm"))]
            Object::Manager(manager) => manager.identity(),
            #[cfg(not(target_family = "wasm"))]
            Object::Lighthouse(lighthouse) => lighthouse.identity(),
        }
    }

    /// A number of the members that a group has now, for what is prepared for them.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed; [`Error::Reconfigured`] if they are
    /// others than the `known`, for which `operation` was prepared.
    pub fn check_members(&self, known: Option<u64>, operation: &str) -> Result<u64> {
        let group = self.group()?;
        group.unless_left()?;
        let epoch = known.unwrap_or_else(|| group.epoch());
        group.check_epoch(epoch, operation).map(|()| epoch)
    }

    /// What is said of a handle whose object was released.
    pub fn released(type_name: &str) -> Error {
        Error::InvalidArgument { message: format!("the {type_name} was released") }
    }

    /// What is said of a value where a handle is expected.
    pub fn not_a_handle() -> Error {
        Error::InvalidType { message: "expected a handle of this package".to_owned() }
    }

    /// The group that it is.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if this process is not a member of it; [`Error::InvalidType`] if it
    /// is not a group.
    pub fn group(&self) -> Result<&ProcessGroup> {
        match self {
            Object::Group(group) => Ok(group),
            Object::NonGroupMember => Err(Error::InvalidGroup {
                message: "this process is not a member of it".to_owned(),
            }),
            other => Err(is_not(other, "ProcessGroup")),
        }
    }

    /// The window that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a window.
    pub fn window(&self) -> Result<&Window> {
        match self {
            Object::Window(window) => Ok(window),
            other => Err(is_not(other, "Window")),
        }
    }

    /// The mesh that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a mesh.
    pub fn mesh(&self) -> Result<&DeviceMesh> {
        match self {
            Object::Mesh(mesh) => Ok(mesh),
            other => Err(is_not(other, "DeviceMesh")),
        }
    }

    /// The topology that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a topology.
    pub fn topology(&self) -> Result<&Topology> {
        match self {
            Object::Topology(topology) => Ok(topology),
            other => Err(is_not(other, "Topology")),
        }
    }

    /// The manager that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a manager.
    #[cfg(not(target_family = "wasm"))]
    pub fn manager(&self) -> Result<&ReplicaManagerObject> {
        match self {
            Object::Manager(manager) => Ok(manager),
            other => Err(is_not(other, "Manager")),
        }
    }

    /// The lighthouse that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a lighthouse.
    #[cfg(not(target_family = "wasm"))]
    pub fn lighthouse(&self) -> Result<&LighthouseObject> {
        match self {
            Object::Lighthouse(lighthouse) => Ok(lighthouse),
            other => Err(is_not(other, "LighthouseServer")),
        }
    }

    /// The group in which operations on it run: that of a window or a topology, or itself.
    ///
    /// # Errors
    /// As [`Object::group`].
    pub fn operating_group(&self) -> Result<&ProcessGroup> {
        match self {
            Object::Window(window) => Ok(window.group()),
            Object::Topology(topology) => Ok(topology.group()),
            #[cfg(not(target_family = "wasm"))]
            Object::Manager(manager) => Ok(manager.get()?.group()),
            other => other.group(),
        }
    }

    /// The store that it is.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it is not a store.
    pub fn store(&self) -> Result<&StoreObject> {
        match self {
            Object::Store(store) => Ok(store),
            other => Err(is_not(other, "Store")),
        }
    }
}

impl StoreObject {
    fn new(store: Arc<dyn Store>, kind: Kind) -> StoreObject {
        StoreObject { identity: next_identity(), store, kind }
    }

    /// Any store.
    pub fn any(store: Arc<dyn Store>) -> StoreObject {
        Self::of(store, &["Store"])
    }

    /// A store of these interfaces, the closest one first, `Store` last.
    pub fn of(store: Arc<dyn Store>, interfaces: &'static [&'static str]) -> StoreObject {
        let interfaces = if interfaces.is_empty() { &["Store"] } else { interfaces };
        Self::new(store, Kind::Only(interfaces))
    }

    /// An object of the language, which is also of these interfaces.
    pub(super) fn foreign(
        store: Arc<ForeignStore>,
        interfaces: &'static [&'static str],
    ) -> StoreObject {
        let (identity, kind) = (store.number(), Kind::Foreign(store.clone(), interfaces));
        StoreObject { identity, store, kind }
    }

    /// The object of the language that it is, and the interfaces that it has.
    pub(super) fn as_foreign(&self) -> Option<(&ForeignStore, &'static [&'static str])> {
        if let Kind::Foreign(store, interfaces) = &self.kind {
            return Some((store, interfaces));
        }
        None
    }

    /// Whether requests reach code of the language in the end, through all prefixes.
    pub(super) fn is_foreign(&self) -> bool {
        match self.prefixed().and_then(|(_, underlying)| underlying.store().ok()) {
            Some(underlying) => underlying.is_foreign(),
            None => self.as_foreign().is_some(),
        }
    }

    /// The store, whatever it is.
    pub fn get(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store that requests reach through all prefixes.
    #[doc(hidden)]
    pub fn underlying(&self) -> &Arc<dyn Store> {
        match self.prefixed().and_then(|(_, underlying)| underlying.store().ok()) {
            Some(underlying) => underlying.underlying(),
            None => &self.store,
        }
    }

    /// The same object, whose requests reach `store` through all its prefixes.
    #[doc(hidden)]
    pub fn over(&self, store: Arc<dyn Store>) -> StoreObject {
        let identity = self.identity;
        let Kind::Prefix(prefix, underlying) = &self.kind else {
            return StoreObject { identity, store, kind: self.kind.clone() };
        };
        let Ok(underlying) = underlying.store() else { return self.clone() };
        let underlying = underlying.over(store);
        let store = Arc::new(PrefixStore::new(&**prefix, underlying.store.clone()));
        let kind = Kind::Prefix(prefix.clone(), Arc::new(Object::Store(underlying)));
        StoreObject { identity, store, kind }
    }

    /// The number of the store that requests reach through all prefixes: the same for all views.
    pub(super) fn underlying_identity(&self) -> u64 {
        match self.prefixed().and_then(|(_, underlying)| underlying.store().ok()) {
            Some(underlying) => underlying.underlying_identity(),
            None => self.identity,
        }
    }

    /// The prefix, and the store under it as it was given, of a `PrefixStore`.
    pub(super) fn prefixed(&self) -> Option<(&str, &Object)> {
        match &self.kind {
            Kind::Prefix(prefix, underlying) => Some((prefix, underlying)),
            _ => None,
        }
    }

    /// The file of the `FileStore` that it is.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn file(&self) -> Option<&Path> {
        if let Kind::File(path) = &self.kind { Some(path) } else { None }
    }

    /// The address of the `TCPStore` that it is.
    #[cfg(feature = "tcp")]
    pub(super) fn tcp(&self) -> Option<&TcpAddress> {
        if let Kind::Tcp(address) = &self.kind { Some(address) } else { None }
    }

    /// Another handle on the same data, of the same interface, as with [`Store::clone_store`].
    pub(super) async fn another(&self) -> Result<StoreObject> {
        if let Kind::Prefix(prefix, underlying) = &self.kind {
            let underlying = Box::pin(underlying.store()?.another()).await?;
            return Self::under(&**prefix, Object::Store(underlying));
        }
        let store = self.store.clone_store_async().await?;
        Ok(Self::new(store, self.kind.clone()))
    }

    /// A store that is reached over a WebSocket at `url`.
    pub fn web_socket(store: Arc<dyn Store>, url: impl Into<Arc<str>>) -> StoreObject {
        Self::new(store, Kind::WebSocket(url.into()))
    }

    /// The address of the WebSocket store that it is.
    pub(super) fn url(&self) -> Option<&str> {
        if let Kind::WebSocket(url) = &self.kind { Some(url) } else { None }
    }

    /// A view of `underlying` under a prefix.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if `underlying` is not a store.
    pub fn under(prefix: impl Into<String>, underlying: Object) -> Result<StoreObject> {
        let prefix = prefix.into();
        let kind = Kind::Prefix(prefix.as_str().into(), Arc::new(underlying.clone()));
        let store = PrefixStore::new(prefix, underlying.store()?.store.clone());
        Ok(Self::new(Arc::new(store), kind))
    }
}

impl From<HashStore> for StoreObject {
    fn from(store: HashStore) -> StoreObject {
        StoreObject::new(Arc::new(store), Kind::Hash)
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<FileStore> for StoreObject {
    fn from(store: FileStore) -> StoreObject {
        let path = store.path().into();
        StoreObject::new(Arc::new(store), Kind::File(path))
    }
}

#[cfg(feature = "tcp")]
impl From<TcpStore> for StoreObject {
    fn from(store: TcpStore) -> StoreObject {
        let address = TcpAddress { host: store.host().to_owned(), port: store.port() };
        StoreObject::new(Arc::new(store), Kind::Tcp(Arc::new(address)))
    }
}

impl fmt::Debug for StoreObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A short description for debugging, the same in every language.
impl fmt::Display for StoreObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.store.description())
    }
}

/// A short description for debugging, the same in every language.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Group(group) => write!(f, "{group:?}"),
            Object::NonGroupMember => f.write_str("NonGroupMember"),
            Object::Store(store) => write!(f, "{store}"),
            Object::Window(window) => write!(f, "{window:?}"),
            Object::Mesh(mesh) => write!(f, "{mesh}"),
            Object::Topology(topology) => write!(f, "{topology:?}"),
            #[cfg(not(target_family = "wasm"))]
            Object::Manager(manager) => write!(f, "{manager:?}"),
            #[cfg(not(target_family = "wasm"))]
            Object::Lighthouse(lighthouse) => write!(f, "{lighthouse:?}"),
        }
    }
}

fn is_not(object: &Object, wanted: &str) -> Error {
    Error::InvalidType { message: format!("a {} is not a {wanted}", object.type_name()) }
}
