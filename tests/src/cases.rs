//! The conformance cases of `cases/cases.json`: reads them, gives a rank its tensors, and says
//! what must be in them afterwards. `cases/README.md` is the description; the other languages'
//! readers stand beside it. Knows nothing of how a collective is run.

use std::fmt;
use std::sync::OnceLock;

use polyrank::tensor::cuda;
use polyrank::{Collective, DType, ProcessGroup, ReduceOp, Region, Request, Result, Sizes, Tensor};
use serde_json::Value;

use super::rounding::are_close;

/// Bytes that no operation may touch, and that every output must replace.
const UNTOUCHED: u8 = 0xa5;

/// How many elements are shown of a tensor that is not what it should be.
const SHOWN: usize = 8;

/// Elements of a tensor that no way of moving it takes whole.
const LARGE: usize = (1 << 20) + 1;

/// The file, read once.
pub fn file() -> &'static Value {
    static FILE: OnceLock<Value> = OnceLock::new();
    FILE.get_or_init(|| {
        let text = include_str!("../cases/cases.json");
        serde_json::from_str(text).expect("the generated file is JSON")
    })
}

/// A list of numbers of the file.
pub fn numbers(value: &Value) -> Vec<u64> {
    let list = value.as_array().expect("a list of numbers");
    list.iter().map(|number| number.as_u64().expect("a number")).collect()
}

/// Where tensors lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In memory that polyrank did not allocate.
    Users,
    /// Where other ranks of this host can read them, if they are large.
    Polyranks,
    /// On the CUDA device of that index.
    Device(u32),
}

/// One call, the same on all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// Whether two operations go together.
    pub coalesced: bool,
    /// The type of all elements.
    pub dtype: DType,
    /// How elements are reduced, where they are.
    pub reduce_op: ReduceOp,
    /// The root, where there is one.
    pub root: u32,
    /// Elements of a block; more in some where sizes are uneven.
    pub elements: usize,
    /// Whether tensors have a gap after every element.
    pub strided: bool,
    /// Whether blocks differ in size.
    pub uneven: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { collective, dtype, reduce_op, root, elements, .. } = self;
        write!(
            formatter,
            "{collective:?} {dtype:?} {reduce_op:?} root {root}, {elements} elements"
        )?;
        let notes =
            [(self.coalesced, "coalesced"), (self.strided, "strided"), (self.uneven, "uneven")];
        notes.iter().filter(|(is, _)| *is).try_for_each(|(_, note)| write!(formatter, ", {note}"))
    }
}

/// The pairwise cases of a world, with the words that name each.
pub fn pairwise(world: u32) -> Vec<(String, Case)> {
    let rows = file()["pairwise"][&world.to_string()].as_array().expect("a world of the file");
    rows.iter().map(from_row).collect()
}

fn from_row(row: &Value) -> (String, Case) {
    let number = |at: usize| row[at].as_u64().expect("a number");
    let form = &file()["forms"][number(0) as usize];
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let case = Case {
        collective: collective(form["collective"].as_str().expect("a name")),
        coalesced: form["coalesced"].as_bool().expect("a truth"),
        dtype: name(&row[1]).map_or(DType::U8, |name| dtype(&name)),
        reduce_op: name(&row[2]).map_or(ReduceOp::Sum, |name| reduce_op(&name)),
        root: number(3) as u32,
        elements: number(4) as usize,
        strided: number(5) == 1,
        uneven: number(6) == 1,
    };
    (format!("{} {case}", form["id"].as_str().expect("a name")), case)
}

fn collective(name: &str) -> Collective {
    let found = Collective::ALL.into_iter().find(|collective| collective.facts().name == name);
    found.expect("the file names collectives")
}

fn dtype(name: &str) -> DType {
    DType::from_name(name).expect("the file names element types")
}

/// The operator of a name of the file.
pub fn reduce_op(name: &str) -> ReduceOp {
    let factor = file()["factor"].as_f64().expect("a factor");
    ReduceOp::from_name(name).unwrap_or(ReduceOp::PremulSum(factor))
}

