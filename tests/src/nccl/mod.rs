//! Ranks over NCCL. Where there is no device, a library stands for NCCL and the CUDA driver, over
//! host memory (`tests/nccl/double`): what passes with it says that our side is right, and nothing
//! about a real device. Where there is one, `devices` runs what is in `contract` on it.

pub mod contract;
pub mod devices;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use polyrank::backend::nccl::{self, NcclOptions};
use polyrank::process_group::GroupOptions;
use polyrank::tensor::cuda;
use polyrank::{Collective, DType, Device, Error, ProcessGroup, ReduceOp, Request, Tensor};

use super::cases::{self, Case, Memory};
use super::folder::Folder;
use super::languages::{Language, Program, built, say_skipped};
use super::processes::{ProcessEnd, bare_processes, is_rank, variables, with_variable};
use super::ranks_with;
use super::rounding::rounds;

/// Runs `run`, whose started processes find the double instead of NCCL and the driver, and leave
/// what they write in a folder that is gone afterwards.
fn with_double<R>(run: impl FnOnce() -> R) -> R {
    if is_rank() {
        return run();
    }
    let suffix = std::env::consts::DLL_SUFFIX;
    let library = PathBuf::from(built(&format!("examples/libnccl_double{suffix}")));
    // The driver is looked for by its name alone. It is the same library, for both have to know the
    // same streams.
    let folder = Folder::new();
    let driver = folder.path().join(format!("libcuda{suffix}"));
    std::os::unix::fs::symlink(&library, driver).expect("the folder is new");
    let mut paths = vec![folder.path().to_owned()];
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    paths.extend(std::env::split_paths(&before));
    let paths = std::env::join_paths(paths).expect("paths without colons");
    let (paths, library) = (paths.to_string_lossy(), library.to_string_lossy());
    with_variable("LD_LIBRARY_PATH", &paths, || {
        with_variable("TMPDIR", &folder.path().to_string_lossy(), || {
            with_variable("POLYRANK_NCCL_LIBRARY", &library, run)
        })
    })
}

/// Runs `main` in a process of its own with the double, and expects it to end well. `test` is the
/// full name of the calling test.
pub fn in_double(test: &str, main: impl FnOnce()) {
    let ended = in_double_as(test, main);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
}

/// As [`in_double`]; how the process ended.
pub fn in_double_as(test: &str, main: impl FnOnce()) -> ProcessEnd {
    let ended = with_double(|| bare_processes(test, 1, main));
    ended.into_iter().next().expect("there was one process")
}

/// As [`in_double`], where the double notes what is called, for [`calls`].
pub fn in_double_with_log(test: &str, main: impl FnOnce()) {
    if is_rank() {
        return in_double(test, main);
    }
    let folder = Folder::new();
    with_variable(LOG, &folder.text_of("log"), || in_double(test, main));
}

/// What was called since [`forget_calls`], in [`in_double_with_log`].
pub fn calls() -> Vec<String> {
    let text = std::fs::read_to_string(log_path()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// How many of [`calls`] begin like this.
pub fn count(start: &str) -> usize {
    calls().iter().filter(|call| call.starts_with(start)).count()
}

/// Begins [`calls`] anew.
pub fn forget_calls() {
    // There is none before the first call.
    let _ = std::fs::remove_file(log_path());
}

/// The variable that names the double's log.
const LOG: &str = "NCCL_DOUBLE_LOG";

fn log_path() -> PathBuf {
    std::env::var_os(LOG).expect("there is a log").into()
}

/// A tensor with these elements on a device.
pub fn on_device(index: u32, numbers: &[f32]) -> Tensor {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let region = cuda::upload(&bytes, index).expect("the double has the device");
    Tensor::contiguous(region, DType::F32, vec![numbers.len()])
}

/// The elements of a tensor on a device, after what its stream was issued.
pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    let bytes = cuda::download(tensor.region()).expect("it is on a device");
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_ne_bytes(*four)).collect()
}

/// A collective on `tensor`, in place.
pub fn request(collective: Collective, tensor: &Tensor) -> Request {
    let mut request = Request::new(collective);
    request.outputs = vec![vec![tensor.clone()]];
    request
}

/// Runs a script of `tests/nccl` on `size` Python ranks with the double. `None`, after saying so,
/// where Python is missing.
pub fn python_ranks(script: &'static str, size: u32) -> Option<Output> {
    program(Language::Python, Program { example: "", script }, size)
}

