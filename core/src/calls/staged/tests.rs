//! Staged operations in groups of one rank, over memory that changes under way.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::calls::{Language, Value, entry};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::GroupOptions;
use crate::store::HashStore;

/// What a language's array is: bytes that may go away.
struct Array {
    bytes: RefCell<Vec<u8>>,
    gone: Cell<bool>,
}

impl Array {
    fn of(values: &[f32]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Array { bytes: RefCell::new(bytes), gone: Cell::new(false) }
    }

    fn values(&self) -> Vec<f32> {
        let bytes = self.bytes.borrow();
        bytes.chunks_exact(4).map(|it| f32::from_ne_bytes(it.try_into().unwrap())).collect()
    }

    fn described(&self, place: usize) -> TensorDescription {
        let memory = Memory::Foreign { bytes: self.bytes.borrow().len(), place: (place, 0) };
        let dtype = DType::F32;
        TensorDescription { dtype, shape: None, strides: None, offset: 0, read_only: false, memory }
    }
}

impl CallerMemory for &Array {
    fn bytes(&self) -> usize {
        if self.gone.get() { 0 } else { self.bytes.borrow().len() }
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes.borrow()[at..at + into.len()]);
    }
    fn write(&self, at: usize, from: &[u8]) {
        self.bytes.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}

fn group() -> Object {
    let store = Arc::new(HashStore::new());
    let group = ProcessGroup::new(store, 0, 1, "staged", GroupOptions::default()).unwrap();
    Object::Group(group)
}

fn prepare(
    group: &Object,
    key: &str,
    described: Vec<TensorDescription>,
    arguments: impl FnOnce(&Tensors) -> Vec<Value>,
    keywords: Vec<(&str, Value)>,
) -> Result<StagedOperation> {
    let tensors = Tensors::new(described)?;
    let arguments = Arguments {
        positional: arguments(&tensors),
        keywords: keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        language: Language::JavaScript,
    };
    StagedOperation::prepare(entry(key)?, Some(group), arguments, &[], tensors)
}

/// An array whose memory is lent while a call lasts.
struct Lendable(Region);

impl Lendable {
    fn of(values: &[f32]) -> Lendable {
        Lendable(Region::from_vec(values.iter().flat_map(|value| value.to_ne_bytes()).collect()))
    }

    fn values(&self) -> Vec<f32> {
        let bytes = self.0.read(<[u8]>::to_vec);
        bytes.chunks_exact(4).map(|it| f32::from_ne_bytes(it.try_into().unwrap())).collect()
    }

    fn described(&self, place: usize) -> TensorDescription {
        let memory = Memory::Foreign { bytes: self.0.len(), place: (place, 0) };
        let dtype = DType::F32;
        TensorDescription { dtype, shape: None, strides: None, offset: 0, read_only: false, memory }
    }

    fn fill(&self, value: u8) {
        self.0.write(|bytes| bytes.fill(value));
    }
}

impl CallerMemory for &Lendable {
    fn bytes(&self) -> usize {
        self.0.len()
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        self.0.read(|bytes| into.copy_from_slice(&bytes[at..at + into.len()]));
    }
    fn write(&self, at: usize, from: &[u8]) {
        self.0.write(|bytes| bytes[at..at + from.len()].copy_from_slice(from));
    }
    fn lend(&self, region: &Region) -> Option<Loan> {
        Loan::between(region, &self.0)
    }
}

/// Two ranks that live in this process.
fn pair() -> [Object; 2] {
    let store = Arc::new(HashStore::new());
    let join = |rank| {
        let store = store.clone();
        std::thread::spawn(move || {
            ProcessGroup::new(store, rank, 2, "lent", GroupOptions::default()).unwrap()
        })
    };
    [join(0), join(1)].map(|joining| Object::Group(joining.join().unwrap()))
}

fn avg() -> Vec<(&'static str, Value)> {
    vec![("reduceOp", Value::ReduceOp(ReduceOp::PremulSum(2.0)))]
}

fn list(tensors: &Tensors) -> Vec<Value> {
    vec![Value::List(vec![tensors.value(0).unwrap()])]
}

