//! Bodies of methods that are not made from the IDL: those whose arguments or results only Python
//! has, or that do more than one call of the core. One module for each class, and one for the free
//! functions; each function gets the object and the call whose overload is known.

pub(crate) mod distributed;
pub(crate) mod file_store;
pub(crate) mod future;
pub(crate) mod hash_store;
mod objects;
pub(crate) mod p2p_op;
mod point_to_point;
pub(crate) mod prefix_store;
pub(crate) mod prepared_operation;
pub(crate) mod process_group;
mod rendezvous;
mod settings;
pub(crate) mod store;
pub(crate) mod tcp_store;
pub(crate) mod web_socket_store;
pub(crate) mod work;
