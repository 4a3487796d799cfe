//! The command line of `polyrank bench`, read into a [`Benchmark`]: what is measured, and which
//! contenders are compared. Starts nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
#[cfg(target_os = "linux")]
use clap::Subcommand;

use super::algorithms::{ForcedAlgorithm, force};
use super::find::{Programs, pairs};
use super::inputs::Inputs;
use super::library::{CallStyle, Contender, Language, Library, Memory, Peer};
use super::operation::{Form, Operation};
use super::pattern::Reduction;
use super::table::Column;
use super::turn_settings::TurnSettings;
use crate::sizes::{self, Step};
use polyrank::DType;
use polyrank::env::variable;

/// Most ranks. More do not measure one host, and sums of small integers would not fit.
pub(super) const MAX_RANKS: u32 = 120;
/// Most contenders: more are a typing error.
const MAX_CONTENDERS: usize = 16;

/// What can be measured beside collectives.
#[cfg(target_os = "linux")]
#[derive(Subcommand)]
pub(super) enum OtherCommand {
    /// Measure a store's server: requests per second, with up to ten thousand clients
    #[command(after_help = super::store::EXAMPLES)]
    Store(super::store::StoreBenchArguments),
    /// Measure how long ranks take from nothing to the end of their first allreduce
    #[command(after_help = super::startup::EXAMPLES)]
    Start(super::startup::StartArguments),
}

/// The options of `polyrank bench`. Short options follow nccl-tests where both have them, except -n
/// (ranks) and -a (algorithm).
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArguments {
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    pub(super) other: Option<OtherCommand>,
    /// What to measure
    #[arg(value_name = "OPERATION", default_value = "allreduce", help = operations_help())]
    operations: String,
    /// Smallest size
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "4", value_parser = sizes::parse)]
    min_bytes: u64,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "64M")]
    #[arg(value_parser = sizes::parse)]
    max_bytes: u64,
    /// Factor between sizes
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 4.0)]
    step_factor: f64,
    /// Bytes between sizes (instead of --step-factor)
    #[arg(short = 'i', long, value_name = "SIZE", value_parser = sizes::parse)]
    step_bytes: Option<u64>,
    /// Just these sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = sizes::parse)]
    sizes: Option<Vec<u64>>,
    /// Numbers of ranks
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    ranks: Vec<u32>,
    /// Element types: u8 … i64, f16, bf16, f32, f64
    #[arg(short = 'd', long, alias = "datatype", value_name = "TYPE,…", value_delimiter = ',')]
    #[arg(default_value = "f32")]
    dtype: Vec<String>,
    /// Reductions: sum, avg, product, min, max, band, bor, bxor
    #[arg(short = 'o', long, value_name = "OP,…", value_delimiter = ',', default_value = "sum")]
    op: Vec<String>,
    /// Root of broadcast, reduce, gather and scatter; "all" rotates the root on every call, so that
    /// no rank runs ahead of the others
    #[arg(short = 'r', long, value_name = "RANK|all", default_value = "all")]
    root: String,
    /// Languages of the ranks; "+" mixes them in one group, "," separates contenders
    #[arg(short = 'l', long, value_name = "LANGUAGE,…", value_delimiter = ',')]
    #[arg(default_value = "rust")]
    language: Vec<String>,
    /// Algorithms to force, compared with one another; "auto" lets polyrank choose
    #[arg(short = 'a', long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto")]
    algorithm: Vec<String>,
    /// How ranks communicate: "tcp", "shm" (shared memory), or "auto", the faster available one
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto")]
    #[arg(value_parser = ["auto", "tcp", "shm"])]
    transport: Vec<String>,
    /// Who allocates the tensors: "user" (the language's own arrays) or "polyrank"
    #[arg(long, value_name = "WHOSE,…", value_delimiter = ',', default_value = "user")]
    memory: Vec<String>,
    /// Calls: "ordinary", or "prepared" once and started often (allreduce only)
    #[arg(long, value_name = "CALL,…", value_delimiter = ',', default_value = "ordinary")]
    call: Vec<String>,
    /// Other libraries to compare with: gloo, openmpi, openmpi-tcp, mpich, memcpy
    #[arg(long, value_name = "PEER,…", value_delimiter = ',')]
    against: Vec<String>,
    /// Python interpreter that has LIBRARY (gloo, openmpi, mpich, polyrank) installed; may be
    /// repeated
    #[arg(long, value_name = "LIBRARY=PATH")]
    python: Vec<String>,
    /// A variable for the environment of polyrank's ranks; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// What ranks do with their inputs between calls: "rewritten", as in programs, or "untouched";
    /// both are shown side by side
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', default_value = "rewritten")]
    inputs: Vec<String>,
    /// Bytes after the beginning of a cache line at which tensors begin: 1 is an odd address
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=4096))]
    offset: u16,
    /// Cores of the ranks, in turn: "0" pins all to one core, "0,1" each to one of two [default:
    /// the system's choice]
    #[arg(long, value_name = "CORE,…", value_delimiter = ',')]
    pin: Vec<usize>,
    /// In place or out of place: natural (each operation's usual form) or both
    #[arg(long, value_name = "FORM", default_value = "natural")]
    #[arg(value_parser = ["natural", "both"])]
    form: String,
    /// Calls of one turn [default: as many as fit into --seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iters: Option<u64>,
    /// Length of one turn
    #[arg(long, value_name = "SECONDS", default_value_t = 0.03, value_parser = turn_seconds)]
    seconds: f64,
    /// Alternating turns of every contender
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Calls before timing starts
    #[arg(short = 'w', long, value_name = "N", default_value_t = 5)]
    warmup: u64,
    /// Do not verify results
    #[arg(long)]
    no_check: bool,
    /// How long one step of a group may take before it counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Title of the run, in files
    #[arg(long, value_name = "TEXT", default_value = "polyrank bench")]
    title: String,
    /// Measure only what links within this host cost, for POLYRANK_LINK_COSTS, and then what each
    /// way to copy costs, which later jobs begin with; as rank of a job on two hosts, what the link
    /// between these costs, which is added to the file
    #[arg(long, value_name = "FILE")]
    pub(super) calibrate: Option<PathBuf>,
    /// Print the name of this machine's processor, under which results are kept; measure nothing
    #[arg(long)]
    pub(super) show_processor: bool,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw times and bandwidths into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// What to measure.
