//! Arrays of integers or of truth values where a list of them is expected: sizes, ranks, pairs.
//! Knows no calls.

use super::value::Value;
use crate::generated::dtype::DType;
use crate::request::Type;
use crate::tensor::{Device, Tensor};

/// Whether `tensor` can stand for a list of this type. One without elements stands for a list
/// without any, whatever its type is: that is what NumPy makes of an empty list.
pub(super) fn is_list(tensor: &Tensor, ty: &Type) -> bool {
    let Some((kind, depth)) = item(ty) else { return false };
    let fits = match kind {
        _ if tensor.elements() == 0 => true,
        Type::Bool => tensor.dtype() == DType::Bool,
        _ => is_integer(tensor.dtype()),
    };
    fits && tensor.device() == Device::Cpu && depth == tensor.shape().len()
}

/// The elements as lists in lists, one level for each dimension.
pub(super) fn list(tensor: &Tensor) -> Value {
    let value = match tensor.dtype() {
        DType::Bool => |number| Value::Bool(number != 0),
        _ => Value::Int,
    };
    rows(tensor.shape(), &mut numbers(tensor).into_iter().map(value))
}

fn rows(shape: &[usize], elements: &mut impl Iterator<Item = Value>) -> Value {
    match shape {
        [] => elements.next().unwrap_or(Value::None),
        [length, inner @ ..] => Value::List((0..*length).map(|_| rows(inner, elements)).collect()),
    }
}

/// What is in a list of this type, and how many lists are in one another; none if that is neither
/// integers nor truth values.
fn item(ty: &Type) -> Option<(&Type, usize)> {
    match ty {
        Type::Sequence(kind @ (Type::Int | Type::Bool)) => Some((kind, 1)),
        Type::Sequence(inner) => item(inner).map(|(kind, depth)| (kind, depth + 1)),
        _ => None,
    }
}

/// Whether elements are integers.
pub(super) fn is_integer(dtype: DType) -> bool {
    is_signed(dtype) || matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The elements in C order. What is more than any length or rank stays more.
pub(super) fn numbers(tensor: &Tensor) -> Vec<i64> {
    let contiguous = tensor.to_contiguous();
    let unused_bits = 64 - 8 * tensor.dtype().size_bytes();
    contiguous.region().read(|bytes| {
        let elements = bytes.chunks_exact(tensor.dtype().size_bytes());
        let number = |element: &[u8]| {
            // The element's lowest byte comes first.
            let byte = |at| match cfg!(target_endian = "big") {
                true => element.iter().rev().nth(at),
                false => element.get(at),
            };
            let word = (0..8).map(|at| byte(at).copied().unwrap_or(0));
            let bits = word.rev().fold(0, |bits, byte| bits << 8 | u64::from(byte));
            match is_signed(tensor.dtype()) {
                true => (bits << unused_bits).cast_signed() >> unused_bits,
                false => i64::try_from(bits).unwrap_or(i64::MAX),
            }
        };
        elements.map(number).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Element, Region};

    fn shaped<T: Element>(elements: Vec<T>, shape: &[usize]) -> Tensor {
        let tensor = Tensor::from(elements);
        Tensor::contiguous(tensor.region().clone(), tensor.dtype(), shape.to_vec())
    }

    fn list_of<T: Element>(elements: Vec<T>, shape: &[usize]) -> String {
        format!("{:?}", list(&shaped(elements, shape)))
    }

    fn expected(numbers: &[i64]) -> String {
        format!("{:?}", Value::List(numbers.iter().copied().map(Value::Int).collect()))
    }

    #[test]
    fn every_type_keeps_its_numbers() {
        assert_eq!(list_of(vec![-128i8, 127], &[2]), expected(&[-128, 127]));
        assert_eq!(list_of(vec![-2i16], &[1]), expected(&[-2]));
        assert_eq!(list_of(vec![i32::MIN, 5], &[2]), expected(&[i64::from(i32::MIN), 5]));
        assert_eq!(list_of(vec![i64::MIN, i64::MAX], &[2]), expected(&[i64::MIN, i64::MAX]));
        assert_eq!(list_of(vec![255u8], &[1]), expected(&[255]));
        assert_eq!(list_of(vec![65535u16], &[1]), expected(&[65535]));
        assert_eq!(list_of(vec![u32::MAX], &[1]), expected(&[i64::from(u32::MAX)]));
        assert_eq!(list_of(vec![u64::MAX, 3], &[2]), expected(&[i64::MAX, 3]));
        assert_eq!(list_of(Vec::<i32>::new(), &[0]), expected(&[]));
    }

    #[test]
    fn rows_are_lists() {
        let row = |numbers: [i64; 2]| Value::List(numbers.map(Value::Int).to_vec());
        let rows = Value::List(vec![row([1, 2]), row([3, 4]), row([5, 6])]);
        assert_eq!(list_of((1..=6).collect::<Vec<i64>>(), &[3, 2]), format!("{rows:?}"));
        let empty = Value::List(vec![Value::List(Vec::new()); 3]);
        assert_eq!(list_of(Vec::<i64>::new(), &[3, 0]), format!("{empty:?}"));
    }

    #[test]
    fn truth_values_are_lists_too() {
        let [yes, no] = [true, false].map(Value::Bool);
        let tensor = Tensor::contiguous(Region::from_vec(vec![1, 0, 2]), DType::Bool, vec![3]);
        assert_eq!(
            format!("{:?}", list(&tensor)),
            format!("{:?}", Value::List(vec![yes.clone(), no, yes]))
        );
        static FLAGS: Type = Type::Sequence(&Type::Bool);
        assert!(is_list(&tensor, &FLAGS) && !is_list(&tensor, &Type::Sequence(&Type::Int)));
        assert!(!is_list(&Tensor::from(vec![1i32]), &FLAGS), "an integer is not a truth value");
    }

    #[test]
    fn an_array_without_elements_is_an_empty_list_of_anything() {
        static FLAGS: Type = Type::Sequence(&Type::Bool);
        static PAIRS: Type = Type::Sequence(&Type::Sequence(&Type::Int));
        let nothing = Tensor::from(Vec::<f64>::new());
        assert!(is_list(&nothing, &FLAGS) && is_list(&nothing, &Type::Sequence(&Type::Int)));
        assert!(!is_list(&nothing, &PAIRS) && is_list(&shaped(Vec::<f32>::new(), &[0, 2]), &PAIRS));
        assert!(!is_list(&nothing, &Type::Sequence(&Type::Tensor)));
        assert_eq!(format!("{:?}", list(&nothing)), expected(&[]));
    }

    #[test]
    fn only_integers_of_as_many_dimensions_are_taken() {
        static PAIRS: Type = Type::Sequence(&Type::Sequence(&Type::Int));
        static SIZES: Type = Type::Sequence(&Type::Int);
        let line = Tensor::from(vec![1i32, 2]);
        assert!(is_list(&line, &SIZES) && !is_list(&line, &PAIRS));
        assert!(is_list(&shaped(vec![1i32, 2], &[1, 2]), &PAIRS));
        assert!(!is_list(&Tensor::from(vec![1.0f32]), &SIZES));
        assert!(!is_list(&line, &Type::Sequence(&Type::Str)));
    }
}
