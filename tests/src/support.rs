//! What a backend can do, as a group shows it when it is tried, and as the site's page tells it.
//! Knows nothing of how a backend does it.

use polyrank::backend::registry::{self, BackendName};
use polyrank::backend::{Capabilities, CudaTensors, Mismatches};
use polyrank::options::AllreduceOptions;
use polyrank::process_group::SplitOptions;
use polyrank::{
    Collective, CustomReduction, DType, Error, ProcessGroup, ReduceOp, Region, Request, Tensor,
};

use super::cases::{self, Case, case, reduce_ops};

/// Tries everything on two ranks, which call it together, and says what worked. Whatever does not
/// must raise the error for it.
pub fn observe(group: &ProcessGroup) -> Capabilities {
    let mut seen = Capabilities::complete();
    for collective in Collective::ALL {
        if !works(group, &case(collective, DType::F32, ReduceOp::Sum, 3)) {
            seen = seen.without(collective);
        }
    }
    for dtype in DType::ALL {
        for reduce_op in reduce_ops() {
            let one = case(Collective::Allreduce, dtype, reduce_op, 3);
            if seen.reduces(reduce_op, dtype) && !works(group, &one) {
                seen = seen.without_reduction(reduce_op, dtype);
            } else if !seen.reduces(reduce_op, dtype) {
                refuses(group, dtype, reduce_op);
            }
        }
    }
    if DType::ALL.into_iter().all(|dtype| combines(group, dtype)) {
        seen = seen.with_custom_reductions();
    }
    if compresses(group) {
        seen = seen.with_compression();
    }
    seen.any_source = receives_from_anybody(group);
    seen.highest_tag = highest_tag(group);
    seen.split = group.split_group(&[0, 1], SplitOptions::default()).is_ok_and(|half| {
        half.expect("both ranks are members").shutdown().expect("the ranks agree");
        true
    });
    seen.mismatches = mismatches(group);
    seen
}

/// Whether the case can be run; it must then come out right.
fn works(group: &ProcessGroup, case: &Case) -> bool {
    match cases::run(group, case) {
        Ok(outcome) => {
            assert_eq!(outcome, Ok(()), "{case}");
            true
        }
        Err(Error::Unsupported { .. } | Error::UnsupportedDType { .. }) => false,
        Err(error) => panic!("{case}: {error}"),
    }
}

/// Whether a function of the program reduces such elements; both ranks must get the same then.
fn combines(group: &ProcessGroup, dtype: DType) -> bool {
    let function = CustomReduction::of_tensors(|_, upper| Ok(upper.clone()));
    let memory = Region::from_vec(vec![group.rank() as u8; 3 * dtype.size_bytes()]);
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![Tensor::contiguous(memory.clone(), dtype, vec![3])]];
    request.reduce_op = function.op();
    match group.run(request) {
        Ok(()) => {
            memory.read(|bytes| assert!(bytes.iter().all(|byte| *byte == 1), "{dtype:?}"));
            true
        }
        Err(Error::Unsupported { .. }) => false,
        Err(error) => panic!("{dtype:?}: {error}"),
    }
}