/// All operators of the file.
pub fn reduce_ops() -> Vec<ReduceOp> {
    let names = file()["reductions"].as_object().unwrap().keys();
    names.map(|name| reduce_op(name)).collect()
}

/// A case of dense tensors with blocks of one size.
pub fn case(collective: Collective, dtype: DType, reduce_op: ReduceOp, elements: usize) -> Case {
    Case {
        collective,
        coalesced: false,
        dtype,
        reduce_op,
        root: 0,
        elements,
        strided: false,
        uneven: false,
    }
}

/// A case of each collective that takes more than one piece, with the last of `world` ranks as root
/// and blocks that differ where they may.
pub fn large(world: u32) -> impl Iterator<Item = Case> {
    use Collective::*;
    let part = LARGE / world as usize;
    let cases = [
        (Allreduce, DType::F32, ReduceOp::Sum, LARGE),
        (Allreduce, DType::Bf16, ReduceOp::Avg, LARGE),
        (Reduce, DType::F64, ReduceOp::Max, LARGE),
        (ReduceScatter, DType::I32, ReduceOp::Sum, part),
        (Broadcast, DType::U8, ReduceOp::Sum, LARGE),
        (Allgather, DType::Complex64, ReduceOp::Sum, part),
        (Gather, DType::Complex64, ReduceOp::Sum, part),
        (Scatter, DType::I16, ReduceOp::Sum, part),
        (Alltoall, DType::F32, ReduceOp::Sum, part),
        (Scan, DType::F32, ReduceOp::Sum, LARGE),
        (Exscan, DType::I32, ReduceOp::Avg, LARGE),
    ];
    cases.into_iter().map(move |(collective, dtype, reduce_op, elements)| {
        let uneven = collective.facts().sizes != Sizes::Equal;
        Case { root: world - 1, uneven, ..case(collective, dtype, reduce_op, elements) }
    })
}

/// Calls `run` with everything that a call of so many elements can be on `world` ranks.
pub fn product(world: u32, elements: usize, mut run: impl FnMut(Case)) {
    for collective in Collective::ALL.into_iter().filter(|one| *one != Collective::Barrier) {
        let facts = collective.facts();
        let ops = if facts.reduces { reduce_ops() } else { vec![ReduceOp::Sum] };
        let roots = if facts.rooted { world } else { 1 };
        for dtype in DType::ALL {
            for &reduce_op in ops.iter().filter(|op| op.supports(dtype)) {
                for root in 0..roots {
                    let even = Case { root, ..case(collective, dtype, reduce_op, elements) };
                    let uneven = Case { uneven: true, ..even.clone() };
                    if facts.sizes != Sizes::Equal {
                        run(Case { strided: true, ..even.clone() });
                        run(uneven);
                    } else {
                        run(Case { strided: true, ..even.clone() });
                    }
                    run(even);
                }
            }
        }
    }
}

/// Makes `check` run everything that calls of these numbers of elements can be, all ranks together
/// after each number.
pub fn every_small(
    group: &ProcessGroup,
    elements: impl IntoIterator<Item = usize>,
    check: impl Fn(&ProcessGroup, &Case),
) {
    for elements in elements {
        product(group.size(), elements, |case| check(group, &case));
        group.run(Request::new(Collective::Barrier)).expect("the group works");
    }
}