/// Runs a program on `size` ranks of a language with the double, whose tensors are to lie on
/// devices. `None`, after saying so, where the language is missing.
pub fn program(language: Language, program: Program, size: u32) -> Option<Output> {
    job(program, &[(language, size)])
}

/// As [`program`], with so many ranks of each language, in this order of ranks.
pub fn job(program: Program, parts: &[(Language, u32)]) -> Option<Output> {
    let folder = Folder::new();
    with_variable(LOG, &folder.text_of("log"), || with_double(|| without_double(program, parts)))
}

/// As [`job`], where nothing stands for NCCL and the driver.
pub fn without_double(program: Program, parts: &[(Language, u32)]) -> Option<Output> {
    launch(program, parts, &[], "cuda")
}

/// As [`job`], with these words before each command, and tensors on such a device.
fn launch(
    program: Program,
    parts: &[(Language, u32)],
    before: &[&str],
    device: &str,
) -> Option<Output> {
    let mut command = Command::new(built("polyrank"));
    command.args(["run", "--no-prefix"]);
    for (index, (language, ranks)) in parts.iter().enumerate() {
        let words = match language.command(program) {
            Ok(words) => words,
            Err(missing) => {
                say_skipped(&missing);
                return None;
            }
        };
        command.args((index > 0).then_some(":")).args(["-n", &ranks.to_string()]);
        command.args(before).args(words);
    }
    command.envs([("POLYRANK_TEST_BACKEND", "nccl"), ("POLYRANK_TEST_DEVICE", device)]);
    let output = command.envs(variables()).output();
    Some(output.expect("the launcher starts"))
}

/// The device of a rank. Where there are fewer than ranks, several have one.
///
/// # Panics
/// There is none.
pub fn device_of(rank: u32) -> u32 {
    rank % cuda::device_count().expect("there is a device")
}

/// Runs a case with tensors on this rank's device; what is wrong, if something is. What NCCL does
/// not have must be a typed error.
///
/// # Errors
/// What differs, or how the operation failed.
pub fn check(group: &ProcessGroup, case: &Case) -> std::result::Result<(), String> {
    let outcome = cases::run_on(group, case, Memory::Device(device_of(group.rank())));
    let reduces = case.collective.facts().reduces;
    let has_it = !matches!(case.collective, Collective::Scan | Collective::Exscan);
    let expected = has_it && (!reduces || nccl::reduces(case.reduce_op, case.dtype));
    match outcome {
        Err(Error::InvalidArgument { message }) if case.strided => {
            let is_meant = message.contains("must be contiguous");
            if is_meant { Ok(()) } else { Err(message) }
        }
        Err(Error::Unsupported { who, .. }) if !expected && who == "the nccl backend" => Ok(()),
        Ok(Ok(())) if !expected => Err("NCCL does not have it".to_owned()),
        Ok(outcome) => outcome,
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a case is run over NCCL by ranks of all languages (`cases/device.py`): with strides,
/// some ranks may have a block of one element, and no reason to refuse; and what NCCL rounds is
/// compared in Rust alone.
pub fn is_same_in_all_languages(case: &Case, world: u32) -> bool {
    let averages = case.collective.facts().reduces && case.reduce_op == ReduceOp::Avg;
    !(case.strided || averages && rounds(case.dtype) && !world.is_power_of_two())
}

/// How the groups of [`nccl_ranks`] are made.
#[derive(Clone, Debug)]
pub struct NcclSetup {
    /// Which backend serves which device.
    pub backend: &'static str,
    /// Whether each rank is bound to a device from the start.
    pub bound: bool,
    /// Limit of the group and of its operations.
    pub timeout: Duration,
    /// How communicators are made, if something is chosen.
    pub nccl: Option<NcclOptions>,
}

impl Default for NcclSetup {
    fn default() -> NcclSetup {
        NcclSetup { backend: "nccl", bound: false, timeout: super::LIMIT, nccl: None }
    }
}

/// Runs `rank_main` on `size` ranks, each a thread with a device of its own; the results by rank.
/// To be called where the double is.
pub fn nccl_ranks<R: Send>(
    size: u32,
    made: &NcclSetup,
    rank_main: impl Fn(ProcessGroup) -> R + Sync,
) -> Vec<R> {
    let options = |rank| {
        let spec = made.backend.parse().expect("a backend");
        let mut options = GroupOptions::default().backend(spec).timeout(made.timeout);
        options.backend_options = made.nccl.clone().map(Into::into);
        options.device = made.bound.then_some(Device::Cuda(rank));
        options
    };
    ranks_with(size, options, rank_main)
}
