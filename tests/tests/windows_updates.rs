//! Updates of other ranks' memory that many make at once, with real processes: every operator and
//! element type, by load and store, by frames, and by both at once. Expected values come from
//! arithmetic with small integers, which every element type has exactly.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{DType, ProcessGroup, ReduceOp, Tensor, Window};
use polyrank_tests::processes::{all_went_well, processes, with_variable};
use polyrank_tests::windows::MAPPED_ELEMENTS;

/// How the ranks go to one another's memory, by what they are told.
const WAYS: [(&str, &str); 4] = [
    ("POLYRANK_COPY", "auto"),
    ("POLYRANK_COPY", "slots"),
    ("POLYRANK_TRANSPORT", "tcp"),
    // Rank 0's memory is mapped by every other rank, but not by those between them.
    ("POLYRANK_COPY", "{by rank}auto,slots"),
];

const OPERATORS: [ReduceOp; 11] = [
    ReduceOp::Sum,
    ReduceOp::Product,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Band,
    ReduceOp::Bor,
    ReduceOp::Bxor,
    ReduceOp::PremulSum(2.0),
    ReduceOp::Land,
    ReduceOp::Lor,
    ReduceOp::Lxor,
];

/// The bytes of one element with this value, from 0 to 127.
fn element(dtype: DType, value: u32) -> Vec<u8> {
    let half = || match value.checked_ilog2() {
        // IEEE 754 binary16: five bits of exponent, ten of fraction.
        Some(log) => (((log + 15) << 10) | ((value << (10 - log)) & 0x3ff)) as u16,
        None => 0,
    };
    let (single, double) = (value as f32, f64::from(value));
    match dtype {
        DType::Bool => vec![u8::from(value > 0)],
        DType::U8 | DType::I8 => vec![value as u8],
        DType::U16 | DType::I16 => (value as u16).to_ne_bytes().into(),
        DType::U32 | DType::I32 => value.to_ne_bytes().into(),
        DType::U64 | DType::I64 => u64::from(value).to_ne_bytes().into(),
        DType::F16 => half().to_ne_bytes().into(),
        DType::Bf16 => ((single.to_bits() >> 16) as u16).to_ne_bytes().into(),
        DType::F32 => single.to_ne_bytes().into(),
        DType::F64 => double.to_ne_bytes().into(),
        DType::Complex64 => [single.to_ne_bytes(), (single + 1.0).to_ne_bytes()].concat(),
        DType::Complex128 => [double.to_ne_bytes(), (double + 1.0).to_ne_bytes()].concat(),
    }
}

fn elements(dtype: DType, values: impl IntoIterator<Item = u32>) -> Tensor {
    let bytes: Vec<u8> = values.into_iter().flat_map(|value| element(dtype, value)).collect();
    let shape = [bytes.len() / dtype.size_bytes()];
    let tensor = Tensor::zeros(dtype, &shape).unwrap();
    tensor.region().write(|memory| memory.copy_from_slice(&bytes));
    tensor
}

fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    tensor.region().read(<[u8]>::to_vec)
}

/// What two values become.
fn reduced(op: ReduceOp, dtype: DType, one: u32, other: u32) -> u32 {
    let value = match op {
        ReduceOp::Sum => one + other,
        ReduceOp::PremulSum(_) => one + 2 * other,
        ReduceOp::Product => one * other,
        ReduceOp::Min => one.min(other),
        ReduceOp::Max => one.max(other),
        ReduceOp::Band => one & other,
        ReduceOp::Bor => one | other,
        ReduceOp::Bxor => one ^ other,
        ReduceOp::Land => u32::from(one > 0 && other > 0),
        ReduceOp::Lor => u32::from(one > 0 || other > 0),
        ReduceOp::Lxor => u32::from((one > 0) != (other > 0)),
        other => unreachable!("{other:?} is not tried"),
    };
    if dtype == DType::Bool { u32::from(value > 0) } else { value }
}

/// What a rank gives for an element.
fn given(rank: u32, index: usize, dtype: DType) -> u32 {
    let value = (rank + index as u32) % 3;
    if dtype == DType::Bool { value % 2 } else { value }
}

