//! The command line of `polyrank run`, read into a [`Job`]: which programs run as which ranks.
//! Knows nothing of processes.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::{Args, Parser};
use polyrank::env::variable::{self, Variable};

/// More ranks than this on one host are a typing mistake.
const MAX_RANKS_PER_NODE: u32 = 4096;
/// The port of a job over several nodes, where no free one can be agreed on; PyTorch's choice too.
const DEFAULT_PORT: u16 = 29500;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank run -n 4 python train.py --epochs 3
      Four ranks of one program. A program that ends in .py runs under python by itself, one in
      .js, .mjs or .cjs under node.
  polyrank run -n cpu ./target/release/train
      One rank per core.
  polyrank run -n 2 python train.py : -n 2 ./target/release/train
      One job of two programs, as mpirun has it: ranks 0 and 1 are Python, 2 and 3 are Rust.
  polyrank run --external 1 -n 2 python train.py : -n 1 node train.mjs
      A job of four: ranks 0 to 2 start here, rank 3 joins from elsewhere, as a page in a browser
      does. Its URL is shown at the start.
  polyrank run --with-mpi -n 4 python train.py
      Four ranks of one MPI job, as the mpi backend needs them. MPI's mpiexec starts them: that of
      the program's Python environment, or the first on the path; POLYRANK_MPIEXEC may name another.
  polyrank run --nnodes 2 --node-rank 0 --master-addr host-a -n 8 python train.py
      The first of two nodes; start the same with --node-rank 1 on the other one.

Every rank finds in its environment: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and POLYRANK_RUN_ID. PYTHONUNBUFFERED=1 is set, and with
more than one rank OMP_NUM_THREADS=1, unless they are set already. Rank 0 reads the launcher's
standard input unless that is a terminal; the others read nothing.";

/// The options of `polyrank run`.
#[derive(Args)]
pub(crate) struct RunArguments {
    /// Ranks on this host: a number, "cpu" (one per core) or "gpu" (one per GPU) [default: 1]
    #[arg(short = 'n', long, aliases = ["nproc_per_node", "nproc", "np"])]
    #[arg(value_name = "N|cpu|gpu")]
    nproc_per_node: Option<String>,
    /// Number of hosts; each runs this command once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    nnodes: u32,
    /// This host's number, from 0
    #[arg(long, alias = "node_rank", default_value_t = 0)]
    node_rank: u32,
    /// Name or address of the host of rank 0 [default: 127.0.0.1 on one node]
    #[arg(long, alias = "master_addr")]
    master_addr: Option<String>,
    /// Port of rank 0's store; 0 picks a free one [default: 0 on one node, 29500 otherwise]
    #[arg(long, alias = "master_port")]
    master_port: Option<u16>,
    /// Ranks of the job that join by URL from elsewhere, after those that are started
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_RANKS_PER_NODE)))]
    external: u32,
    /// Name of this job, the same on every node [default: POLYRANK_RUN_ID, torchrun's or Slurm's
    /// name, else made up]
    #[arg(long)]
    run_id: Option<String>,
    /// Show the ranks' lines as they are, without "[rank N] "
    #[arg(long)]
    no_prefix: bool,
    /// Let the other ranks continue when one fails
    #[arg(long)]
    keep_going: bool,
    /// Seconds between asking the ranks to stop (SIGTERM) and killing them (SIGKILL)
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// Append --local-rank=N to the program's arguments, as torch.distributed.launch did
    #[arg(long)]
    pass_local_rank: bool,
    /// One host and a free port, as in torchrun: what happens anyway unless other options say more
    #[arg(long, conflicts_with_all = ["nnodes", "node_rank", "master_addr", "master_port"])]
    standalone: bool,
    /// The program is the name of a Python module, to be run as `python -m` does
    #[arg(short = 'm', long)]
    module: bool,
    /// Have MPI's own launcher start the ranks, as the mpi backend needs it
    #[arg(long)]
    with_mpi: bool,
    /// The program and its arguments; a lone ":" starts the next program of the job
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS] [: …]")]
    program: Vec<OsString>,
}

/// The options that a part after a ":" may open with.
#[derive(Parser)]
#[command(name = ":", no_binary_name = true, disable_help_flag = true)]
struct PartArguments {
    #[arg(short = 'n', long, aliases = ["nproc_per_node", "nproc", "np"])]
    #[arg(value_name = "N|cpu|gpu", allow_negative_numbers = true)]
    nproc_per_node: Option<String>,
    #[arg(short = 'm', long)]
    module: bool,
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

/// One program of a job and how many ranks of this host run it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) rank_count: u32,
}

/// What to start on this host.
#[derive(Debug)]
pub(super) struct Job {
    /// The programs in the order of their ranks.
    pub(super) parts: Vec<Part>,
    /// The ranks that nobody starts: the job's last ones.
    pub(super) external_count: u32,
    pub(super) node_count: u32,
    pub(super) node_rank: u32,
    pub(super) master_addr: String,
    /// 0: pick a free one.
    pub(super) master_port: u16,
    pub(super) run_id: Option<String>,
    pub(super) prefix: bool,
    pub(super) keep_going: bool,
    pub(super) grace: Duration,
    pub(super) pass_local_rank: bool,
    pub(super) with_mpi: bool,
}

