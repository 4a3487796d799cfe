//! Options of torchrun and mpirun that `polyrank run` has not, and what to do without them.
//! Knows nothing of what it has.

/// Options, and a sentence for each.
const OPTIONS: &[(&[&str], &str)] = &[
    (&["numa-binding", "cpu-set", "binding"], "ranks are bound by --bind-to core, socket or numa"),
    (&["run-path"], "give the script itself, as in polyrank run train.py"),
    (
        &["log-line-prefix-template"],
        "lines begin with [rank N]; --no-prefix and --timestamps change that",
    ),
    (
        &["duplicate-stdout-filters", "duplicate-stderr-filters"],
        "--log-dir keeps all output in files, which can be searched",
    ),
    (
        &["event-log-handler", "logs-specs"],
        "PyTorch's plug-ins are not loaded; --record FILE tells programs what happened",
    ),
    (
        &["signals-to-handle"],
        "leave it out: SIGINT, SIGTERM and SIGHUP end the job, SIGUSR1 and SIGUSR2 are passed on",
    ),
    (&["virtual-local-rank"], "have the program choose its device by LOCAL_RANK"),
    (&["use-env"], "leave it out: ranks always find LOCAL_RANK in their environment"),
    (&["oversubscribe", "allow-run-as-root"], "leave it out: that is allowed, without an option"),
    (
        &["map-by", "rank-by", "bynode", "byslot"],
        "ranks are numbered host by host; --hosts a:2,b:4 says how many each has",
    ),
    (&["report-bindings"], "leave it out: `taskset -cp PID` shows the cores of a rank"),
    (
        &["ppn", "npernode", "ntasks-per-node", "N", "perhost", "map-by-node"],
        "-n is the number of ranks of each host",
    ),
    (&["output-filename", "outfile-pattern", "output"], "--log-dir DIR keeps the output in files"),
    (
        &["mca", "genv", "env", "genvlist", "envlist", "export"],
        "-x NAME=VALUE sets a variable for the ranks",
    ),
    (&["launcher", "plm", "rsh"], "POLYRANK_SSH names the program that reaches --hosts"),
];

/// What to do without an option, by the word that was given for it.
pub(crate) fn advice(word: &str) -> Option<&'static str> {
    let name = word.trim_start_matches('-').split('=').next()?;
    let name = if name.len() > 1 { name.replace('_', "-") } else { name.to_owned() };
    let row = OPTIONS.iter().find(|(names, _)| names.contains(&name.as_str()))?;
    Some(row.1)
}
