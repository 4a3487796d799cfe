//! The command line of `polyrank`: its subcommands. The options of each are in its own module.

use std::ffi::OsString;
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::{bench, inspect, launch, lighthouse, predict, serve, top, trace};

/// The `polyrank` command.
#[derive(Parser)]
#[command(name = "polyrank", version, about = "One process group, ranks in any language")]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `polyrank` can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the ranks of a job on this host and watch them
    ///
    /// Every line that a rank writes is prefixed with its rank. When one rank fails, the others are
    /// stopped, and the first failure's exit code and last lines are shown at the end.
    #[command(after_help = launch::arguments::EXAMPLES)]
    Run(Box<launch::arguments::options::RunArguments>),
    /// Serve a store for ranks that come and go, in browsers too
    ///
    /// Ranks join by init_method "ws://HOST:PORT", in browsers too. A TCPStore of HOST and PORT is
    /// a client of it as well, and can be given to init_process_group. Ctrl-C ends the store.
    #[command(after_help = serve::EXAMPLES)]
    Store(serve::StoreArguments),
    /// Serve a lighthouse: it says which replicas of a job train together, as they come and go
    ///
    /// It speaks torchft's protocol: torchft's managers are served by it, with TORCHFT_LIGHTHOUSE
    /// set to its address. A page at the same address shows what it sees. Ctrl-C ends it.
    #[command(after_help = lighthouse::EXAMPLES)]
    Lighthouse(lighthouse::LighthouseArguments),
    /// Measure collectives, in any language, and against other libraries
    ///
    /// Starts the ranks itself, on this host. Columns are those of nccl-tests.
    #[command(after_help = bench::EXAMPLES)]
    Bench(Box<bench::BenchArguments>),
    /// Predict what a collective costs on machines that are not here, by every algorithm
    ///
    /// Nothing is sent: times come from the schedules and from what links cost.
    #[command(after_help = predict::EXAMPLES)]
    Predict(Box<predict::PredictArguments>),
    /// Say what went wrong in a job, from what its flight recorders wrote
    ///
    /// Names the operation on which ranks differ: who waits in it, and what the others do instead.
    #[command(after_help = trace::EXAMPLES)]
    Trace(trace::TraceArguments),
    /// Show what the ranks of a running job do
    ///
    /// A table that is renewed: which operation each rank is in and for how long, operations per
    /// second, bandwidth, and for whom it waits.
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArguments),
    /// Have all ranks of a running job tell what they have called, in one file
    ///
    /// The ranks go on as if nobody had asked. `polyrank trace` reads the file.
    #[command(after_help = inspect::EXAMPLES)]
    Inspect(inspect::InspectArguments),
    /// One rank of `polyrank bench`, which starts it
    #[command(hide = true)]
    BenchRank {
        /// Its number
        rank: u32,
    },
}

/// The command line of `polyrank`. A negative number is a value that its option judges, with the
/// range that it has, and no option of its own.
pub(crate) fn command() -> clap::Command {
    with_negative_numbers(CommandLine::command())
}

/// `args` with the options of `polyrank run` as clap knows them: users of torchrun and mpirun may
/// spell them as they do there.
pub(crate) fn normalised(args: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let is_run = args.get(1).is_some_and(|name| name == "run");
    match command.find_subcommand("run").filter(|_| is_run) {
        Some(run) => {
            let (before, words) = args.split_at(2);
            let words = launch::arguments::spelling::normalised(words, run);
            before.iter().cloned().chain(words).collect()
        }
        None => args,
    }
}

/// Says what to do without an option that torchrun or mpirun has.
pub(crate) fn advise(error: &clap::Error) {
    let unknown = error.get(ContextKind::InvalidArg).filter(|_| {
        let is_run = std::env::args_os().any(|word| word == "run");
        is_run && error.kind() == ErrorKind::UnknownArgument
    });
    if let Some(ContextValue::String(word)) = unknown
        && let Some(advice) = launch::arguments::elsewhere::advice(word)
    {
        let _ = writeln!(std::io::stderr(), "\npolyrank run: {word}: {advice}");
    }
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        // Words after a program are its arguments.
        let is_ours = argument.get_action().takes_values() && !argument.is_trailing_var_arg_set();
        if is_ours { argument.allow_negative_numbers(true) } else { argument }
    });
    command.mut_subcommands(with_negative_numbers)
}
