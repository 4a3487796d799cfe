//! The programs of a job, each with its number of ranks: the words after the options.
//! Knows nothing of hosts.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory, Parser};
use polyrank::env::variable::{self, Variable};

use super::spelling::normalised;

/// More ranks than this on one host are a typing mistake.
pub(super) const MAX_RANKS_PER_NODE: u32 = 4096;

/// The options that a part after a ":" may open with.
#[derive(Parser)]
#[command(name = ":", no_binary_name = true, disable_help_flag = true)]
struct PartArguments {
    #[arg(short = 'n', long, aliases = ["nproc", "np"], value_name = "N|cpu|gpu|auto")]
    #[arg(allow_negative_numbers = true)]
    nproc_per_node: Option<String>,
    #[command(flatten)]
    form: Form,
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

/// What a program is.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct Form {
    /// The program is the name of a Python module, to be run as `python -m` does
    #[arg(short = 'm', long)]
    module: bool,
    /// Run the program as it is, even if its name ends in .py, .js, .mjs or .cjs
    #[arg(long, conflicts_with = "module")]
    no_python: bool,
}

/// One program of a job and how many ranks of this host run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) rank_count: u32,
}

impl Part {
    /// The program and its arguments as a person would type them.
    pub(crate) fn command_line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

/// Splits the words after the options at each lone ":".
pub(super) fn parts(
    first_count: Option<&str>,
    first_form: Form,
    words: &[OsString],
) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for (index, words) in words.split(|word| word == ":").enumerate() {
        if words.is_empty() {
            let example = "as in -n 2 python train.py : -n 1 ./other";
            return Err(format!(
                "program {} of the job is empty: write one \":\" between two programs, {example}",
                index + 1
            ));
        }
        parts.push(if index == 0 {
            part(first_count, first_form, words)?
        } else {
            let words = normalised(words, &PartArguments::command());
            let arguments = PartArguments::try_parse_from(words)
                .map_err(|error| format!("in program {} of the job: {error}", index + 1))?;
            part(arguments.nproc_per_node.as_deref(), arguments.form, &arguments.program)?
        });
    }
    let ranks: u64 = parts.iter().map(|part| u64::from(part.rank_count)).sum();
    match ranks > u64::from(MAX_RANKS_PER_NODE) {
        true => Err(format!("more than {MAX_RANKS_PER_NODE} ranks on one node")),
        false => Ok(parts),
    }
}

fn part(count: Option<&str>, form: Form, words: &[OsString]) -> Result<Part, String> {
    let rank_count = rank_count(count.unwrap_or("1"))?;
    let Some((program, arguments)) = words.split_first() else {
        return Err("a program is missing".to_owned());
    };
    let (program, words) = match interpreter(Path::new(program)) {
        _ if form.module => (PYTHON.program(), [&["-m".into()], words].concat()),
        Some(interpreter) if !form.no_python => (interpreter.program(), words.to_vec()),
        _ => (program.clone(), arguments.to_vec()),
    };
    Ok(Part { program, arguments: words, rank_count })
}

/// What runs scripts of one language; `python -m polyrank.run` names its own.
struct Interpreter {
    variable: Variable,
    usual: &'static str,
}

const PYTHON: Interpreter = Interpreter { variable: variable::POLYRANK_PYTHON, usual: "python3" };
const NODE: Interpreter = Interpreter { variable: variable::POLYRANK_NODE, usual: "node" };

impl Interpreter {
    fn program(&self) -> OsString {
        self.variable.value().unwrap_or_else(|| self.usual.into())
    }
}

/// What runs a program that is a script.
fn interpreter(program: &Path) -> Option<Interpreter> {
    match program.extension().and_then(OsStr::to_str) {
        Some("py") => Some(PYTHON),
        Some("js" | "mjs" | "cjs") => Some(NODE),
        _ => None,
    }
}

/// A number of ranks in words.
pub(super) fn rank_count(text: &str) -> Result<u32, String> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let count = match text {
        "cpu" => cores(),
        "auto" => match gpu_count() {
            0 => cores(),
            count => count,
        },
        "gpu" => match gpu_count() {
            0 => {
                let advice = "give a number, as in -n 4";
                let what = "this host has no NVIDIA GPU that may be used";
                return Err(format!("number of ranks \"gpu\": {what}; {advice}"));
            }
            count => count,
        },
        number => number.parse().map_err(|_| {
            let expected = "expected a number, \"cpu\", \"gpu\" or \"auto\", as in -n 4";
            format!("number of ranks \"{number}\": {expected}")
        })?,
    };
    match count {
        0 => Err("number of ranks 0: a program runs as at least one rank, as in -n 1".to_owned()),
        count if count > MAX_RANKS_PER_NODE => {
            let most = format!("at most {MAX_RANKS_PER_NODE} on one node, as in -n 4");
            Err(format!("number of ranks {count}: {most}"))
        }
        count => Ok(count),
    }
}

/// What `CUDA_VISIBLE_DEVICES` lists, else the device files of the NVIDIA driver.
pub(crate) fn visible_devices() -> Vec<String> {
    if variable::CUDA_VISIBLE_DEVICES.is_set() {
        let visible = variable::CUDA_VISIBLE_DEVICES.text().unwrap_or_default();
        let shown = visible.split(',').map(str::trim);
        let shown = shown.take_while(|name| !name.is_empty() && *name != "-1");
        return shown.map(str::to_owned).collect();
    }
    let is_there = |number: &u32| Path::new(&format!("/dev/nvidia{number}")).exists();
    // CUDA counts those that are there.
    (0..64).filter(is_there).enumerate().map(|(number, _)| number.to_string()).collect()
}

fn gpu_count() -> u32 {
    visible_devices().len() as u32
}
