//! Exchanges in which ranks read one another's memory, amid operations that go other ways: random
//! sequences of operations in flight, in real processes, with every world and every way to copy.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use polyrank::{Collective, DType, ProcessGroup, ReduceOp, Region, Request, Tensor, Work};
use polyrank_tests::processes::{processes, report, with_variable};

/// What is drawn.
const COLLECTIVES: [Collective; 5] = [
    Collective::Allgather,
    Collective::Alltoall,
    Collective::Allreduce,
    Collective::ReduceScatter,
    Collective::Broadcast,
];
/// Where a rank reads the seed of its sequence.
const SEED: &str = "POLYRANK_TEST_SEED";
/// Operations of a sequence.
const OPERATIONS: u32 = 150;
/// Most of them that are in flight.
const IN_FLIGHT: usize = 12;
/// Elements that a rank gives to each: on both sides of what fits the board, of what can be read
/// where it lies, and of a turn of reading.
const ELEMENTS: [usize; 10] = [0, 1, 3, 511, 1024, 4099, 8191, 8192, 20_001, 300_007];

/// Pseudo-random numbers (xorshift), the same on all ranks.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// An operation in flight, and what it must bring.
struct Expected {
    work: Work,
    outputs: Vec<Tensor>,
    values: Vec<Vec<i32>>,
}

/// What `from` gives to `to` in an operation.
fn values(number: u32, (from, to): (u32, u32), elements: usize) -> Vec<i32> {
    let first = (number * 10_000 + from * 100 + to) as i32;
    (0..elements).map(|index| first.wrapping_add(index as i32)).collect()
}

fn tensor(values: &[i32], is_pooled: bool) -> Tensor {
    if !is_pooled {
        return Tensor::from(values.to_vec());
    }
    let region = Region::for_elements(4 * values.len()).unwrap();
    region.write(|bytes| {
        for (place, value) in bytes.chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
    });
    Tensor::contiguous(region, DType::I32, vec![values.len()])
}

fn given(tensor: &Tensor) -> Vec<i32> {
    tensor
        .region()
        .read(|bytes| bytes.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect())
}

/// The sum of what ranks give, element by element.
fn sum(given: impl Iterator<Item = Vec<i32>>) -> Vec<i32> {
    let add = |sum: Vec<i32>, one: Vec<i32>| {
        sum.iter().zip(&one).map(|(sum, one)| sum.wrapping_add(*one)).collect()
    };
    given.reduce(add).unwrap()
}

/// Issues operation `number`, which all ranks draw alike.
fn issue(group: &ProcessGroup, number: u32, random: &mut Random) -> Expected {
    let (rank, size) = (group.rank(), group.size());
    let is_pooled = random.below(4) == 0;
    let elements = ELEMENTS[random.below(ELEMENTS.len())];
    // By sender and receiver: some rank may give another, or all others, more than the rest.
    let uneven = random.below(size as usize) as u32;
    let favoured = random.below(2 * size as usize) as u32;
    let extra = [0, 0, 1, 9000][random.below(4)];
    let root = random.below(size as usize) as u32;
    let collective = COLLECTIVES[random.below(COLLECTIVES.len())];
    let mut request = Request::new(collective);
    let fill = |values: &Vec<i32>| tensor(&vec![-1; values.len()], is_pooled);
    let expected: Vec<Vec<i32>> = match collective {
        Collective::Allgather => {
            request.inputs = vec![vec![tensor(&values(number, (rank, 0), elements), is_pooled)]];
            (0..size).map(|from| values(number, (from, 0), elements)).collect()
        }
        Collective::Alltoall => {
            let has_more = |from, to| from == uneven && (to == favoured || favoured >= size);
            let amount = |from, to| elements + if has_more(from, to) { extra } else { 0 };
            let give = |to| tensor(&values(number, (rank, to), amount(rank, to)), is_pooled);
            request.inputs = vec![(0..size).map(give).collect()];
            (0..size).map(|from| values(number, (from, rank), amount(from, rank))).collect()
        }
        Collective::ReduceScatter => {
            let give = |to| tensor(&values(number, (rank, to), elements), is_pooled);
            request.inputs = vec![(0..size).map(give).collect()];
            vec![sum((0..size).map(|from| values(number, (from, rank), elements)))]
        }
        Collective::Broadcast => {
            request.root = root;
            vec![values(number, (root, 0), elements)]
        }
        _ => vec![sum((0..size).map(|from| values(number, (from, 0), elements)))],
    };
    let outputs: Vec<Tensor> = match collective {
        Collective::Allreduce => vec![tensor(&values(number, (rank, 0), elements), is_pooled)],
        Collective::Broadcast if rank == root => vec![tensor(&expected[0], is_pooled)],
        _ => expected.iter().map(fill).collect(),
    };
    request.outputs = vec![outputs.clone()];
    Expected { work: group.issue(request).unwrap(), outputs, values: expected }
}