/// Starts two hundred operations on two groups before it waits for any, the last one first; with
/// tensors in such memory.
pub fn two_hundred_in_flight(group: &ProcessGroup, memory: Memory) {
    let all: Vec<u32> = (0..group.size()).collect();
    let other = group.split_group(&all, Default::default()).expect("it is made");
    let other = other.expect("all ranks are members");
    let mut works = Vec::new();
    for index in 0..200 {
        let elements = [0, 1, 3, 1000, 40_000][index as usize % 5];
        // Rank r holds index + r everywhere, so that the sum names the operation.
        let mine = (index + group.rank()).to_ne_bytes().repeat(elements);
        let tensor = Tensor::contiguous(region(mine, memory), DType::U32, vec![elements]);
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![tensor.clone()]];
        let on = if index % 2 == 0 { group } else { &other };
        works.push((on.issue(request).expect("it is issued"), tensor, index, elements));
    }
    for (work, tensor, index, elements) in works.into_iter().rev() {
        work.wait(None).unwrap_or_else(|error| panic!("operation {index}: {error}"));
        let sum: u32 = all.iter().map(|rank| index + rank).sum();
        assert!(bytes_of(tensor.region()) == sum.to_ne_bytes().repeat(elements), "{index}");
    }
    other.shutdown().expect("the ranks agree");
}

/// Runs the case on this rank, where it must succeed with the right outcome.
pub fn check(group: &ProcessGroup, case: &Case) {
    match run(group, case) {
        Ok(Ok(())) => {}
        Ok(Err(difference)) => panic!("{case}, world {}: {difference}", group.size()),
        Err(error) => panic!("{case}, world {}: {error}", group.size()),
    }
}

/// Runs the case on this rank.
///
/// # Errors
/// The operation fails, or leaves something else than it should: then the outer error is `Ok` and
/// the inner one says what differs.
pub fn run(group: &ProcessGroup, case: &Case) -> Result<std::result::Result<(), String>> {
    run_on(group, case, Memory::Users)
}

/// As [`run`], with tensors in such memory.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    group: &ProcessGroup,
    case: &Case,
    memory: Memory,
) -> Result<std::result::Result<(), String>> {
    let here = RankCase { case, rank: group.rank(), size: group.size(), memory };
    let buffers: Vec<Buffers> = (0..1 + usize::from(case.coalesced)).map(|_| here.make()).collect();
    let mut request = Request::new(case.collective);
    request.inputs = lists(&buffers, |buffers| &buffers.inputs);
    request.outputs = lists(&buffers, |buffers| &buffers.outputs);
    request.reduce_op = case.reduce_op;
    request.root = case.root;
    request.coalesced = case.coalesced;
    group.run(request)?;
    Ok(buffers.iter().try_for_each(|buffers| here.check(buffers)))
}

fn lists(buffers: &[Buffers], side: fn(&Buffers) -> &Vec<Slot>) -> Vec<Vec<Tensor>> {
    let tensors = |slots: &Vec<Slot>| slots.iter().map(|slot| slot.tensor.clone()).collect();
    buffers.iter().map(|buffers| tensors(side(buffers))).collect()
}

/// A tensor and the elements that must be in it afterwards.
struct Slot {
    tensor: Tensor,
    expected: Vec<u8>,
}

/// A rank's tensors of one operation.
struct Buffers {
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
}

/// A case as one rank sees it.
struct RankCase<'case> {
    case: &'case Case,
    rank: u32,
    size: u32,
    memory: Memory,
}