impl Job {
    /// The ranks on this host, which is the same number on every host.
    pub(super) fn local_world_size(&self) -> u32 {
        self.parts.iter().map(|part| part.rank_count).sum()
    }

    /// The ranks of the whole job that are started, here and on the other hosts.
    pub(super) fn started_world_size(&self) -> u32 {
        self.local_world_size() * self.node_count
    }

    /// The ranks of the whole job.
    pub(super) fn world_size(&self) -> u32 {
        self.started_world_size() + self.external_count
    }
}

impl RunArguments {
    /// Checks what clap cannot and reads the parts of the job.
    pub(super) fn job(self) -> Result<Job, String> {
        if self.node_rank >= self.nnodes {
            let (rank, count) = (self.node_rank, self.nnodes);
            return Err(format!("--node-rank {rank} does not exist: nodes are 0 to {}", count - 1));
        }
        let several = self.nnodes > 1;
        let master_addr = match self.master_addr {
            Some(address) => address,
            None if several => {
                let example = "as in --master-addr host-a";
                return Err(format!(
                    "--nnodes > 1 needs --master-addr, the host of node 0, {example}"
                ));
            }
            None => "127.0.0.1".to_owned(),
        };
        let master_port = self.master_port.unwrap_or(if several { DEFAULT_PORT } else { 0 });
        if several && master_port == 0 {
            let advice = "give the same port on every node, as in --master-port 29500";
            return Err(format!(
                "--master-port 0 picks a port that other nodes cannot know; {advice}"
            ));
        }
        let parts = parts(self.nproc_per_node.as_deref(), self.module, &self.program)?;
        let job = Job {
            parts,
            external_count: self.external,
            node_count: self.nnodes,
            node_rank: self.node_rank,
            master_addr,
            master_port,
            run_id: self.run_id,
            prefix: !self.no_prefix,
            keep_going: self.keep_going,
            grace: Duration::from_secs_f64(self.grace),
            pass_local_rank: self.pass_local_rank,
            with_mpi: self.with_mpi,
        };
        if job.parts.iter().map(|part| u64::from(part.rank_count)).sum::<u64>()
            > u64::from(MAX_RANKS_PER_NODE)
        {
            return Err(format!("more than {MAX_RANKS_PER_NODE} ranks on one node"));
        }
        Ok(job)
    }
}

/// Splits the words after the options at each lone ":".
fn parts(
    first_count: Option<&str>,
    first_is_module: bool,
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
            part(first_count, first_is_module, words)?
        } else {
            let arguments = PartArguments::try_parse_from(words)
                .map_err(|error| format!("in program {} of the job: {error}", index + 1))?;
            part(arguments.nproc_per_node.as_deref(), arguments.module, &arguments.program)?
        });
    }
    Ok(parts)
}