#[derive(Debug)]
pub(super) struct Benchmark {
    pub(super) title: String,
    pub(super) operations: Vec<Operation>,
    pub(super) sizes: Vec<u64>,
    pub(super) ranks: Vec<u32>,
    pub(super) dtypes: Vec<DType>,
    pub(super) reductions: Vec<Reduction>,
    pub(super) root: Option<u32>,
    /// In the order in which they are shown.
    pub(super) inputs: Vec<Inputs>,
    pub(super) offset_bytes: usize,
    pub(super) pinned_cores: Vec<usize>,
    /// Both forms, where there are two.
    pub(super) both_forms: bool,
    /// The first is the one that ratios refer to.
    pub(super) contenders: Vec<Contender>,
    pub(super) programs: Programs,
    pub(super) turn_settings: TurnSettings,
    pub(super) step_timeout: Duration,
    /// What to tell the user before anything is measured.
    pub(super) notes: Vec<String>,
}

impl Benchmark {
    /// What is measured of every size of an operation, in the order of the columns.
    pub(super) fn columns(&self, operation: Operation) -> Vec<Column> {
        let of_form = |form| self.inputs.iter().map(move |inputs| Column { form, inputs: *inputs });
        self.forms(operation).into_iter().flat_map(of_form).collect()
    }

    /// The forms in which an operation is measured.
    fn forms(&self, operation: Operation) -> Vec<Form> {
        match self.both_forms {
            true => operation.forms().to_vec(),
            false => vec![operation.natural_form()],
        }
    }
}

