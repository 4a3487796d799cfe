//! JavaScript's arrays as tensors, and as memory to copy from and to. No reference to an array is
//! kept: it is handed over again for each copy, and may have become shorter or empty meanwhile.

use js_sys::{Array, Uint8Array};
use polyrank::calls::staged::{CallerMemory, Described, Memory, Tensors};
use polyrank::{DType, Result};
use wasm_bindgen::{JsCast, JsValue};

use super::value::{dtype, get, invalid, number};
use crate::memory;

/// The tensors of a call: `tensors[i]` are the bytes of the memory that `infos[i]` describes.
///
/// # Errors
/// What describes no tensor.
pub(crate) fn tensors(tensors: &Array, infos: &Array) -> Result<Tensors> {
    let mut buffers: Vec<JsValue> = Vec::new();
    let mut described = Vec::with_capacity(infos.length() as usize);
    for (tensor, info) in tensors.iter().zip(infos.iter()) {
        described.push(describe(&tensor, &info, &mut buffers)?);
    }
    if described.len() != tensors.length() as usize {
        return Err(invalid("there are not as many tensors as descriptions"));
    }
    Tensors::new(described)
}

fn describe(tensor: &JsValue, info: &JsValue, buffers: &mut Vec<JsValue>) -> Result<Described> {
    if let Some(code) = info.as_f64() {
        return flat(dtype(code)?, foreign(tensor, buffers)?);
    }
    let own = get(info, "memory");
    let memory = if own.is_undefined() || own.is_null() {
        foreign(tensor, buffers)?
    } else {
        let region = memory::find(number(&own, "id") as u32);
        Memory::Own(region.ok_or_else(|| invalid("the memory of a tensor was released"))?)
    };
    let mut described = flat(dtype(number(info, "dtype"))?, memory)?;
    described.shape = sizes(&get(info, "shape"))?;
    described.strides = strides(&get(info, "strides"))?;
    if let Some(offset) = get(info, "offset").as_f64() {
        described.offset = size(offset)?;
    }
    described.read_only = get(info, "readOnly").is_truthy();
    Ok(described)
}

fn flat(dtype: DType, memory: Memory) -> Result<Described> {
    let (shape, strides) = (None, None);
    Ok(Described { dtype, shape, strides, offset: 0, read_only: false, memory })
}

/// Memory of JavaScript. Arrays over one buffer have the same number in `buffers`.
fn foreign(tensor: &JsValue, buffers: &mut Vec<JsValue>) -> Result<Memory> {
    let Some(array) = tensor.dyn_ref::<Uint8Array>() else {
        return Err(invalid("a tensor must be given as its bytes"));
    };
    let buffer = JsValue::from(array.buffer());
    let piece = buffers.iter().position(|known| *known == buffer).unwrap_or_else(|| {
        buffers.push(buffer);
        buffers.len() - 1
    });
    let place = (piece, array.byte_offset() as usize);
    Ok(Memory::Foreign { bytes: array.length() as usize, place })
}

fn sizes(list: &JsValue) -> Result<Option<Vec<usize>>> {
    let Some(list) = list.dyn_ref::<Array>() else { return Ok(None) };
    let sizes = list.iter().map(|item| size(item.as_f64().unwrap_or(f64::NAN)));
    sizes.collect::<Result<_>>().map(Some)
}

fn strides(list: &JsValue) -> Result<Option<Vec<isize>>> {
    let Some(list) = list.dyn_ref::<Array>() else { return Ok(None) };
    let strides = list.iter().map(|item| {
        let stride = item.as_f64().unwrap_or(f64::NAN);
        let size = size(stride.abs())? as isize;
        Ok(if stride < 0.0 { -size } else { size })
    });
    strides.collect::<Result<_>>().map(Some)
}

fn size(number: f64) -> Result<usize> {
    let fits = number >= 0.0 && number.fract() == 0.0 && number <= f64::from(i32::MAX);
    if fits { Ok(number as usize) } else { Err(invalid(&format!("{number} is no size"))) }
}

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