#[test]
fn an_operation_goes_in_and_out_in_slices() {
    let group = group();
    let array = Array::of(&[1.0, 2.0, 3.0]);
    let mut staged =
        prepare(&group, "PROCESS_GROUP_ALLREDUCE", vec![array.described(0)], list, avg()).unwrap();
    assert_eq!((staged.outputs(), staged.bytes_in()), ([0].as_slice(), 12));
    assert!(staged.issue(WaitIntent::Later).is_err(), "nothing is copied in yet");
    assert_eq!(staged.copy_in(&[&array], 4).unwrap(), 8);
    assert_eq!(staged.bytes_copied_in(), 4);
    assert_eq!(staged.copy_in(&[&array], 100).unwrap(), 0);
    staged.issue(WaitIntent::Later).unwrap();
    staged.work().unwrap().wait(None).unwrap();
    assert_eq!(array.values(), [1.0, 2.0, 3.0], "nobody touches the array meanwhile");
    assert_eq!(staged.copy_out(&[&array], 8).unwrap(), 4);
    assert_eq!(array.values(), [2.0, 4.0, 3.0]);
    assert_eq!(staged.copy_out(&[&array], 8).unwrap(), 0);
    assert_eq!(array.values(), [2.0, 4.0, 6.0]);
    assert_eq!(staged.bytes_copied_in(), 12);
}

#[test]
fn what_is_over_while_memory_is_lent_is_not_copied() {
    let group = group();
    for values in [vec![1.0], vec![1.0; 65_537]] {
        let array = Lendable::of(&values);
        let tensors = vec![array.described(0)];
        let mut staged = prepare(&group, "PROCESS_GROUP_ALLREDUCE", tensors, list, avg()).unwrap();
        let loans = staged.borrow(&[&array]).unwrap();
        assert!(!loans.is_empty());
        assert_eq!((staged.bytes_in(), staged.bytes_copied_in()), (0, 4 * values.len()));
        staged.issue(WaitIntent::Soon).unwrap();
        staged.work().unwrap().wait(None).unwrap();
        staged.give_back(loans);
        assert_eq!(staged.bytes_out(), 0);
        assert!(array.values().iter().all(|value| *value == 2.0));
        assert_eq!(staged.copy_out(&[&array], 1).unwrap(), 0);
    }
}

/// Runs `key` on two ranks, each in one array: the elements at `outputs` and `inputs` of it.
fn within(
    groups: &[Object; 2],
    arrays: &[Lendable; 2],
    key: &'static str,
    (outputs, inputs): ([Range<usize>; 2], [Range<usize>; 2]),
) {
    let begun = [0, 1].map(|rank| {
        let parts = [&outputs[rank], &inputs[rank]].map(|range| 4 * range.start..4 * range.end);
        let described = parts.clone().map(|Range { start, end }| TensorDescription {
            memory: Memory::Foreign { bytes: end - start, place: (7, start) },
            ..arrays[rank].described(7)
        });
        let memories = parts.map(|part| Lendable(arrays[rank].0.slice(part)));
        let given = |tensors: &Tensors| [0, 1].map(|it| tensors.value(it).unwrap()).to_vec();
        let mut staged = prepare(&groups[rank], key, described.to_vec(), given, vec![]).unwrap();
        let loans = staged.borrow(&memories.each_ref()).unwrap();
        staged.copy_in(&memories.each_ref(), usize::MAX).unwrap();
        staged.issue(WaitIntent::Soon).unwrap();
        (staged, loans, memories)
    });
    for (mut staged, loans, memories) in begun {
        staged.work().unwrap().wait(None).unwrap();
        staged.give_back(loans);
        assert_eq!(staged.copy_out(&memories.each_ref(), usize::MAX).unwrap(), 0);
    }
}