impl BenchArguments {
    /// Checks what clap cannot.
    pub(super) fn benchmark(&self) -> Result<Benchmark, String> {
        let mut operations = self.operations()?;
        if operations.iter().any(|operation| operation.needs_two()) && self.ranks.contains(&1) {
            return Err("messages need two ranks: -n 1 is too few".to_owned());
        }
        let root = match self.root.as_str() {
            "all" => None,
            text => Some(text.parse::<u32>().map_err(|_| {
                format!("--root: '{text}' is not a rank; expected a number or all")
            })?),
        };
        if let Some((root, ranks)) =
            root.zip(self.ranks.iter().copied().min()).filter(|(a, b)| a >= b)
        {
            return Err(format!("--root {root} does not exist among {}", sizes::ranks(ranks)));
        }
        let named = |name: &String| {
            measurable().find(|dtype| dtype.name() == name).ok_or_else(|| {
                let known: Vec<_> = measurable().map(DType::name).collect();
                format!("'{name}' is not a dtype to measure; expected one of {}", known.join(", "))
            })
        };
        let reduction = |name: &String| {
            let known = Reduction::ALL.map(Reduction::name).join(", ");
            let found = Reduction::from_name(name);
            found.ok_or_else(|| format!("'{name}' is not a reduction; expected one of {known}"))
        };
        let notes = self.forced(&operations)?.into_iter().filter_map(|forced| forced.note);
        let notes = notes.collect();
        let contenders = self.contenders(&operations)?;
        // Other libraries are compared with polyrank.
        let is_own = |contender: &&Contender| matches!(contender.library, Library::Polyrank(_));
        operations.retain(|operation| {
            let mut own = contenders.iter().filter(is_own);
            own.any(|contender| !contender.unsupported.contains(operation))
        });
        Ok(Benchmark {
            notes,
            title: self.title.clone(),
            sizes: self.sizes()?,
            ranks: self.ranks.clone(),
            dtypes: self.dtype.iter().map(named).collect::<Result<_, _>>()?,
            reductions: self.op.iter().map(reduction).collect::<Result<_, _>>()?,
            root,
            inputs: Inputs::list(&self.inputs)?,
            offset_bytes: usize::from(self.offset),
            pinned_cores: self.pin.clone(),
            both_forms: self.form == "both",
            contenders,
            programs: Programs::of_option(&self.python)?,
            turn_settings: TurnSettings {
                turns: self.turns,
                iterations: self.iters,
                seconds: self.seconds,
                warmup: self.warmup,
                check: !self.no_check,
            },
            step_timeout: Duration::from_secs(self.timeout),
            operations,
        })
    }

    fn operations(&self) -> Result<Vec<Operation>, String> {
        if self.operations == "all" {
            return Ok(Operation::ALL.to_vec());
        }
        let one = |name: &str| {
            if name.is_empty() {
                let text = &self.operations;
                return Err(format!("'{text}': an operation is missing before or after a comma"));
            }
            let known = operation_names();
            let found = Operation::from_name(name);
            found.ok_or_else(|| format!("'{name}' is not an operation; expected one of {known}"))
        };
        self.operations.split(',').map(one).collect()
    }

    fn sizes(&self) -> Result<Vec<u64>, String> {
        if let Some(sizes) = &self.sizes {
            return Ok(sizes.clone());
        }
        let step = match self.step_bytes {
            Some(bytes) => Step::Bytes(bytes),
            None => Step::Factor(self.step_factor),
        };
        sizes::ladder(self.min_bytes, self.max_bytes, step)
    }

