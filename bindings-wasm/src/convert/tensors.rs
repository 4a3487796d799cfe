//! JavaScript's arrays as memory to copy from and to. No reference to an array is kept: it is given
//! again for each copy, and may have become shorter or empty meanwhile.

use std::cell::RefCell;

use js_sys::{Array, Uint8Array};
use polyrank::calls::staged::CallerMemory;
use wasm_bindgen::JsCast;

/// The arrays of a call, for the moment of a copy.
pub(crate) fn memories(tensors: &Array) -> Vec<Bytes<'static>> {
    tensors.iter().map(|tensor| Bytes::Array(tensor.unchecked_into())).collect()
}

/// The bytes of one array.
pub(crate) enum Bytes<'a> {
    /// They are in JavaScript's memory.
    Array(Uint8Array),
    /// JavaScript has copied them here, and copies the result from here.
    Copied(RefCell<&'a mut [u8]>),
}

impl CallerMemory for Bytes<'_> {
    fn bytes(&self) -> usize {
        match self {
            Bytes::Array(array) => array.length() as usize,
            Bytes::Copied(bytes) => bytes.borrow().len(),
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let to = at + into.len();
        match self {
            Bytes::Array(array) => array.subarray(at as u32, to as u32).copy_to(into),
            Bytes::Copied(bytes) => into.copy_from_slice(&bytes.borrow()[at..to]),
        }
    }

    fn write(&self, at: usize, from: &[u8]) {
        let to = at + from.len();
        match self {
            Bytes::Array(array) => array.subarray(at as u32, to as u32).copy_from(from),
            Bytes::Copied(bytes) => bytes.borrow_mut()[at..to].copy_from_slice(from),
        }
    }
}