/// Runs a sequence; what went wrong first.
fn run_sequence(group: &ProcessGroup, seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let mut in_flight = VecDeque::new();
    for number in 0..OPERATIONS {
        in_flight.push_back((number, issue(group, number, &mut random)));
        let keep = [0, 0, 1, IN_FLIGHT][random.below(4)];
        let keep = if number + 1 < OPERATIONS { keep } else { 0 };
        while in_flight.len() > keep
            && let Some((number, Expected { work, outputs, values })) = in_flight.pop_front()
        {
            work.wait(None).map_err(|error| format!("operation {number}: {error}"))?;
            let got: Vec<Vec<i32>> = outputs.iter().map(given).collect();
            if got != values {
                return Err(format!("operation {number} has a wrong result"));
            }
        }
    }
    Ok(())
}

#[test]
fn random_sequences_come_out_right() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    let test = "random_sequences_come_out_right";
    for size in [1, 2, 3, 5, 8] {
        for copy in ["attach", "auto", "slots"] {
            let ended = with_variable("POLYRANK_COPY", copy, || {
                with_variable(SEED, &now.to_string(), || {
                    processes(test, size, |group| {
                        let seed = std::env::var(SEED).unwrap().parse().unwrap();
                        report(format!("{:?}", run_sequence(&group, seed)));
                    })
                })
            });
            for (rank, ended) in ended.iter().enumerate() {
                let case = format!("seed {now}, rank {rank} of {size}, {copy}: {}", ended.output);
                assert_eq!(ended.printed, ["Ok(())"], "{case}");
            }
        }
    }
}

#[test]
fn roots_in_turn_broadcast_while_rank_0_chooses() {
    let test = "roots_in_turn_broadcast_while_rank_0_chooses";
    for size in [2, 3] {
        let ended = with_variable("POLYRANK_COPY", "attach", || {
            processes(test, size, |group| {
                let (rank, size) = (group.rank(), group.size());
                let broadcast = |number: u32| {
                    let root = number % size;
                    let expected = values(number % 999, (root, 0), 5120 << (number % 3));
                    let mine =
                        if rank == root { expected.clone() } else { vec![-1; expected.len()] };
                    let tensor = tensor(&mine, false);
                    let mut request = Request::new(Collective::Broadcast);
                    (request.root, request.outputs) = (root, vec![vec![tensor.clone()]]);
                    group.issue(request).and_then(|work| work.wait(None)).unwrap();
                    given(&tensor) == expected
                };
                report(format!("{:?}", (0..3000).find(|number| !broadcast(*number))));
            })
        });
        for (rank, ended) in ended.iter().enumerate() {
            assert_eq!(ended.printed, ["None"], "rank {rank} of {size}: {}", ended.output);
        }
    }
}

#[test]
fn rank_0_takes_part_in_an_alltoall_in_which_its_data_fits_the_board_and_others_do_not() {
    let test =
        "rank_0_takes_part_in_an_alltoall_in_which_its_data_fits_the_board_and_others_do_not";
    for size in [2, 3, 5] {
        let ended = with_variable("POLYRANK_COPY", "attach", || {
            processes(test, size, |group| {
                let (rank, size) = (group.rank(), group.size());
                // Only the last rank gives itself more.
                let amount = |from, to| if from + 1 == size && from == to { 9000 } else { 3 };
                let exchange = |number: u32| {
                    let pair = |from, to| values(number, (from, to), amount(from, to));
                    let mut request = Request::new(Collective::Alltoall);
                    request.inputs =
                        vec![(0..size).map(|to| tensor(&pair(rank, to), false)).collect()];
                    let expected: Vec<Vec<i32>> = (0..size).map(|from| pair(from, rank)).collect();
                    let outputs: Vec<Tensor> =
                        expected.iter().map(|it| tensor(&vec![-1; it.len()], false)).collect();
                    request.outputs = vec![outputs.clone()];
                    group.issue(request).and_then(|work| work.wait(None)).unwrap();
                    outputs.iter().map(given).collect::<Vec<_>>() == expected
                };
                report(format!("{:?}", (0..100).find(|number| !exchange(*number))));
            })
        });
        for (rank, ended) in ended.iter().enumerate() {
            assert_eq!(ended.printed, ["None"], "rank {rank} of {size}: {}", ended.output);
        }
    }
}