/// Whether elements travel compressed.
fn compresses(group: &ProcessGroup) -> bool {
    let mut tensor = [0.5_f32, 2.0];
    match group.allreduce(&mut tensor, AllreduceOptions::default().compress("bf16")) {
        Ok(()) => {
            assert_eq!(tensor, [1.0, 4.0]);
            true
        }
        Err(Error::Unsupported { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn refuses(group: &ProcessGroup, dtype: DType, reduce_op: ReduceOp) {
    let mut request = Request::new(Collective::Allreduce);
    let bytes = Region::zeroed(2 * dtype.size_bytes());
    request.outputs = vec![vec![Tensor::contiguous(bytes, dtype, vec![2])]];
    request.reduce_op = reduce_op;
    let error = group.run(request).expect_err("it has no meaning");
    assert!(matches!(error, Error::UnsupportedDType { .. }), "{reduce_op:?} {dtype:?}: {error}");
}

fn receives_from_anybody(group: &ProcessGroup) -> bool {
    if group.rank() == 0 {
        group.send(&[7_u8], 1, 3).expect("it is sent");
    }
    let mut data = [0_u8];
    let from = if group.rank() == 1 { group.recv_anysource(&mut data, 3) } else { Ok(0) };
    match from {
        Ok(from) => from == 0,
        Err(Error::Unsupported { .. }) => {
            group.recv(&mut data, 0, 3).expect("it is received");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// The highest tag with which a message arrives: the declared one, if the one above is refused.
fn highest_tag(group: &ProcessGroup) -> u32 {
    let declared = group.capabilities().highest_tag;
    let arrives = |tag: u32| {
        let done = match group.rank() {
            0 => group.send(&[1_u8], 1, tag),
            _ => group.recv(&mut [0_u8], 0, tag),
        };
        match done {
            Ok(()) => true,
            Err(Error::InvalidArgument { .. }) => false,
            Err(error) => panic!("tag {tag}: {error}"),
        }
    };
    match declared.checked_add(1).filter(|&above| arrives(above)) {
        Some(above) => above,
        None if arrives(declared) => declared,
        None => 0,
    }
}

/// Lets ranks disagree: first in a way that leaves no operation standing still by itself, then in
/// one that does. A group of its own breaks by that.
fn mismatches(group: &ProcessGroup) -> Mismatches {
    let ours = group.split_group(&[0, 1], SplitOptions::default()).expect("it is made");
    let ours = ours.expect("both ranks are members");
    let first = group.rank() == 0;
    let mut alike = Request::new(Collective::Allreduce);
    let tensor = if first { Tensor::from(vec![1_f32]) } else { Tensor::from(vec![1_i32]) };
    alike.outputs = vec![vec![tensor]];
    let found = ours.run(alike);
    if let Err(error) = &found {
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
    } else {
        let mut broadcast = Request::new(Collective::Broadcast);
        broadcast.outputs = vec![vec![Tensor::from(vec![1_f32; 1 << 20])]];
        let apart = if first { Request::new(Collective::Barrier) } else { broadcast };
        let next = Request::new(Collective::Barrier);
        let error = [apart, next].into_iter().find_map(|request| ours.run(request).err());
        let error = error.expect("one of them stands still, or comes after");
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
    }
    // The other rank may be about to ask the store.
    group.get_group_store().barrier("disagreed", 2, None).expect("both come");
    if found.is_err() { Mismatches::Always } else { Mismatches::WhenStalled }
}

/// The site's page, from what backends declare.
pub fn page() -> String {
    let backends: Vec<(&str, Capabilities)> = registry::names()
        .filter_map(|name| {
            let known: BackendName = name.parse().expect("it is known");
            let declared = registry::capabilities(&known);
            // What runs alone, and what a program registered, is no part of the page.
            let declared = declared.filter(|_| ["tcp", "nccl", "mpi", "websocket"].contains(&name));
            declared.filter(|_| known.as_str() == name).map(|declared| (name, declared))
        })
        .collect();
    let mut rows = vec![heading(&backends)];
    for collective in Collective::ALL {
        let name = format!("`{}`", collective.facts().name);
        rows.push(row(&name, &backends, |it| yes(it.has(collective))));
    }
    rows.push(row("`send`, `recv`, by tag", &backends, |it| match it.highest_tag {
        u32::MAX => "any tag below 2³²".to_owned(),
        0 => "no tags".to_owned(),
        highest => format!("tags up to {highest} at least"),
    }));
    rows.push(row("`recv` from any rank", &backends, |it| yes(it.any_source)));
    rows.push(row("groups of some ranks", &backends, |it| yes(it.split)));
    rows.push(row("calls that disagree are detected", &backends, |it| match it.mismatches {
        Mismatches::Always => "by every operation".to_owned(),
        Mismatches::WhenStalled => "once an operation stalls, and when the group is left; by \
                                    every one with `POLYRANK_DEBUG=DETAIL`"
            .to_owned(),
    }));
    rows.push(row("elements travel compressed", &backends, |it| yes(it.compression)));
    rows.push(row("tensors of CUDA devices", &backends, |it| match it.cuda {
        CudaTensors::Directly => "where they are".to_owned(),
        CudaTensors::ByHost => "collectives, by way of the host".to_owned(),
        CudaTensors::Refused => "no".to_owned(),
    }));
    let mut reductions = vec![heading(&backends)];
    for reduce_op in reduce_ops() {
        let name = format!("`{}`", reduce_op.name());
        reductions.push(row(&name, &backends, |it| element_types(it, reduce_op)));
    }
    format!("{BEFORE}{}\n{BETWEEN}{}", rows.concat(), reductions.concat())
}

const BEFORE: &str = "<!-- Generated by `POLYRANK_WRITE=1 cargo test -p polyrank-tests --test \
                      support` from what backends declare; do not edit. -->

# What backends can do

Each backend declares what it can do, and this page is generated from that. A test tries everything
here on two ranks of each backend, and fails where it sees anything other than what is declared.
`gloo` is an alias of `tcp`. The column `nccl` is for tensors on CUDA devices, and was tested
against a fake of NCCL.

";

const BETWEEN: &str = "## Reductions

Types each operator accepts; any other raises `UnsupportedDTypeError`, or `UnsupportedError` if
another backend accepts it.

";

fn heading(backends: &[(&str, Capabilities)]) -> String {
    let names: Vec<&str> = backends.iter().map(|(name, _)| *name).collect();
    format!("| | {} |\n|{}\n", names.join(" | "), " --- |".repeat(names.len() + 1))
}

fn row(
    name: &str,
    backends: &[(&str, Capabilities)],
    cell: impl Fn(&Capabilities) -> String,
) -> String {
    let cells: Vec<String> = backends.iter().map(|(_, declared)| cell(declared)).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

fn yes(is_there: bool) -> String {
    if is_there { "yes" } else { "no" }.to_owned()
}

fn element_types(declared: &Capabilities, reduce_op: ReduceOp) -> String {
    let (has, lacks): (Vec<DType>, Vec<DType>) =
        DType::ALL.into_iter().partition(|&dtype| declared.reduces(reduce_op, dtype));
    let names =
        |dtypes: &[DType]| dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    match (has.len(), lacks.len()) {
        (_, 0) => "all".to_owned(),
        (0, _) => "none".to_owned(),
        (has, lacking) if lacking < has => format!("all but {}", names(&lacks)),
        _ => names(&has),
    }
}
