//! What is done to elements on this host: dividing a sum, and making them what changes nothing.

use half::{bf16, f16};
use polyrank::{DType, ReduceOp, Tensor};

/// Whether elements can be divided.
pub(crate) fn is_divisible(dtype: DType) -> bool {
    use DType::{Bf16, Complex64, Complex128, F16, F32, F64};
    matches!(dtype, F16 | Bf16 | F32 | F64 | Complex64 | Complex128)
}

/// Divides every element, rounding once. The tensor is on the host.
pub(crate) fn divide(tensor: &Tensor, by: u32) {
    let dtype = tensor.dtype();
    change(tensor, |bytes| match dtype {
        // The quotient in 32 bits, rounded to 16, is the quotient rounded to 16.
        DType::F16 => each(bytes, f16::from_ne_bytes, |it| {
            f16::from_f32(it.to_f32() / by as f32).to_ne_bytes()
        }),
        DType::Bf16 => each(bytes, bf16::from_ne_bytes, |it| {
            bf16::from_f32(it.to_f32() / by as f32).to_ne_bytes()
        }),
        DType::F32 | DType::Complex64 => {
            each(bytes, f32::from_ne_bytes, |it| (it / by as f32).to_ne_bytes());
        }
        DType::F64 | DType::Complex128 => {
            each(bytes, f64::from_ne_bytes, |it| (it / f64::from(by)).to_ne_bytes());
        }
        // Refused before anything is sent.
        _ => {}
    });
}

/// Makes every element what changes no result of `op`. The tensor is on the host.
pub(crate) fn fill(tensor: &Tensor, element: &[u8]) {
    change(tensor, |bytes| {
        bytes.chunks_exact_mut(element.len()).for_each(|it| it.copy_from_slice(element));
    });
}

/// The bytes of an element that changes no result of `op`; none for operators without one.
pub(crate) fn neutral(op: ReduceOp, dtype: DType) -> Option<Vec<u8>> {
    let zero = vec![0; dtype.size_bytes()];
    Some(match op {
        ReduceOp::Sum
        | ReduceOp::Avg
        | ReduceOp::PremulSum(_)
        | ReduceOp::Bor
        | ReduceOp::Bxor
        | ReduceOp::Lor
        | ReduceOp::Lxor => zero,
        ReduceOp::Band => vec![if dtype == DType::Bool { 1 } else { 255 }; zero.len()],
        ReduceOp::Product | ReduceOp::Land => one(dtype),
        ReduceOp::Min => extremes(dtype).1,
        ReduceOp::Max => extremes(dtype).0,
        ReduceOp::Custom(_) | ReduceOp::Maxloc | ReduceOp::Minloc => return None,
    })
}

fn one(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => vec![1],
        DType::U16 | DType::I16 => 1_u16.to_ne_bytes().to_vec(),
        DType::U32 | DType::I32 => 1_u32.to_ne_bytes().to_vec(),
        DType::U64 | DType::I64 => 1_u64.to_ne_bytes().to_vec(),
        DType::F16 => f16::ONE.to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::ONE.to_ne_bytes().to_vec(),
        DType::F32 => 1_f32.to_ne_bytes().to_vec(),
        DType::F64 => 1_f64.to_ne_bytes().to_vec(),
        DType::Complex64 => [1_f32, 0.0].iter().flat_map(|it| it.to_ne_bytes()).collect(),
        DType::Complex128 => [1_f64, 0.0].iter().flat_map(|it| it.to_ne_bytes()).collect(),
    }
}

/// The least and the greatest element. Complex ones have none, and nothing asks for them.
fn extremes(dtype: DType) -> (Vec<u8>, Vec<u8>) {
    macro_rules! of {
        ($least:expr, $greatest:expr) => {
            ($least.to_ne_bytes().to_vec(), $greatest.to_ne_bytes().to_vec())
        };
    }
    match dtype {
        DType::Bool => (vec![0], vec![1]),
        DType::U8 => of!(u8::MIN, u8::MAX),
        DType::I8 => of!(i8::MIN, i8::MAX),
        DType::U16 => of!(u16::MIN, u16::MAX),
        DType::I16 => of!(i16::MIN, i16::MAX),
        DType::U32 => of!(u32::MIN, u32::MAX),
        DType::I32 => of!(i32::MIN, i32::MAX),
        DType::U64 => of!(u64::MIN, u64::MAX),
        DType::I64 => of!(i64::MIN, i64::MAX),
        DType::F16 => of!(f16::NEG_INFINITY, f16::INFINITY),
        DType::Bf16 => of!(bf16::NEG_INFINITY, bf16::INFINITY),
        DType::F32 => of!(f32::NEG_INFINITY, f32::INFINITY),
        DType::F64 => of!(f64::NEG_INFINITY, f64::INFINITY),
        DType::Complex64 | DType::Complex128 => {
            (vec![0; dtype.size_bytes()], vec![0; dtype.size_bytes()])
        }
    }
}

fn change(tensor: &Tensor, change: impl FnOnce(&mut [u8])) {
    if tensor.is_contiguous() {
        tensor.region().write(|bytes| change(&mut bytes[..tensor.bytes()]));
        return;
    }
    let dense = tensor.to_contiguous();
    dense.region().write(change);
    tensor.copy_from(dense.region());
}

fn each<T, const N: usize>(
    bytes: &mut [u8],
    read: impl Fn([u8; N]) -> T,
    changed: impl Fn(T) -> [u8; N],
) {
    let (elements, _) = bytes.as_chunks_mut();
    elements.iter_mut().for_each(|element| *element = changed(read(*element)));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use polyrank::Region;

    use super::*;

    #[test]
    fn a_third_of_every_float_is_the_nearest() {
        let tensor = Tensor::from(vec![f16::from_f32(10.0), f16::from_f32(-1.0)]);
        divide(&tensor, 3);
        let exact = [10.0 / 3.0, -1.0 / 3.0].map(f16::from_f64);
        assert_eq!(tensor.into_vec::<f16>().unwrap(), exact);
        let tensor = Tensor::from(vec![bf16::from_f32(10.0)]);
        divide(&tensor, 3);
        assert_eq!(tensor.into_vec::<bf16>().unwrap(), [bf16::from_f64(10.0 / 3.0)]);
        let tensor = Tensor::from(vec![[10.0_f32, 1.0], [f32::INFINITY, -0.0]]);
        divide(&tensor, 3);
        let expected = [[10.0_f32 / 3.0, 1.0 / 3.0], [f32::INFINITY, -0.0]];
        assert_eq!(tensor.into_vec::<[f32; 2]>().unwrap(), expected);
        let tensor = Tensor::from(Vec::<f64>::new());
        divide(&tensor, 3);
        assert!(tensor.into_vec::<f64>().unwrap().is_empty());
    }

    #[test]
    fn what_lies_between_the_elements_of_a_view_stays() {
        let all = Tensor::from((0..12_u8).map(f32::from).collect::<Vec<_>>());
        let region: Region = all.region().clone();
        // Every third.
        divide(&Tensor::strided(region, DType::F32, vec![4], vec![3], 0), 2);
        let expected = [0.0, 1.0, 2.0, 1.5, 4.0, 5.0, 3.0, 7.0, 8.0, 4.5, 10.0, 11.0];
        assert_eq!(all.into_vec::<f32>().unwrap(), expected);
    }
}