/// All ranks reduce a part of as many elements into rank 0's memory, at once.
fn accumulate(group: &ProcessGroup, (dtype, op): (DType, ReduceOp), part: usize) {
    let (rank, size) = (group.rank(), group.size());
    let all = 12_007;
    let base = |index: usize| given(7, index, dtype);
    let memory = elements(dtype, (0..all).map(base));
    let window = group.new_window().unwrap();
    window.tensor_register(memory.clone()).unwrap();
    let offset = (all - part) / 2;
    let own = elements(dtype, (0..part).map(|index| given(rank, index, dtype)));
    window.accumulate(&own, 0, offset as u64, op).unwrap();
    window.fence().unwrap();
    if rank == 0 {
        let expected = (0..all).map(|index| {
            let Some(place) = index.checked_sub(offset).filter(|place| *place < part) else {
                return element(dtype, base(index));
            };
            let values = (0..size).map(|rank| given(rank, place, dtype));
            let value = values.fold(base(index), |one, other| reduced(op, dtype, one, other));
            let mut bytes = element(dtype, value);
            if matches!(dtype, DType::Complex64 | DType::Complex128) {
                // Of each number that is added, the imaginary part is one more than the real one.
                let factor = if matches!(op, ReduceOp::PremulSum(_)) { 2 } else { 1 };
                let imaginary = element(dtype, value + size * factor);
                let half = bytes.len() / 2;
                bytes[half..].copy_from_slice(&imaginary[half..]);
            }
            bytes
        });
        let expected: Vec<u8> = expected.flatten().collect();
        assert!(bytes_of(&memory) == expected, "{op:?} of {part} {dtype:?} at {offset}");
    }
    window.tensor_deregister().unwrap();
}

#[test]
fn every_operator_reduces_every_type() {
    for (name, value) in WAYS {
        for size in [1, 2, 3, 5] {
            let test = "every_operator_reduces_every_type";
            let ended = with_variable(name, value, || {
                processes(test, size, |group| {
                    for dtype in DType::ALL {
                        for op in OPERATORS.into_iter().filter(|op| op.supports(dtype)) {
                            accumulate(&group, (dtype, op), 901);
                        }
                        [0, 1, 12_007].into_iter().for_each(|part| {
                            accumulate(&group, (dtype, ReduceOp::Sum), part);
                        });
                    }
                })
            });
            all_went_well(&ended);
        }
    }
}

/// Each rank adds again and again to the same element of rank 0, of memory of so many elements.
fn count(group: &ProcessGroup, elements: usize, dtype: DType) {
    const ROUNDS: u32 = 15;
    let (rank, size) = (group.rank(), group.size());
    let window = group.new_window().unwrap();
    let memory = Tensor::zeros(dtype, &[elements]).unwrap();
    window.tensor_register(memory.clone()).unwrap();
    let last = elements as u64 - 1;
    let one = self::elements(dtype, [1]);
    let works: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let old = Tensor::zeros(dtype, &[1]).unwrap();
            (window.fetch_and_add_async(one.clone(), old.clone(), 0, last).unwrap(), old)
        })
        .collect();
    window.flush(Some(0)).unwrap();
    // What was there is each time another number that all of the ranks count.
    let mut olds: Vec<Vec<u8>> = works
        .into_iter()
        .map(|(work, old)| {
            work.wait(None).unwrap();
            bytes_of(&old)
        })
        .collect();
    let all_counts: Vec<_> = (0..ROUNDS * size).map(|count| element(dtype, count)).collect();
    assert!(olds.iter().all(|old| all_counts.contains(old)), "{dtype:?}: {olds:?}");
    olds.sort();
    olds.dedup();
    assert_eq!(olds.len(), ROUNDS as usize, "{dtype:?}");
    window.fence().unwrap();
    if rank == 0 {
        let width = dtype.size_bytes();
        let total = &bytes_of(&memory)[last as usize * width..];
        assert_eq!(total, element(dtype, ROUNDS * size), "{dtype:?}");
    }
    window.tensor_deregister().unwrap();
}

#[test]
fn no_addition_of_many_at_once_is_lost() {
    for (name, value) in WAYS {
        for size in [1, 2, 3, 5, 8] {
            let test = "no_addition_of_many_at_once_is_lost";
            let ended = with_variable(name, value, || {
                processes(test, size, |group| {
                    // Complex numbers are counted below: these have but one part.
                    let real = |dtype: &DType| {
                        !matches!(dtype, DType::Bool | DType::Complex64 | DType::Complex128)
                    };
                    for dtype in DType::ALL.into_iter().filter(real) {
                        count(&group, 5, dtype);
                        count(&group, MAPPED_ELEMENTS, dtype);
                    }
                })
            });
            all_went_well(&ended);
        }
    }
}