impl RankCase<'_> {
    fn make(&self) -> Buffers {
        let facts = facts(self.case.collective);
        let (input, output) = (fact(facts, "input"), fact(facts, "output"));
        let data = if output == "None" { Vec::new() } else { self.sends(input) };
        let results = self.receives(input, output);
        let in_place = matches!((input, output), ("None", _) | (_, "OneAtRoot"));
        if in_place {
            // What a tensor held is replaced, or stays where there is no result.
            let outputs: Vec<Slot> = data
                .iter()
                .enumerate()
                .map(|(at, before)| {
                    let expected = results.get(at).unwrap_or(before).clone();
                    Slot { tensor: self.tensor(before), expected }
                })
                .collect();
            let inputs = if input == "None" { Vec::new() } else { again(&outputs) };
            return Buffers { inputs, outputs };
        }
        let slot =
            |before: &[u8], expected: Vec<u8>| Slot { tensor: self.tensor(before), expected };
        Buffers {
            inputs: data.into_iter().map(|data| slot(&data, data.clone())).collect(),
            outputs: results
                .into_iter()
                .map(|expected| slot(&vec![UNTOUCHED; expected.len()], expected))
                .collect(),
        }
    }

    /// What this rank puts in, block by block.
    fn sends(&self, input: &str) -> Vec<Vec<u8>> {
        let mine = |to: u32, block: u32| self.data(self.rank, block, self.length(self.rank, to));
        match input {
            "None" | "One" => vec![mine(self.rank, 0)],
            "AllAtRoot" if self.rank != self.case.root => Vec::new(),
            _ => (0..self.size).map(|to| mine(to, to)).collect(),
        }
    }

    /// What this rank must get, block by block.
    fn receives(&self, input: &str, output: &str) -> Vec<Vec<u8>> {
        let (rank, root) = (self.rank, self.case.root);
        let facts = facts(self.case.collective);
        let block = if input.starts_with("All") { rank } else { 0 };
        match output {
            "None" => Vec::new(),
            "AllAtRoot" | "OneAtRoot" if rank != root => Vec::new(),
            "All" | "AllAtRoot" => {
                (0..self.size).map(|from| self.data(from, block, self.length(from, rank))).collect()
            }
            _ if facts["reduces"] == true && self.reduction()[1].is_null() => self.sends(input),
            _ if facts["reduces"] == true => vec![self.reduced(block, self.length(rank, rank))],
            _ => vec![self.data(root, block, self.length(root, rank))],
        }
    }

    /// Elements of what `from` has for `to`.
    fn length(&self, from: u32, to: u32) -> usize {
        let facts = facts(self.case.collective);
        let more = match fact(facts, "sizes") {
            "Equal" => 0,
            "Pairwise" => from + 2 * to,
            _ if fact(facts, "output").starts_with("All") => from,
            _ => to,
        };
        self.case.elements + if self.case.uneven { more as usize % 3 } else { 0 }
    }

    /// Elements of the input of `rank` that is its block `block`.
    fn data(&self, rank: u32, block: u32, elements: usize) -> Vec<u8> {
        let inputs = &file()["dtypes"][self.case.dtype.name()]["inputs"];
        let [scale, _] = self.reduction();
        let pattern = inputs[&scale.to_string()].as_str().expect("a pattern");
        self.cut(pattern, step("rank_step") * rank as usize, block, elements)
    }

    fn reduced(&self, block: u32, elements: usize) -> Vec<u8> {
        let [_, pattern] = self.reduction();
        self.cut(pattern.as_str().expect("a pattern"), 0, block, elements)
    }

    /// The scale of the inputs and one period of the result.
    fn reduction(&self) -> [&'static Value; 2] {
        static PLAIN: OnceLock<Value> = OnceLock::new();
        let one = PLAIN.get_or_init(|| Value::from(1));
        if facts(self.case.collective)["reduces"] == false {
            return [one, &Value::Null];
        }
        let (op, dtype) = (self.case.reduce_op.name(), self.case.dtype.name());
        let prefix = match self.case.collective {
            Collective::Scan => Some(self.rank + 1),
            Collective::Exscan => Some(self.rank),
            _ => None,
        };
        if let Some(ranks) = prefix {
            return [one, &file()["prefixes"][op][dtype][&ranks.to_string()]];
        }
        let found = &file()["reductions"][op][dtype][&self.size.to_string()];
        [&found[0], &found[1]]
    }

    /// So many elements of a periodic pattern.
    fn cut(&self, pattern: &str, phase: usize, block: u32, elements: usize) -> Vec<u8> {
        let width = self.case.dtype.size_bytes();
        let bytes = unhex(pattern);
        let start = (phase + step("block_step") * block as usize) % (bytes.len() / width) * width;
        let wanted = elements * width;
        // Whole periods at once: byte by byte takes long in a build for tests.
        let mut all = bytes.repeat((start + wanted).div_ceil(bytes.len()));
        all.drain(..start);
        all.truncate(wanted);
        all
    }

    fn tensor(&self, data: &[u8]) -> Tensor {
        let (dtype, width) = (self.case.dtype, self.case.dtype.size_bytes());
        let elements = data.len() / width;
        if !self.case.strided || elements == 0 {
            return Tensor::contiguous(region(data.to_vec(), self.memory), dtype, vec![elements]);
        }
        // The region ends with the last element; gaps lie between.
        let mut spaced = vec![UNTOUCHED; (2 * elements - 1) * width];
        for (place, element) in spaced.chunks_mut(2 * width).zip(data.chunks(width)) {
            place[..width].copy_from_slice(element);
        }
        Tensor::strided(region(spaced, self.memory), dtype, vec![elements], vec![2], 0)
    }

    /// Whether the last bits may differ: NCCL has each rank divide, and rounds each quotient.
    fn is_rounded(&self) -> bool {
        matches!(self.memory, Memory::Device(_)) && self.case.reduce_op == ReduceOp::Avg
    }

    fn check(&self, buffers: &Buffers) -> std::result::Result<(), String> {
        let dtype = self.case.dtype;
        for (side, slots) in [("input", &buffers.inputs), ("output", &buffers.outputs)] {
            for (at, slot) in slots.iter().enumerate() {
                // A tensor like the one before, so that the gaps are compared too.
                let expected = bytes_of(self.tensor(&slot.expected).region());
                let got = bytes_of(slot.tensor.region());
                if got == expected || self.is_rounded() && are_close(dtype, &got, &expected) {
                    continue;
                }
                if let Some(how) = difference(dtype.size_bytes(), &got, &expected) {
                    return Err(format!("rank {} {side} {at}: {how}", self.rank));
                }
            }
        }
        Ok(())
    }
}