    /// Every language with every algorithm and every other setting, then the other libraries.
    fn contenders(&self, operations: &[Operation]) -> Result<Vec<Contender>, String> {
        let own = pairs(&self.env, "--env POLYRANK_TRANSPORT=tcp")?;
        let mut contenders = Vec::new();
        for settings in self.settings() {
            let [language, algorithm, transport, memory, call] = settings.map(|(value, _)| value);
            let shown = settings.into_iter().filter(|(_, is_shown)| *is_shown);
            // The name need not say "polyrank" twice.
            let shown =
                shown.map(|(value, _)| if value == "polyrank" { "own memory" } else { value });
            let name: Vec<&str> = std::iter::once("polyrank").chain(shown).collect();
            let mut environment = own.clone();
            let ForcedAlgorithm { variable, unsupported, .. } = force(algorithm, operations)?;
            environment.extend(
                variable.map(|list| (variable::POLYRANK_ALGORITHM.name().to_owned(), list)),
            );
            if transport != "auto" {
                environment
                    .push((variable::POLYRANK_TRANSPORT.name().to_owned(), transport.to_owned()));
            }
            contenders.push(Contender {
                name: name.join(" "),
                library: Library::Polyrank(Language::list(language)?),
                memory: Memory::from_name(memory)?,
                call_style: CallStyle::from_name(call)?,
                environment,
                unsupported,
            });
        }
        for name in &self.against {
            contenders.push(Contender {
                name: name.clone(),
                library: Library::Peer(Peer::from_name(name)?),
                memory: Memory::User,
                call_style: CallStyle::Ordinary,
                environment: Vec::new(),
                unsupported: Vec::new(),
            });
        }
        let mut names: Vec<&str> =
            contenders.iter().map(|contender| contender.name.as_str()).collect();
        names.sort_unstable();
        if let Some(duplicate) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("contender '{}' is listed twice", duplicate[0]));
        }
        if contenders.len() > MAX_CONTENDERS {
            return Err(format!("more than {MAX_CONTENDERS} contenders"));
        }
        Ok(contenders)
    }

    /// What each algorithm means for `operations`.
    fn forced(&self, operations: &[Operation]) -> Result<Vec<ForcedAlgorithm>, String> {
        self.algorithm.iter().map(|algorithm| force(algorithm, operations)).collect()
    }

    /// Every combination of the settings of polyrank's ranks, with whether a setting is part of the
    /// name: what all have in common needs no mention.
    fn settings(&self) -> Vec<[(&str, bool); 5]> {
        let lists = [
            (&self.language, "rust"),
            (&self.algorithm, "auto"),
            (&self.transport, "auto"),
            (&self.memory, "user"),
            (&self.call, "ordinary"),
        ];
        let mut combinations = vec![[("", false); 5]];
        for (at, (values, usual)) in lists.into_iter().enumerate() {
            let mut longer = Vec::new();
            for combination in &combinations {
                for value in values {
                    let mut next = *combination;
                    next[at] = (value.as_str(), values.len() > 1 || value != usual);
                    longer.push(next);
                }
            }
            combinations = longer;
        }
        combinations
    }
}

fn measurable() -> impl Iterator<Item = DType> {
    let has_pattern =
        |dtype: &DType| !matches!(dtype, DType::Bool | DType::Complex64 | DType::Complex128);
    DType::ALL.into_iter().filter(has_pattern)
}

fn turn_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1e-6..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.000001 to 600".to_owned()),
    }
}

/// The names of all operations, in a row.
fn operation_names() -> String {
    Operation::ALL.map(Operation::name).join(", ")
}

