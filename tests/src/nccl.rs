//! Ranks over NCCL where there is no device: a library stands for NCCL and the CUDA driver, over
//! host memory (`tests/nccl/double`). What passes with it says that our side is right, and nothing
//! about a real device. Knows nothing of what the ranks do.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use polyrank::ProcessGroup;
use polyrank::backend::nccl::NcclOptions;
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};

use super::languages::{Language, Program, built, say_skipped};
use super::processes::{Ended, bare_processes, variables, with_variable};

/// Runs `run`, whose started processes find the double instead of NCCL and the driver.
fn with_double<R>(run: impl FnOnce() -> R) -> R {
    let suffix = std::env::consts::DLL_SUFFIX;
    let library = PathBuf::from(built(&format!("examples/libnccl_double{suffix}")));
    // The driver is looked for by its name alone. Beside the library, so that it is the same one:
    // both have to know the same streams.
    let folder = PathBuf::from(built("examples")).join("nccl_double_as_driver");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    // It is there already, or another test makes it now.
    let _ = std::os::unix::fs::symlink(&library, folder.join(format!("libcuda{suffix}")));
    let mut paths = vec![folder];
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    paths.extend(std::env::split_paths(&before));
    let paths = std::env::join_paths(paths).expect("paths without colons");
    let (paths, library) = (paths.to_string_lossy(), library.to_string_lossy());
    with_variable("LD_LIBRARY_PATH", &paths, || {
        with_variable("POLYRANK_NCCL_LIBRARY", &library, run)
    })
}

/// Runs `main` in a process of its own with the double, and expects it to end well. `test` is the
/// full name of the calling test.
pub fn in_double(test: &str, main: impl FnOnce()) {
    let ended = in_double_as(test, main);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
}

/// As [`in_double`]; how the process ended.
pub fn in_double_as(test: &str, main: impl FnOnce()) -> Ended {
    let ended = with_double(|| bare_processes(test, 1, main));
    ended.into_iter().next().expect("there was one process")
}

/// Runs `rank_main` on `size` processes with the double and the default group, made with `options`
/// and, with `bound`, bound to a device of its own; how each ended, by rank.
pub fn nccl_processes(
    test: &str,
    size: u32,
    options: InitOptions,
    rank_main: impl FnOnce(ProcessGroup),
) -> Vec<Ended> {
    with_double(|| {
        bare_processes(test, size, || {
            let group =
                init_process_group(options.timeout(super::LIMIT)).expect("the group is made");
            rank_main(group);
            destroy_process_group(None).expect("the group is destroyed");
        })
    })
}

/// Runs a script of `tests/nccl` on `size` Python ranks with the double. `None`, after saying so,
/// where Python is missing.
pub fn python_ranks(script: &'static str, size: u32) -> Option<Output> {
    let words = match Language::Python.command(Program { example: "", script }) {
        Ok(words) => words,
        Err(missing) => {
            say_skipped(&missing);
            return None;
        }
    };
    let mut command = Command::new(built("polyrank"));
    command.args(["run", "--no-prefix", "-n", &size.to_string()]).args(words);
    with_double(|| {
        let output = command.envs(variables()).output();
        Some(output.expect("the launcher starts"))
    })
}

/// How the groups of [`nccl_ranks`] are made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Which backend serves which device.
    pub backend: &'static str,
    /// Whether each rank is bound to a device from the start.
    pub bound: bool,
    /// Limit of the group and of its operations.
    pub timeout: Duration,
    /// How communicators are made, if something is chosen.
    pub nccl: Option<NcclOptions>,
}

impl Default for Made {
    fn default() -> Made {
        Made { backend: "nccl", bound: false, timeout: super::LIMIT, nccl: None }
    }
}

/// Runs `rank_main` on `size` ranks, each a thread with a device of its own; the results by rank.
/// To be called where the double is.
pub fn nccl_ranks<R: Send>(
    size: u32,
    made: &Made,
    rank_main: impl Fn(ProcessGroup) -> R + Sync,
) -> Vec<R> {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let rank_main = &rank_main;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let store = store.clone();
                scope.spawn(move || {
                    let spec = made.backend.parse().expect("a backend");
                    let mut options = GroupOptions::default().backend(spec).timeout(made.timeout);
                    options.nccl = made.nccl.clone();
                    if made.bound {
                        options = options.device(polyrank::Device::Cuda(rank));
                    }
                    let group = ProcessGroup::new(store, rank, size, "test", options)
                        .expect("the group is made");
                    let result = rank_main(group.clone());
                    group.shutdown();
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank did not panic")).collect()
    })
}
