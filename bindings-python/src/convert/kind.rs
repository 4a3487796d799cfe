//! What sort of value the instances of a Python type are, found once per type. Knows nothing of
//! calls.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyRange, PyType};

use super::buffer;
use super::dlpack::{self, ExchangeTable};
use crate::classes::{
    DeviceMesh, Future, Manager, NonGroupMember, P2POp, ProcessGroup, Store, Work,
};
use crate::record::Record;
use crate::reduce_op::{DType, ReduceOp};

/// How to take a value of some type that is not one of the plain built-in ones.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// `datetime.timedelta`.
    Timedelta,
    /// A NumPy scalar: `item()` returns a plain number.
    Scalar,
    /// A tensor through the buffer protocol.
    Buffer,
    /// A tensor through the type's DLPack exchange table.
    Exchange(&'static ExchangeTable),
    /// A tensor through `__dlpack__`.
    Dlpack,
    /// A tensor through the buffer protocol in memory of the host, and through `__dlpack__` on a
    /// device: CuPy's arrays have buffers that nobody gets.
    BufferOrDlpack,
    /// A `range`: a sequence of integers.
    Range,
    /// An integer through `__index__`.
    Index,
    /// An integer through `__int__`, unless something is lost by it.
    Int,
    /// A `ReduceOp`.
    ReduceOp,
    /// A `DType`.
    DType,
    /// An options record.
    Record,
    /// Anything else: only Python knows what it is. The interfaces of the IDL that it has.
    Foreign(&'static [&'static str]),
}

/// Programs with more types than this make them in a loop; their answers are not kept.
const TYPES_KEPT: usize = 512;

/// Answers by the address of the type, which is kept alive so that the address stays its own.
type KnownTypes = HashMap<usize, (Py<PyType>, Kind)>;

/// The kind of `object`.
pub(super) fn kind_of(object: &Bound<'_, PyAny>) -> Kind {
    static KNOWN: PyOnceLock<Mutex<KnownTypes>> = PyOnceLock::new();
    let class = object.get_type();
    let address = class.as_ptr() as usize;
    let known = KNOWN.get_or_init(object.py(), Mutex::default);
    let answer = known.lock().unwrap_or_else(PoisonError::into_inner).get(&address).map(|k| k.1);
    if let Some(kind) = answer {
        return kind;
    }
    // No lock is held here: looking attributes up may run any code.
    let kind = classify(object, &class);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < TYPES_KEPT {
        known.insert(address, (class.unbind(), kind));
    }
    kind
}

fn classify(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> Kind {
    let py = object.py();
    if object.is_instance_of::<ReduceOp>() {
        return Kind::ReduceOp;
    }
    if object.is_instance_of::<DType>() {
        return Kind::DType;
    }
    // They have the buffer protocol, but they are values, not memory to reduce into.
    if is_of_numpy(class, "generic") {
        return Kind::Scalar;
    }
    let has_dlpack = || class.hasattr(intern!(py, "__dlpack__")).unwrap_or(false);
    if buffer::supports(object) {
        return match !is_of_numpy(class, "ndarray") && has_dlpack() {
            true => Kind::BufferOrDlpack,
            false => Kind::Buffer,
        };
    }
    if let Some(table) = dlpack::exchange_table(class.as_any()) {
        return Kind::Exchange(table);
    }
    if has_dlpack() {
        return Kind::Dlpack;
    }
    if object.is_instance_of::<PyRange>() {
        return Kind::Range;
    }
    if is_timedelta(object) {
        return Kind::Timedelta;
    }
    if class.hasattr(intern!(py, "__index__")).unwrap_or(false) {
        return Kind::Index;
    }
    if object.is_instance_of::<Record>() {
        return Kind::Record;
    }
    let interfaces = interfaces(object);
    // A function is a function, whatever else its class has.
    let has_int = || class.hasattr(intern!(py, "__int__")).unwrap_or(false);
    if interfaces.is_empty() && !object.is_callable() && has_int() {
        return Kind::Int;
    }
    Kind::Foreign(interfaces)
}

/// The interfaces of the IDL that parameters may ask for, as far as `object` has them.
fn interfaces(object: &Bound<'_, PyAny>) -> &'static [&'static str] {
    // Who is not a member may give what stands for the group.
    if object.is_instance_of::<ProcessGroup>() || object.is_instance_of::<NonGroupMember>() {
        &["ProcessGroup"]
    } else if object.is_instance_of::<Store>() {
        &["Store"]
    } else if object.is_instance_of::<Work>() {
        &["Work"]
    } else if object.is_instance_of::<Future>() {
        &["Future"]
    } else if object.is_instance_of::<P2POp>() {
        &["P2POp"]
    } else if object.is_instance_of::<DeviceMesh>() {
        &["DeviceMesh"]
    } else if object.is_instance_of::<Manager>() {
        &["Manager"]
    } else {
        &[]
    }
}

/// Whether a type is NumPy's of this name, or derived from it.
fn is_of_numpy(class: &Bound<'_, PyType>, wanted: &str) -> bool {
    class.mro().iter().any(|base| {
        base.cast_into::<PyType>().is_ok_and(|base| {
            base.name().is_ok_and(|name| name == wanted)
                && base.module().is_ok_and(|module| module == "numpy")
        })
    })
}

fn is_timedelta(object: &Bound<'_, PyAny>) -> bool {
    static TIMEDELTA: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TIMEDELTA
        .import(object.py(), "datetime", "timedelta")
        .is_ok_and(|class| object.is_instance(class).unwrap_or(false))
}
