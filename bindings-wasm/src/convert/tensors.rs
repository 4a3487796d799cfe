//! JavaScript's arrays as memory to copy from and to. No reference to an array is kept: it is given
//! again for each copy, and may have become shorter or empty meanwhile.

use js_sys::{Array, Uint8Array};
use polyrank::calls::staged::CallerMemory;
use wasm_bindgen::JsCast;

/// The arrays of a call, for the moment of a copy.
pub(crate) fn memories(tensors: &Array) -> Vec<Bytes> {
    tensors.iter().map(|tensor| Bytes(tensor.unchecked_into())).collect()
}

/// The bytes of one array.
pub(crate) struct Bytes(Uint8Array);

impl CallerMemory for Bytes {
    fn bytes(&self) -> usize {
        self.0.length() as usize
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let (from, to) = (at as u32, (at + into.len()) as u32);
        self.0.subarray(from, to).copy_to(into);
    }

    fn write(&self, at: usize, from: &[u8]) {
        let to = (at + from.len()) as u32;
        self.0.subarray(at as u32, to).copy_from(from);
    }
}