#[test]
fn a_tensor_that_is_a_part_of_another_is_lent_with_it() {
    let groups = pair();
    for count in [1, 5, 65_538] {
        let (all, lower, upper) = (0..2 * count, 0..count, count..2 * count);
        let given = |rank: usize, at: usize| (at + 2 * rank) as f32;
        let sum = |at: usize| given(0, at) + given(1, at);
        let arrays = [0, 1]
            .map(|rank| Lendable::of(&all.clone().map(|at| given(rank, at)).collect::<Vec<f32>>()));
        let expect = |expected: &dyn Fn(usize, usize) -> f32| {
            for (rank, array) in arrays.iter().enumerate() {
                let expected: Vec<f32> = all.clone().map(|at| expected(rank, at)).collect();
                assert_eq!(array.values(), expected, "{count} elements of rank {rank}");
            }
        };
        // One writes over the part that it gives to itself, the other over what it gives away.
        let into_lower = ([lower.clone(), lower.clone()], [all.clone(), all.clone()]);
        within(&groups, &arrays, "PROCESS_GROUP_REDUCE_SCATTER_SINGLE", into_lower);
        let scattered = |rank, at| match at < count {
            true => sum(rank * count + at),
            false => given(rank, at),
        };
        expect(&scattered);
        let in_place = ([all.clone(), all.clone()], [lower, upper]);
        within(&groups, &arrays, "PROCESS_GROUP_ALL_GATHER_SINGLE", in_place);
        expect(&|_, at| scattered(at / count, at));
    }
}

#[test]
fn memory_that_was_given_back_is_the_language_s() {
    for count in [1, 3, 65_537, 1 << 20] {
        let groups = pair();
        let arrays = [1.0, 2.0].map(|value| Lendable::of(&vec![value; count]));
        let begin = |rank: usize| {
            let tensors = vec![arrays[rank].described(0)];
            prepare(&groups[rank], "PROCESS_GROUP_ALLREDUCE", tensors, list, vec![]).unwrap()
        };
        let mut first = begin(0);
        let loans = first.borrow(&[&arrays[0]]).unwrap();
        first.issue(WaitIntent::Soon).unwrap();
        // The other rank has not come.
        first.give_back(loans);
        assert_eq!(first.bytes_out(), 4 * count);
        arrays[0].fill(0xff);

        let mut second = begin(1);
        let loans = second.borrow(&[&arrays[1]]).unwrap();
        second.issue(WaitIntent::Soon).unwrap();
        second.work().unwrap().wait(None).unwrap();
        second.give_back(loans);
        first.work().unwrap().wait(None).unwrap();
        assert!(arrays[0].0.read(|bytes| bytes.iter().all(|byte| *byte == 0xff)), "left alone");
        assert_eq!(first.copy_out(&[&arrays[0]], usize::MAX).unwrap(), 0);
        assert!(arrays.iter().all(|it| it.values() == vec![3.0; count]), "{count} elements");
    }
}

#[test]
fn memory_is_given_back_whatever_an_operation_ends_with() {
    let groups = pair();
    let array = Lendable::of(&[1.0; 100_000]);
    let tensors = || vec![array.described(0)];
    let key = "PROCESS_GROUP_ALLREDUCE";
    // Nothing was issued yet.
    let mut given_up = prepare(&groups[0], key, tensors(), list, vec![]).unwrap();
    let loans = given_up.borrow(&[&array]).unwrap();
    given_up.give_back(loans);
    assert_eq!((given_up.bytes_in(), given_up.bytes_copied_in()), (400_000, 0));

    let mut staged = prepare(&groups[0], key, tensors(), list, vec![]).unwrap();
    let loans = staged.borrow(&[&array]).unwrap();
    staged.issue(WaitIntent::Soon).unwrap();
    groups[1].group().unwrap().abort_because("enough");
    assert!(staged.work().unwrap().wait(None).is_err());
    staged.give_back(loans);
    array.fill(7);
    assert!(staged.copy_out(&[&array], usize::MAX).unwrap_err().to_string().contains("enough"));
    assert!(array.0.read(|bytes| bytes.iter().all(|byte| *byte == 7)));
}

