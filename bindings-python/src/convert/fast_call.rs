//! Calls of the usual shape: contiguous NumPy arrays, arguments by position. Those of few bytes run
//! immediately, larger ones are issued as they are. The resolver decides what a call means; calls
//! of any other shape go there.

#![allow(unsafe_code)]

use std::time::Duration;

use polyrank::backend::{LentMemory, WaitIntent};
use polyrank::calls::{Constant, Method, Parameter, Role, Type};
use polyrank::process_group::{FastPathResult, HeldBuffers};
use polyrank::request::SingleTensorRequest;
use polyrank::{Collective, DType, ProcessGroup, Region, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use super::array::Array;
use super::lease::{Lease, release_all, releasing};
use crate::classes::{ProcessGroup as PyProcessGroup, TensorObjects};
use crate::reduce_op::ReduceOp;

/// Most tensors of a call that is fast.
const MAX_TENSORS: usize = 2;

/// A call of a collective whose overload is known by its shape.
pub(super) struct FastCall<'a, 'py> {
    plain: SingleTensorRequest,
    /// With their objects: in place, or output and input.
    arrays: [Option<(Array, Borrowed<'a, 'py, PyAny>)>; MAX_TENSORS],
    group: Option<Borrowed<'a, 'py, PyAny>>,
    root: Option<u32>,
    global_root: Option<u32>,
    /// Whether the caller wants a handle of a free function.
    pub(super) async_op: bool,
}

impl<'a, 'py> FastCall<'a, 'py> {
    /// The call of `method` with these arguments, if its shape is usual.
    pub(super) fn of(
        method: &'static Method,
        positional: &'a Bound<'py, PyTuple>,
    ) -> Option<FastCall<'a, 'py>> {
        let collective = method.collective.filter(|_| !method.coalesced && !method.unbuilt)?;
        let overload = method.overloads.iter().find(|overload| {
            overload.parameters.len() >= positional.len() && is_fast_path(overload.parameters)
        })?;
        let mut fast = FastCall {
            plain: SingleTensorRequest {
                collective,
                name: method.name,
                dtype: DType::U8,
                reduce_op: polyrank::ReduceOp::Sum,
                root: 0,
                timeout: None,
                waiting: WaitIntent::Later,
                epoch: None,
            },
            arrays: [None; MAX_TENSORS],
            group: None,
            root: None,
            global_root: None,
            async_op: false,
        };
        let (given, left_out) = overload.parameters.split_at(positional.len());
        let mut tensors = 0;
        let mut has_root = !collective.facts().rooted;
        for (parameter, item) in given.iter().zip(positional.iter_borrowed()) {
            match parameter.role {
                Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut => {
                    let array = Array::of(&item)?;
                    *fast.arrays.get_mut(tensors)? = Some((array, item));
                    tensors += 1;
                }
                Role::Op => {
                    let reduce_op = item.cast_exact::<ReduceOp>().ok()?.get().get();
                    fast.plain.reduce_op = reduce_op.ok()?;
                }
                Role::Root | Role::GlobalRoot if item.is_none() => {}
                Role::Root => {
                    fast.root = Some(item.cast_exact::<PyInt>().ok()?.extract().ok()?);
                    has_root = true;
                }
                Role::GlobalRoot => {
                    fast.global_root = item.cast_exact::<PyInt>().ok()?.extract().ok();
                    has_root = true;
                    fast.global_root?;
                }
                Role::AsyncOp => fast.async_op = item.cast_exact::<PyBool>().ok()?.is_true(),
                Role::Group if item.is_none() => {}
                Role::Group => fast.group = Some(item),
                _ if item.is_none() => {}
                _ => return None,
            }
        }
        let defaults = left_out.iter().all(|it| it.optional && is_fast_default(it));
        (defaults && has_root).then_some(fast)
    }

    /// Carries the call out or issues it, on the group that was given, or on `group`, or on the
    /// default group; the handle and the operation's limit. None if nothing was done.
    pub(super) fn run(
        &mut self,
        py: Python<'py>,
        group: Option<&ProcessGroup>,
        waiting: WaitIntent,
    ) -> Option<polyrank::Result<(polyrank::Work, Duration)>> {
        let given = match &self.group {
            Some(object) => Some(&object.cast_exact::<PyProcessGroup>().ok()?.get().inner),
            None => group,
        };
        match given {
            Some(group) => self.run_in(py, group, waiting),
            None => distributed::with_default_group(|it| self.run_in(py, it, waiting))?,
        }
    }

    fn run_in(
        &mut self,
        py: Python<'py>,
        group: &ProcessGroup,
        waiting: WaitIntent,
    ) -> Option<polyrank::Result<(polyrank::Work, Duration)>> {
        let epoch = Some(group.epoch());
        let mut plain = SingleTensorRequest { waiting, epoch, ..self.plain };
        match (self.root, self.global_root) {
            (Some(_), Some(_)) => return None,
            (None, Some(root)) => plain.root = group.group_rank(root).ok()?,
            (root, None) => plain.root = root.unwrap_or(0),
        }
        let timeout = plain.timeout.unwrap_or_else(|| group.timeout());
        let mut memory = match (&self.arrays[0], &self.arrays[1]) {
            (None, _) => LentMemory::InPlace(&mut []),
            (Some((array, _)), None) => {
                plain.dtype = array.dtype;
                LentMemory::InPlace(writable(array)?)
            }
            (Some((output, _)), Some((input, _))) => {
                if output.dtype != input.dtype || output.overlaps(input) {
                    return None;
                }
                let size = group.size() as usize;
                let has_parts = |array: &Array| array.rows.is_multiple_of(size);
                // Its parts are whole rows.
                let in_rows = plain.collective == Collective::Alltoall;
                if in_rows && !(has_parts(output) && has_parts(input)) {
                    return None;
                }
                plain.dtype = output.dtype;
                LentMemory::Apart(readable(input), writable(output)?)
            }
        };
        let kept = || HeldBuffers {
            input: self.arrays[1].as_ref().map(|(array, object)| region(array, object)),
            output: match &self.arrays[0] {
                Some((array, object)) => region(array, object),
                None => Region::zeroed(0),
            },
        };
        let tried = group.try_plain(&plain, &mut memory);
        if let Some(FastPathResult::Done(work)) = tried {
            release_all(py);
            return Some(Ok((work, timeout)));
        }
        releasing(py, || {
            if let Some(tried) = tried {
                return Some(Ok((tried.work(kept), timeout)));
            }
            let kept = kept();
            let issued = py.detach(|| group.issue_plain(&plain, kept))?;
            Some(issued.map(|work| (work, timeout)))
        })
    }

    /// The object that holds the result: an array of the host.
    pub(super) fn objects(&self) -> TensorObjects {
        let output = self.arrays[0].iter().map(|(_, object)| Bound::clone(object).unbind());
        TensorObjects { outputs: output.collect(), read: None }
    }
}

/// The memory of an array that is written, if it may be.
pub(super) fn writable<'a>(array: &Array) -> Option<&'a mut [u8]> {
    // SAFETY: the array is alive for as long as the call, whose arguments hold it, its memory is as
    // large as it says, and the GIL is held; what other threads do with it meanwhile is the
    // caller's affair. The slice does not leave the call.
    array
        .writable
        .then(|| unsafe { std::slice::from_raw_parts_mut(array.data.as_ptr(), array.bytes) })
}

/// The memory of an array that is read.
pub(super) fn readable<'a>(array: &Array) -> &'a [u8] {
    // SAFETY: as in `writable`.
    unsafe { std::slice::from_raw_parts(array.data.as_ptr().cast_const(), array.bytes) }
}

/// The memory of `array`, which `object` is, for as long as an operation needs it.
pub(super) fn region(array: &Array, object: &Borrowed<'_, '_, PyAny>) -> Region {
    let lease = Lease::object(Bound::clone(object).unbind());
    // SAFETY: the lease keeps the array, and the array its memory.
    unsafe { Region::from_raw_parts(array.data.as_ptr(), array.bytes, Some(Box::new(lease))) }
}

/// Whether an overload takes tensors one by one, and nothing that has to be looked into.
fn is_fast_path(parameters: &[Parameter]) -> bool {
    parameters.iter().all(|parameter| match parameter.role {
        Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut => {
            matches!(parameter.ty, Type::Tensor)
        }
        Role::Options => false,
        _ => true,
    })
}

fn is_fast_default(parameter: &Parameter) -> bool {
    match parameter.default {
        None | Some(Constant::Null | Constant::Bool(false) | Constant::EmptySequence) => true,
        Some(Constant::ReduceOp(reduce_op)) => reduce_op == polyrank::ReduceOp::Sum,
        Some(Constant::Int(number)) => number == 0,
        _ => false,
    }
}