fn part(count: Option<&str>, is_module: bool, words: &[OsString]) -> Result<Part, String> {
    let rank_count = rank_count(count.unwrap_or("1"))?;
    let Some((program, arguments)) = words.split_first() else {
        return Err("a program is missing".to_owned());
    };
    let (program, words) = match interpreter(Path::new(program)) {
        _ if is_module => (PYTHON.program(), [&["-m".into()], words].concat()),
        Some(interpreter) => (interpreter.program(), words.to_vec()),
        None => (program.clone(), arguments.to_vec()),
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

fn rank_count(text: &str) -> Result<u32, String> {
    let count = match text {
        "cpu" => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        "gpu" => match gpu_count() {
            0 => {
                let advice = "give a number, as in -n 4";
                return Err(format!(
                    "-n gpu: this host has no NVIDIA GPU that may be used; {advice}"
                ));
            }
            count => count,
        },
        // What clap makes of mpirun's word.
        "p" => return Err("-np is not an option; the number of ranks is -n, as in -n 4".to_owned()),
        number => number.parse().map_err(|_| {
            format!("-n {number}: expected a number of ranks, \"cpu\" or \"gpu\", as in -n 4")
        })?,
    };
    match count {
        0 => Err("-n 0: a program runs as at least one rank, as in -n 1".to_owned()),
        count if count > MAX_RANKS_PER_NODE => {
            Err(format!("-n {count}: at most {MAX_RANKS_PER_NODE} ranks on one node, as in -n 4"))
        }
        count => Ok(count),
    }
}

/// What `CUDA_VISIBLE_DEVICES` lists, else the device files of the NVIDIA driver.
fn gpu_count() -> u32 {
    if variable::CUDA_VISIBLE_DEVICES.is_set() {
        let visible = variable::CUDA_VISIBLE_DEVICES.text().unwrap_or_default();
        let shown = visible.split(',').map(str::trim);
        return shown.take_while(|name| !name.is_empty() && *name != "-1").count() as u32;
    }
    (0..64).filter(|number| Path::new(&format!("/dev/nvidia{number}")).exists()).count() as u32
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("expected seconds between 0 and 86400, as in --grace 2.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use clap::FromArgMatches;

    use super::*;
    use crate::arguments::{Command, CommandLine, command};

    fn job(line: &str) -> Result<Job, String> {
        let words = ["polyrank", "run"].into_iter().chain(line.split_whitespace());
        let found = command().try_get_matches_from(words);
        let line = found.and_then(|found| CommandLine::from_arg_matches(&found));
        match line.map_err(|error| error.to_string())?.command {
            Command::Run(arguments) => arguments.job(),
            _ => Err("not a job".to_owned()),
        }
    }

    fn shape(job: &Job) -> Vec<(String, u32)> {
        let words = |part: &Part| {
            let mut all = vec![part.program.to_string_lossy().into_owned()];
            all.extend(part.arguments.iter().map(|word| word.to_string_lossy().into_owned()));
            all.join(" ")
        };
        job.parts.iter().map(|part| (words(part), part.rank_count)).collect()
    }

    #[test]
    fn options_of_the_program_stay_with_the_program() {
        let job = job("-n 3 ./train --nnodes 9 -n 8 -- x").unwrap();
        assert_eq!(shape(&job), [("./train --nnodes 9 -n 8 -- x".to_owned(), 3)]);
        assert_eq!((job.node_count, job.world_size()), (1, 3));
    }

    #[test]
    fn several_programs_have_their_own_counts() {
        let job = job("-n 2 prog a : -n 3 -- ./other -x : last").unwrap();
        let expected = [("prog a", 2), ("./other -x", 3), ("last", 1)];
        assert_eq!(shape(&job), expected.map(|(words, count)| (words.to_owned(), count)));
        assert_eq!(job.local_world_size(), 6);
    }

    #[test]
    fn scripts_run_under_their_interpreters() {
        for script in ["train.py", "train.mjs", "train.js", "train.cjs"] {
            let job = job(&format!("{script} --lr 1")).unwrap();
            let interpreter = interpreter(Path::new(script)).unwrap().program();
            let interpreter = interpreter.to_string_lossy().into_owned();
            assert_eq!(shape(&job), [(format!("{interpreter} {script} --lr 1"), 1)]);
        }
    }

    #[test]
    fn the_words_of_torchrun_are_understood() {
        let python = PYTHON.program().to_string_lossy().into_owned();
        let one = job("--standalone --nproc 2 -m train.loop --lr 1").unwrap();
        assert_eq!(shape(&one), [(format!("{python} -m train.loop --lr 1"), 2)]);
        let two = job("--np 2 ./train : -m other").unwrap();
        assert_eq!(shape(&two), [("./train".to_owned(), 2), (format!("{python} -m other"), 1)]);
        assert!(job("-np 2 x").unwrap_err().contains("the number of ranks is -n"));
        assert!(job("--standalone --nnodes 2 x").unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn external_ranks_count_and_are_not_started() {
        let job = job("--external 2 -n 3 ./train").unwrap();
        assert_eq!((job.local_world_size(), job.started_world_size()), (3, 3));
        assert_eq!(job.world_size(), 5);
    }

    #[test]
    fn several_nodes_need_an_address_and_a_fixed_port() {
        assert!(job("--nnodes 2 x").unwrap_err().contains("--master-addr"));
        let with_address = "--nnodes 2 --master-addr a";
        assert!(job(&format!("{with_address} --master-port 0 x")).unwrap_err().contains("port"));
        assert!(job(&format!("{with_address} --node-rank 2 x")).unwrap_err().contains("0 to 1"));
        let job = job(&format!("{with_address} --node-rank 1 -n 4 x")).unwrap();
        assert_eq!((job.master_port, job.world_size()), (DEFAULT_PORT, 8));
    }

    #[test]
    fn wrong_lines_are_refused_with_advice() {
        assert!(job("-n 0 x").unwrap_err().contains("at least one"));
        assert!(job("-n -1 x").unwrap_err().contains("-n -1: expected a number of ranks"));
        assert!(job("x : -n -1 y").unwrap_err().contains("-n -1: expected a number of ranks"));
        assert!(job("--nnodes -1 x").unwrap_err().contains("-1 is not in 1..=65536"));
        assert!(job("-n many x").unwrap_err().contains("\"cpu\""));
        assert!(job("-n 5000 x").unwrap_err().contains("at most 4096"));
        assert!(job("-n 4000 x : -n 4000 y").unwrap_err().contains("more than 4096"));
        assert!(job("x :").unwrap_err().contains("program 2"));
        assert!(job("x : --bogus y").unwrap_err().contains("--bogus"));
        assert!(job("--bogus y").unwrap_err().contains("--bogus"));
        assert!(job("--grace -1 x").is_err());
        assert!(job("").unwrap_err().contains("PROGRAM"));
    }
}
