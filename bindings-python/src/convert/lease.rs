//! Memory borrowed from Python objects, and how it is given back. Knows nothing of tensors.
//!
//! The last region of a tensor may be dropped on a thread that does not hold the GIL, under the
//! progress lock, while another thread holds the GIL and waits for that lock. Dropping therefore
//! never attaches to the interpreter: it puts the memory on a list, and the list is emptied by the
//! next call of this package, or by the main thread between two byte codes, whichever is first.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use polyrank::Tensor;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Gives back what a library exported.
pub(super) type GiveBack = unsafe fn(NonNull<c_void>);

/// What must be called to give memory back. All of it needs the GIL.
enum HeldMemory {
    Buffer(Box<ffi::Py_buffer>),
    Exported(NonNull<c_void>, GiveBack),
    Object(Py<PyAny>),
}

// SAFETY: the pointers are only followed by `HeldMemory::release`, which runs with the GIL held;
// until then they are mere numbers that one owner carries from thread to thread.
unsafe impl Send for HeldMemory {}
// SAFETY: as above; a shared reference gives access to nothing.
unsafe impl Sync for HeldMemory {}

/// Keeps a Python object's memory valid until it is dropped, on any thread.
pub(super) struct Lease(Option<HeldMemory>);

impl Lease {
    /// Owns a buffer that `PyObject_GetBuffer` filled. Boxed: exporters may point into it.
    pub(super) fn buffer(view: Box<ffi::Py_buffer>) -> Lease {
        Lease(Some(HeldMemory::Buffer(view)))
    }

    /// Owns an object whose memory is its own for as long as it lives.
    pub(super) fn object(object: Py<PyAny>) -> Lease {
        Lease(Some(HeldMemory::Object(object)))
    }

    /// Owns what a library exported.
    ///
    /// # Safety
    /// Nobody else gives it back, and `give_back` may be called with it, by a thread that holds the
    /// GIL.
    pub(super) unsafe fn exported(exported: NonNull<c_void>, give_back: GiveBack) -> Lease {
        Lease(Some(HeldMemory::Exported(exported, give_back)))
    }
}

/// Shows Python's collector the object whose memory a tensor is.
pub(crate) fn visit_memory(tensor: &Tensor, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    match tensor.region().owner::<Lease>().and_then(|lease| lease.0.as_ref()) {
        Some(HeldMemory::Object(object)) => visit.call(object),
        Some(HeldMemory::Buffer(view)) => match NonNull::new(view.obj) {
            // SAFETY: a buffer that is not released has a reference to its object, and a `Py` is
            // no more than the pointer of one. It is only looked at.
            Some(_) => visit.call(unsafe { &*(&raw const view.obj).cast::<Py<PyAny>>() }),
            None => Ok(()),
        },
        // What a library exported it does not show.
        Some(HeldMemory::Exported(..)) | None => Ok(()),
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            defer(held);
        }
    }
}

impl HeldMemory {
    fn release(self, py: Python<'_>) {
        match self {
            // SAFETY: filled by `PyObject_GetBuffer` and released only here; the GIL is held.
            HeldMemory::Buffer(mut view) => unsafe { ffi::PyBuffer_Release(&raw mut *view) },
            HeldMemory::Object(object) => object.drop_ref(py),
            // SAFETY: the promise of `Lease::exported`; the GIL is held, and this is the owner.
            HeldMemory::Exported(exported, give_back) => unsafe { give_back(exported) },
        }
    }
}

/// What was dropped, and what was dropped before it.
struct DroppedMemory {
    held: HeldMemory,
    before: *mut DroppedMemory,
}

/// The last that was dropped. No lock is around it: a thread that had it would not be there any
/// more in a forked child, which would wait for it for ever.
static RELEASED: AtomicPtr<DroppedMemory> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// How many calls of [`releasing`] are on this thread's stack.
    static RELEASES_SOON: Cell<usize> = const { Cell::new(0) };
}

/// Calls `f`, then gives back what was dropped meanwhile. Every entry from Python that drops a
/// tensor goes through here; one that drops some at times, and cannot wait, calls
/// [`release_all`].
pub(crate) fn releasing<R>(py: Python<'_>, f: impl FnOnce() -> R) -> R {
    struct Depth<'a>(&'a Cell<usize>);
    impl Drop for Depth<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let result = RELEASES_SOON.with(|depth| {
        depth.set(depth.get() + 1);
        let _depth = Depth(depth);
        f()
    });
    release_all(py);
    result
}

/// Gives back everything that was dropped. Exporters may run any code meanwhile, so no lock is
/// held.
pub(super) fn release_all(py: Python<'_>) {
    while !RELEASED.load(Ordering::Relaxed).is_null() {
        let mut last = RELEASED.swap(std::ptr::null_mut(), Ordering::Acquire);
        while !last.is_null() {
            // SAFETY: it was a box, and the caller that takes the list is its only owner.
            let DroppedMemory { held, before } = *unsafe { Box::from_raw(last) };
            last = before;
            held.release(py);
        }
    }
}

fn defer(held: HeldMemory) {
    let dropped = Box::into_raw(Box::new(DroppedMemory { held, before: std::ptr::null_mut() }));
    let mut before = RELEASED.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else knows it before it is the last.
        unsafe { (*dropped).before = before };
        let (published, read) = (Ordering::Release, Ordering::Relaxed);
        match RELEASED.compare_exchange_weak(before, dropped, published, read) {
            Ok(_) => break,
            Err(other) => before = other,
        }
    }
    if before.is_null() && RELEASES_SOON.get() == 0 {
        // SAFETY: both may be called by any thread, attached or not. After the interpreter's end
        // the memory is leaked, as there is nobody to give it back to. A full queue of pending
        // calls is no harm: the next call of this package empties the list.
        unsafe {
            if ffi::Py_IsInitialized() != 0 {
                ffi::Py_AddPendingCall(Some(release_pending), std::ptr::null_mut());
            }
        }
    }
}

/// Called by the interpreter's main thread, attached, between two byte codes.
extern "C" fn release_pending(_: *mut c_void) -> c_int {
    // A failure to attach means that the interpreter is ending.
    let _ = Python::try_attach(release_all);
    0
}
