//! The command line of `polyrank trace`. Knows no file.

use std::path::PathBuf;

use clap::Args;

use polyrank_trace::Selection;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank trace dump.json
      What went wrong, in words: who waits where, for whom, and what that rank does.
  polyrank trace tcp://127.0.0.1:29500
      The same of a job that runs, or hangs: its ranks are asked through their store.
  polyrank trace dumps/
      The files that each rank has written for itself, where nobody could gather them.
  polyrank trace dump.json --svg timeline.svg --last 200
      A drawing of the last 200 operations of each rank; point at one to see what it is.
  polyrank trace dump.json --perfetto trace.json
      The same for https://ui.perfetto.dev, which opens the file on your machine.
  polyrank trace dumps/ --fr-trace torch/
  python -m torch.distributed.flight_recorder.fr_trace torch/ --prefix polyrank_
      What PyTorch's analyser has to say; with --allow-incomplete-ranks if a rank has no file.

A group's flight recorder always runs. It is written when a program asks for it, and by
`polyrank inspect`; with POLYRANK_TRACE_DIR=FOLDER in the environment of the ranks also when an
operation fails, and when a rank gets the signal SIGUSR1. `polyrank run` passes that signal on to
those of its ranks that have begun to join a group, and says where they write without the variable;
other ranks it would end.

The exit code is 0 if the files could be read, whatever is in them, and 1 if they could not.";

/// The options of `polyrank trace`.
#[derive(Args)]
pub(crate) struct TraceArguments {
    /// Files that flight recorders wrote, folders with them (those named *.json), or where the
    /// ranks of a running job meet: tcp://HOST:PORT, ws://HOST:PORT, or HOST:PORT
    #[arg(required = true, value_name = "FILE|FOLDER|URL")]
    pub(super) files: Vec<PathBuf>,
    /// Show these ranks alone; what went wrong is found in all of them
    #[arg(short, long, value_name = "RANK,…", value_delimiter = ',')]
    rank: Vec<u32>,
    /// Show these groups alone
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Show the last operations of each rank [default: one in the report, all in drawings]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Draw the operations over time
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Write the operations as trace events, for ui.perfetto.dev and chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(super) perfetto: Option<PathBuf>,
    /// Write all of it for PyTorch's fr_trace: a pickle for each rank, polyrank_RANK
    #[arg(long, value_name = "FOLDER")]
    pub(super) fr_trace: Option<PathBuf>,
}

impl TraceArguments {
    /// What is shown.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            ranks: self.rank.clone(),
            groups: self.group.clone(),
            last: self.last.map(|last| last as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::command_line::options;

    #[test]
    fn several_files_ranks_and_groups_can_be_named() {
        let line = "a.json dumps --rank 0,3 --rank 5 -g dp,tp -n 20 --json";
        let arguments = options::<TraceArguments>("trace", line).unwrap();
        assert_eq!(arguments.files, [PathBuf::from("a.json"), PathBuf::from("dumps")]);
        let selection = arguments.selection();
        assert_eq!((selection.ranks, selection.last), (vec![0, 3, 5], Some(20)));
        assert_eq!(selection.groups, ["dp", "tp"]);
    }

    #[test]
    fn nothing_to_read_and_nothing_to_show_are_refused() {
        for (line, advice) in
            [("", "FILE|FOLDER|URL"), ("a.json -n 0", "--last"), ("a -r x", "--rank")]
        {
            let error = options::<TraceArguments>("trace", line).err().unwrap();
            assert!(error.contains(advice), "{line}: {error}");
        }
    }
}