fn operations_help() -> String {
    format!("What to measure: {}; several with commas, or \"all\"", operation_names())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::command_line::options;

    fn benchmark(line: &str) -> Result<Benchmark, String> {
        options::<BenchArguments>("bench", line)?.benchmark()
    }

    fn names(benchmark: &Benchmark) -> Vec<&str> {
        benchmark.contenders.iter().map(|contender| contender.name.as_str()).collect()
    }

    #[test]
    fn nccl_tests_letters_mean_what_they_mean_there() {
        let read = benchmark("all_reduce -b 8 -e 128M -f 4 -d f16 -o prod -w 2 -n 4").unwrap();
        assert_eq!((read.sizes.len(), read.sizes[1]), (13, 32));
        assert_eq!((read.dtypes[0], read.reductions[0]), (DType::F16, Reduction::Product));
        assert_eq!((read.ranks[0], read.turn_settings.warmup), (4, 2));
        assert_eq!(benchmark("barrier -b 8 -e 24 -i 8").unwrap().sizes, [8, 16, 24]);
    }

    #[test]
    fn inputs_are_rewritten_unless_something_else_is_asked_for() {
        let inputs = |line: &str| benchmark(line).unwrap().inputs;
        assert_eq!(inputs(""), [Inputs::Rewritten]);
        assert_eq!(inputs("--inputs untouched"), [Inputs::Untouched]);
        let both = benchmark("--inputs untouched,rewritten --form both").unwrap();
        let columns = both.columns(Operation::Allreduce);
        let shown = columns.iter().map(|column| (column.form, column.inputs)).collect::<Vec<_>>();
        let [rewritten, untouched] = Inputs::ALL;
        let (out, place) = (Form::OutOfPlace, Form::InPlace);
        let expected = [(out, rewritten), (out, untouched), (place, rewritten), (place, untouched)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn contenders_are_named_by_what_distinguishes_them() {
        assert_eq!(names(&benchmark("").unwrap()), ["polyrank"]);
        assert_eq!(names(&benchmark("-l python").unwrap()), ["polyrank python"]);
        let line = "-l rust,rust+node -a auto,ring --against gloo,memcpy";
        let expected = [
            "polyrank rust auto",
            "polyrank rust ring",
            "polyrank rust+node auto",
            "polyrank rust+node ring",
            "gloo",
            "memcpy",
        ];
        assert_eq!(names(&benchmark(line).unwrap()), expected);
    }

    #[test]
    fn transports_memory_and_calls_are_compared_too() {
        let line = "-l python --transport tcp,shm --memory polyrank --call ordinary,prepared";
        let expected = [
            "polyrank python tcp own memory ordinary",
            "polyrank python tcp own memory prepared",
            "polyrank python shm own memory ordinary",
            "polyrank python shm own memory prepared",
        ];
        let read = benchmark(line).unwrap();
        assert_eq!(names(&read), expected);
        let last = &read.contenders[3];
        assert_eq!((last.memory, last.call_style), (Memory::Polyrank, CallStyle::Prepared));
        let variable = ("POLYRANK_TRANSPORT".to_owned(), "shm".to_owned());
        assert_eq!(last.environment, [variable]);
    }

    #[test]
    fn an_algorithm_is_forced_by_the_variable() {
        let read = benchmark("allreduce -a ring --env A=b").unwrap();
        let expected = [("A", "b"), ("POLYRANK_ALGORITHM", "allreduce=ring")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read.contenders[0].environment, expected);
    }

    #[test]
    fn operations_without_the_algorithm_are_left_out_unless_others_measure_them() {
        let read = benchmark("all -a ring").unwrap();
        assert!(read.operations.contains(&Operation::Allgather));
        assert!(!read.operations.contains(&Operation::Barrier));
        assert!(read.notes[0].contains("barrier has "), "{:?}", read.notes);
        let read = benchmark("all -a auto,ring --against memcpy").unwrap();
        assert_eq!((read.operations.len(), read.notes.len()), (Operation::ALL.len(), 1));
        assert!(read.contenders[1].unsupported.contains(&Operation::Barrier));
        assert!(read.contenders[2].unsupported.is_empty());
    }

    #[test]
    fn wrong_lines_are_refused_with_advice() {
        let wrong = |line: &str| benchmark(line).unwrap_err();
        assert!(wrong("allredcue").contains("expected one of allreduce"));
        assert!(wrong("allreduce -a rign").contains("one_shot"));
        assert!(wrong("sendrecv -a ring").contains("nothing"));
        assert!(wrong("allreduce,").contains("missing before or after a comma"));
        assert!(wrong("sendrecv -n 1").contains("two ranks"));
        assert!(wrong("broadcast -r 2 -n 4,2").contains("among 2 ranks"));
        assert!(wrong("-l rust,java").contains("python"));
        assert!(wrong("-l rust,rust").contains("twice"));
        assert!(wrong("--against glo").contains("gloo"));
        assert!(wrong("-d complex64").contains("complex64"));
        assert!(wrong("-o most").contains("product"));
        assert!(wrong("--python numpy=x").contains("mpich"));
        assert!(wrong("--memory mine").contains("user or polyrank"));
        assert!(wrong("--call often").contains("prepared"));
        assert!(wrong("--env X").contains("NAME=VALUE"));
        assert!(wrong("--inputs same").contains("neither rewritten nor untouched"));
        assert!(wrong("-n 0").contains("1..=120"));
    }
}