/// How many elements of so many bytes differ, and the first that does.
fn difference(width: usize, got: &[u8], expected: &[u8]) -> Option<String> {
    let pairs = got.chunks(width).zip(expected.chunks(width)).enumerate();
    let wrong: Vec<_> = pairs.filter(|(_, (got, expected))| got != expected).collect();
    let (first, (one, other)) = wrong.first()?;
    let (count, last) = (wrong.len(), wrong.last()?.0);
    let some = |all: &[u8]| format!("{:02x?}", all.chunks(width).take(SHOWN).collect::<Vec<_>>());
    Some(format!(
        "{count} elements from {first} to {last} differ; the first is {one:02x?}, expected \
         {other:02x?}; it begins with {}, expected {}",
        some(got),
        some(expected)
    ))
}

fn region(bytes: Vec<u8>, memory: Memory) -> Region {
    match memory {
        Memory::Users => Region::from_vec(bytes),
        Memory::Polyranks => {
            let region = Region::for_elements(bytes.len()).expect("there is memory");
            region.write(|place| place.copy_from_slice(&bytes));
            region
        }
        Memory::Device(index) => cuda::upload(&bytes, index).expect("the device has memory"),
    }
}

fn bytes_of(region: &Region) -> Vec<u8> {
    match region.device() {
        None => region.read(<[u8]>::to_vec),
        Some(_) => cuda::download(region).expect("the device is there"),
    }
}

/// The same tensors as the other buffer of an operation in place.
fn again(slots: &[Slot]) -> Vec<Slot> {
    let same = |slot: &Slot| Slot { tensor: slot.tensor.clone(), expected: slot.expected.clone() };
    slots.iter().map(same).collect()
}

fn facts(collective: Collective) -> &'static Value {
    &file()["collectives"][collective.facts().name]
}

fn fact(facts: &'static Value, name: &str) -> &'static str {
    facts[name].as_str().expect("a fact is a word")
}

fn step(name: &str) -> usize {
    file()[name].as_u64().expect("a step is a number") as usize
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}
