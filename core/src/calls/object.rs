//! Objects that calls are made on, take and return: groups and stores. Knows nothing of methods.

use std::fmt;
use std::sync::Arc;

use crate::generated::error::{Error, Result};
use crate::process_group::{ProcessGroup, next_identity};
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
    Hash,
    #[cfg(not(target_family = "wasm"))]
    File(Arc<FileStore>),
    Prefix(Arc<PrefixStore>, Arc<Object>),
    #[cfg(feature = "tcp")]
    Tcp(Arc<TcpStore>),
    /// With the address that was given.
    WebSocket(Arc<str>),
}

impl Object {
    /// The interface that it is an object of.
    pub fn type_name(&self) -> &'static str {
        self.interfaces()[0]
    }

    /// The interface that it is an object of, and those which that inherits from.
    pub fn interfaces(&self) -> &'static [&'static str] {
        match self {
            Object::Group(_) => &["ProcessGroup"],
            Object::NonGroupMember => &["NonGroupMember", "ProcessGroup"],
            Object::Store(store) => match store.kind {
                Kind::Only(interfaces) => interfaces,
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
            Object::Group(group) => group.identity(),
            Object::NonGroupMember => 0,
            Object::Store(store) => store.identity,
        }
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

    /// The store, whatever it is.
    pub fn get(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The number of the store that requests reach through all prefixes: the same for all views.
    pub(super) fn underlying_identity(&self) -> u64 {
        match self.prefixed().and_then(|(_, underlying)| underlying.store().ok()) {
            Some(underlying) => underlying.underlying_identity(),
            None => self.identity,
        }
    }

    /// The prefix, and the store under it as it was given, of a `PrefixStore`.
    pub(super) fn prefixed(&self) -> Option<(&PrefixStore, &Object)> {
        match &self.kind {
            Kind::Prefix(store, underlying) => Some((store, underlying)),
            _ => None,
        }
    }

    /// The file store that it is.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn file(&self) -> Option<&FileStore> {
        if let Kind::File(store) = &self.kind { Some(store) } else { None }
    }

    /// The TCP store that it is.
    #[cfg(feature = "tcp")]
    pub(super) fn tcp(&self) -> Option<&TcpStore> {
        if let Kind::Tcp(store) = &self.kind { Some(store) } else { None }
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
        let store = Arc::new(PrefixStore::new(prefix, underlying.store()?.store.clone()));
        let kind = Kind::Prefix(store.clone(), Arc::new(underlying));
        Ok(Self::new(store, kind))
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
        let store = Arc::new(store);
        StoreObject::new(store.clone(), Kind::File(store))
    }
}

#[cfg(feature = "tcp")]
impl From<TcpStore> for StoreObject {
    fn from(store: TcpStore) -> StoreObject {
        let store = Arc::new(store);
        StoreObject::new(store.clone(), Kind::Tcp(store))
    }
}

impl fmt::Debug for StoreObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a person wants to know of it, the same in every language: `TCPStore('10.0.0.1', 29500)`.
impl fmt::Display for StoreObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Only(interfaces) => write!(f, "{}()", interfaces[0]),
            Kind::Hash => f.write_str("HashStore()"),
            #[cfg(not(target_family = "wasm"))]
            Kind::File(store) => write!(f, "FileStore('{}')", store.path().display()),
            Kind::Prefix(store, underlying) => {
                write!(f, "PrefixStore('{}', {underlying})", store.prefix())
            }
            #[cfg(feature = "tcp")]
            Kind::Tcp(store) => write!(f, "TCPStore('{}', {})", store.host(), store.port()),
            Kind::WebSocket(url) => write!(f, "WebSocketStore('{url}')"),
        }
    }
}

/// What a person wants to know of it, the same in every language.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Group(group) => write!(f, "{group:?}"),
            Object::NonGroupMember => f.write_str("NonGroupMember"),
            Object::Store(store) => write!(f, "{store}"),
        }
    }
}

fn is_not(object: &Object, wanted: &str) -> Error {
    Error::InvalidType { message: format!("a {} is not a {wanted}", object.type_name()) }
}