/// Bytes of `elements` elements, among them many zeros of either sign and NaNs.
fn special_bits(random: &mut Random, dtype: DType, elements: usize) -> Vec<u8> {
    let bytes = dtype.size_bytes();
    let element = |random: &mut Random| -> Vec<u8> {
        let mut element: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        let component_bytes = if dtype == DType::Complex64 { 4 } else { bytes };
        for part in element.chunks_mut(component_bytes) {
            let top = part.len() - 1;
            match random.below(4) {
                0 => {
                    part[..top].fill(0);
                    part[top] &= 0x80;
                }
                1 => part[top - 1..].fill(0xff),
                _ => {}
            }
        }
        element
    };
    (0..elements).flat_map(|_| element(random)).collect()
}

/// What this rank has of every reduction with two ranks, many times over, as one number for each;
/// or what it has twice in different ways.
fn reduced_bits(group: &ProcessGroup, seed: u64) -> Result<Vec<u64>, String> {
    const ROUNDS: usize = 60;
    const OPERATORS: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
    let dtypes = [DType::F16, DType::Bf16, DType::F32, DType::F64, DType::Complex64, DType::I16];
    let mut all = Vec::new();
    for (dtype, reduce_op) in dtypes.iter().flat_map(|dtype| OPERATORS.map(|op| (*dtype, op))) {
        let is_sum = matches!(reduce_op, ReduceOp::Sum | ReduceOp::Avg);
        if dtype == DType::Complex64 && !is_sum {
            continue;
        }
        let mut random = Random(seed ^ u64::from(group.rank()) << 20);
        let elements = 40_000 / dtype.size_bytes() + 1;
        let bits = special_bits(&mut random, dtype, elements);
        let whole = |bits: &[u8]| {
            let region = Region::from_vec(bits.to_vec());
            Tensor::contiguous(region, dtype, vec![bits.len() / dtype.size_bytes()])
        };
        for collective in [Collective::Allreduce, Collective::ReduceScatter] {
            let mut first = None;
            for round in 0..ROUNDS {
                let mut request = Request::new(collective);
                request.reduce_op = reduce_op;
                if collective == Collective::ReduceScatter {
                    request.inputs = vec![vec![whole(&bits), whole(&bits)]];
                }
                let output = whole(&bits);
                request.outputs = vec![vec![output.clone()]];
                let ended = group.issue(request).and_then(|work| work.wait(None));
                ended.map_err(|error| format!("{dtype:?} {reduce_op:?}: {error}"))?;
                let mut hasher = DefaultHasher::new();
                output.region().read(|bytes| bytes.hash(&mut hasher));
                let hash = hasher.finish();
                if *first.get_or_insert(hash) != hash {
                    let what = format!("{dtype:?} {reduce_op:?}, {collective:?}");
                    return Err(format!("{what}: other bits in round {round} than before"));
                }
            }
            all.extend(first);
        }
    }
    Ok(all)
}

#[test]
fn two_ranks_end_with_the_same_bits_whichever_way_they_reduce() {
    let test = "two_ranks_end_with_the_same_bits_whichever_way_they_reduce";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    let run = |copy| {
        with_variable("POLYRANK_COPY", copy, || {
            with_variable(SEED, &now.to_string(), || {
                processes(test, 2, |group| {
                    let seed = std::env::var(SEED).unwrap().parse().unwrap();
                    report(format!("{:?}", reduced_bits(&group, seed)));
                })
            })
        })
    };
    let [slots, attach] = ["slots", "attach"].map(run);
    for (rank, (slots, attach)) in slots.iter().zip(&attach).enumerate() {
        let output = [&slots.output, &attach.output];
        assert!(slots.printed[0].starts_with("Ok"), "seed {now}, rank {rank}: {output:?}");
        assert_eq!(slots.printed, attach.printed, "seed {now}, rank {rank}: {output:?}");
    }
}

#[test]
fn ranks_that_disagree_on_the_root_of_a_broadcast_hear_of_it() {
    let test = "ranks_that_disagree_on_the_root_of_a_broadcast_hear_of_it";
    for size in [2, 3] {
        let ended = with_variable("POLYRANK_COPY", "attach", || {
            processes(test, size, |group| {
                let rank = group.rank();
                let broadcast = |root, elements| {
                    let mut request = Request::new(Collective::Broadcast);
                    request.root = root;
                    request.outputs = vec![vec![tensor(&vec![1; elements], false)]];
                    group.issue(request).and_then(|work| work.wait(None))
                };
                // A rank that has what it needs hears of it in the next call.
                let ended = broadcast(rank.min(1), 20_000).and_then(|_| broadcast(0, 1));
                report(ended.map_or_else(|error| error.to_string(), |_| "nothing".to_owned()));
                std::process::exit(0);
            })
        });
        for (rank, ended) in ended.iter().enumerate() {
            let [line] = ended.printed.as_slice() else { panic!("rank {rank}: {}", ended.output) };
            let names_both = line.contains("root 0") && line.contains("root 1");
            assert!(names_both, "rank {rank} of {size}: {line}");
        }
    }
}