/// Many counts in a row, some by load and store, some by frames: the total is exact.
fn count_long(group: &ProcessGroup, window: &Window, memory: &Tensor) {
    let rounds = 3000_i64;
    for _ in 0..rounds {
        window.accumulate(&[1_i64, 1], 0, 17, ReduceOp::Sum).unwrap();
    }
    window.fence().unwrap();
    if group.rank() == 0 {
        let expected = (rounds * i64::from(group.size())).to_ne_bytes();
        let bytes = bytes_of(memory);
        assert_eq!(bytes[17 * 8..19 * 8], [expected, expected].concat());
    }
    window.fence().unwrap();
}

#[test]
fn load_and_store_and_frames_count_as_one() {
    let test = "load_and_store_and_frames_count_as_one";
    for size in [3, 5] {
        let ended = with_variable("POLYRANK_COPY", "{by rank}auto,slots", || {
            processes(test, size, |group| {
                let window = group.new_window().unwrap();
                let memory = Tensor::zeros(DType::I64, &[MAPPED_ELEMENTS]).unwrap();
                window.tensor_register(memory.clone()).unwrap();
                let is_mapped = window.get_attr(0).unwrap() == "UNIFIED";
                assert_eq!(is_mapped, group.rank().is_multiple_of(2));
                count_long(&group, &window, &memory);
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn one_of_many_that_swap_wins() {
    for (name, value) in WAYS {
        for size in [1, 3, 8] {
            let test = "one_of_many_that_swap_wins";
            let ended = with_variable(name, value, || {
                processes(test, size, |group| {
                    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool) {
                        swap(&group, dtype);
                    }
                })
            });
            all_went_well(&ended);
        }
    }
}

/// All ranks try to be the first who writes each of some elements of rank 0.
fn swap(group: &ProcessGroup, dtype: DType) {
    let (rank, size) = (group.rank(), group.size());
    let count = 301;
    let window = group.new_window().unwrap();
    let memory = elements(dtype, vec![100; MAPPED_ELEMENTS]);
    window.tensor_register(memory.clone()).unwrap();
    window.fence().unwrap();
    let (own, free) = (elements(dtype, vec![rank; count]), elements(dtype, vec![100; count]));
    let mut old = elements(dtype, vec![50; count]);
    window.compare_and_swap(&own, &free, &mut old, 0, 3).unwrap();
    let width = dtype.size_bytes();
    let old = bytes_of(&old);
    let ranks: Vec<_> = (0..size).map(|rank| element(dtype, rank)).collect();
    let mut won = Vec::new();
    for old in old.chunks_exact(width) {
        assert!(old == element(dtype, 100) || ranks.iter().any(|rank| rank == old), "{dtype:?}");
        won.push(u8::from(old == element(dtype, 100)));
    }
    window.fence().unwrap();
    let mut winners = vec![0_u8; count * size as usize];
    group.all_gather_single(&mut winners, &won, ()).unwrap();
    if rank == 0 {
        let there = bytes_of(&memory);
        for (index, place) in there.chunks_exact(width).skip(3).take(count).enumerate() {
            let winners: Vec<_> =
                (0..size).filter(|rank| winners[*rank as usize * count + index] == 1).collect();
            assert_eq!(winners.len(), 1, "{dtype:?}, element {index}");
            assert_eq!(place, element(dtype, winners[0]), "{dtype:?}, element {index}");
        }
        assert_eq!(there[..3 * width], element(dtype, 100).repeat(3), "before them");
    }
    window.tensor_deregister().unwrap();
}

#[test]
fn an_average_is_refused_and_so_is_what_an_operator_does_not_take() {
    let test = "an_average_is_refused_and_so_is_what_an_operator_does_not_take";
    let ended = processes(test, 2, |group| {
        let window = group.new_window().unwrap();
        window.tensor_register(vec![0_f32; 8]).unwrap();
        let refused = |op| window.accumulate(&[1_f32], 0, 0, op).unwrap_err().to_string();
        assert!(
            refused(ReduceOp::Avg).contains("AVG has no meaning"),
            "{}",
            refused(ReduceOp::Avg)
        );
        assert!(refused(ReduceOp::Bxor).contains("f32"), "{}", refused(ReduceOp::Bxor));
        let mut result = [0_f64];
        let error = window.fetch_and_add(&[1_f32], &mut result, 0, 0).unwrap_err().to_string();
        assert!(error.contains("alike"), "{error}");
        window.tensor_deregister().unwrap();
    });
    all_went_well(&ended);
}