#[test]
fn memory_that_is_gone_or_shorter_is_left_alone() {
    let group = group();
    let fails = |change: fn(&Array), says: &str| {
        let array = Array::of(&[1.0, 2.0]);
        let tensors = vec![array.described(0)];
        let mut staged = prepare(&group, "PROCESS_GROUP_ALLREDUCE", tensors, list, vec![]).unwrap();
        staged.copy_in(&[&array], 100).unwrap();
        staged.issue(WaitIntent::Later).unwrap();
        staged.work().unwrap().wait(None).unwrap();
        change(&array);
        let error = staged.copy_out(&[&array], 100).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    fails(|array| array.gone.set(true), "transferred or detached");
    fails(|array| array.bytes.borrow_mut().truncate(4), "had 8 bytes");
}

#[test]
fn tensors_that_share_memory_share_it_in_the_copies() {
    let group = group();
    // One piece of memory with two tensors that overlap.
    let (all, part) = (Array::of(&[1.0, 2.0]), Array::of(&[2.0]));
    let mut overlapping = part.described(7);
    overlapping.memory = Memory::Foreign { bytes: 4, place: (7, 4) };
    let both = |tensors: &Tensors| {
        vec![Value::List(vec![tensors.value(0).unwrap(), tensors.value(1).unwrap()])]
    };
    let described = vec![all.described(7), overlapping];
    let key = "PROCESS_GROUP_ALLREDUCE_COALESCED";
    let error = prepare(&group, key, described, both, vec![]).unwrap_err();
    assert!(error.to_string().contains("share memory"), "{error}");
    let apart = vec![all.described(7), part.described(8)];
    assert!(prepare(&group, key, apart, both, vec![]).is_ok());
}

#[test]
fn outputs_with_strides_lie_apart() {
    let group = group();
    let view = |shape: &[usize], strides: &[isize], offset, start| TensorDescription {
        shape: Some(shape.to_vec()),
        strides: Some(strides.to_vec()),
        offset,
        memory: Memory::Foreign { bytes: 48 - start, place: (7, start) },
        ..Array::of(&[0.0; 12]).described(7)
    };
    let gather = |outputs: Vec<TensorDescription>| {
        let tensors = Tensors::new(outputs).unwrap();
        let all: Vec<usize> = (0..tensors.all.len()).collect();
        let same = tensors.position(&tensors.all[all.len() - 1].tensor) == Some(0);
        (overlaps::refuse_overlaps("it", &tensors.all, &all).map_err(|it| it.to_string()), same)
    };
    let refused = |outputs, says: &str| {
        let (result, same) = gather(outputs);
        assert_eq!(result.unwrap_err(), says);
        assert!(!same || says.contains("with one another"));
    };
    refused(
        vec![view(&[4], &[0], 0, 0)],
        "it: elements of output tensor 0 share memory with one another",
    );
    refused(
        vec![view(&[3, 2], &[2, 3], 0, 0), view(&[3, 4], &[2, 1], 0, 0)],
        "it: elements of output tensor 1 share memory with one another",
    );
    let shared = "it: output tensors 0 and 1 share memory";
    refused(vec![view(&[3], &[4], 0, 0), view(&[2], &[8], 0, 0)], shared);
    refused(vec![view(&[3], &[4], 1, 0), view(&[4], &[1], 0, 16)], shared);
    refused(vec![view(&[2], &[1], 3, 0), view(&[2], &[2], 0, 16)], shared);
    // Columns of one matrix, and the same view twice, which is one tensor.
    assert_eq!(gather(vec![view(&[3], &[4], 0, 0), view(&[3], &[4], 1, 0)]), (Ok(()), false));
    assert_eq!(
        gather(vec![view(&[3], &[4], 2, 0), view(&[3], &[4], 1, 4)]).0.err().as_deref(),
        Some(shared)
    );
    assert_eq!(gather(vec![view(&[3], &[4], 0, 0), view(&[3], &[4], 0, 0)]), (Ok(()), true));
    let list = |tensors: &Tensors| {
        let both = Value::List(vec![tensors.value(0).unwrap()]);
        vec![both]
    };
    let repeated = vec![view(&[4], &[0], 0, 0)];
    let error = prepare(&group, "PROCESS_GROUP_ALLREDUCE", repeated, list, vec![]).unwrap_err();
    assert!(error.to_string().contains("output tensor 0 share memory with one"), "{error}");
}

#[test]
fn the_core_s_own_memory_is_not_copied() {
    let group = group();
    let region = crate::tensor::Region::from_vec([3f32, 4.0].map(f32::to_ne_bytes).concat());
    let dtype = DType::F32;
    let own = TensorDescription {
        dtype,
        shape: Some(vec![1]),
        strides: None,
        offset: 1,
        read_only: false,
        memory: Memory::Own(region.clone()),
    };
    let mut staged = prepare(&group, "PROCESS_GROUP_ALLREDUCE", vec![own], list, avg()).unwrap();
    assert_eq!(staged.copy_in::<&Array>(&[], 100).unwrap(), 0);
    staged.issue(WaitIntent::Soon).unwrap();
    staged.work().unwrap().wait(None).unwrap();
    assert_eq!(staged.copy_out::<&Array>(&[], 100).unwrap(), 0);
    assert_eq!(region.read(<[u8]>::to_vec), [3f32, 8.0].map(f32::to_ne_bytes).concat());
}

#[test]
fn wrong_calls_are_wrong_at_once() {
    let group = group();
    let array = Array::of(&[1.0]);
    let described = || vec![array.described(0)];
    let mistake = |key: &str, keywords| {
        prepare(&group, key, described(), list, keywords).unwrap_err().to_string()
    };
    assert!(
        mistake("PROCESS_GROUP_ALLREDUCE", vec![("nonsense", Value::None)]).contains("nonsense")
    );
    assert!(mistake("PROCESS_GROUP_BROADCAST", vec![("rootRank", Value::Int(3))]).contains("root"));
    let to = |rank| vec![("dst_rank", Value::Int(rank))];
    assert!(mistake("PROCESS_GROUP_SEND", to(-1)).contains("must be an integer from 0"));
    let mut read_only = array.described(0);
    read_only.read_only = true;
    let error = prepare(&group, "PROCESS_GROUP_ALLREDUCE", vec![read_only], list, vec![]);
    assert!(error.unwrap_err().to_string().contains("read-only"));
    assert!(prepare(&group, "PROCESS_GROUP_SPLIT_GROUP", described(), list, vec![]).is_err());
    assert!(entry("NO_SUCH_CALL").is_err());
}

#[test]
fn a_group_is_aborted_if_there_is_no_memory_for_a_copy() {
    let array = Array::of(&[1.0]);
    let endless = TensorDescription {
        shape: Some(vec![1 << 50]),
        strides: Some(vec![0]),
        ..array.described(0)
    };
    let given = vec![array.described(1), endless];
    let both = |tensors: &Tensors| {
        vec![Value::List(vec![tensors.value(0).unwrap(), tensors.value(1).unwrap()])]
    };
    let group = group();
    // What no overload takes is wrong, whatever memory there is.
    let wrong = prepare(&group, "PROCESS_GROUP_ALLREDUCE", given.clone(), |_| vec![], avg());
    assert!(matches!(wrong, Err(Error::InvalidType { .. })), "{wrong:?}");
    let used = prepare(&group, "PROCESS_GROUP_BROADCAST", vec![array.described(0)], list, vec![]);
    assert!(used.is_ok() && !group.group().unwrap().is_broken());

    let call = prepare(&group, "PROCESS_GROUP_ALLREDUCE_COALESCED", given, both, vec![]);
    let error = call.unwrap_err().to_string();
    assert!(error.contains("not enough memory for a copy of 4503599627370496 bytes"), "{error}");
    let next = group.group().unwrap().barrier(()).unwrap_err();
    assert!(matches!(&next, Error::Aborted { why, .. } if why.contains(&error)), "{next}");
}

#[test]
fn a_group_without_this_process_does_nothing() {
    let array = Array::of(&[1.0]);
    let outside = Object::NonGroupMember;
    let staged =
        prepare(&outside, "PROCESS_GROUP_ALLREDUCE", vec![array.described(0)], list, vec![]);
    let mut staged = staged.unwrap();
    assert!(staged.is_issued() && staged.outputs().is_empty());
    assert_eq!(staged.copy_out(&[&array], 100).unwrap(), 0);
}
