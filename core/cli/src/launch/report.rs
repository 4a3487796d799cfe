//! The launcher's own messages: how a rank ended, in words. Knows nothing of processes.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::error_file::Reply;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It returned this exit code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl ProcessEnd {
    pub(crate) fn is_success(self) -> bool {
        self == ProcessEnd::Code(0)
    }

    /// The exit code by which a shell would report this ending.
    pub(super) fn exit_code(self) -> i32 {
        match self {
            ProcessEnd::Code(code) => code,
            ProcessEnd::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessEnd::Code(code) => write!(formatter, "exit code {code}"),
            ProcessEnd::Signal(signal) => write!(formatter, "killed by {}", signal_name(*signal)),
        }
    }
}

/// The name of a signal, or its number where it has none.
pub(super) fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

/// The host on which this launcher was started by another one, if it was.
static HOST: OnceLock<String> = OnceLock::new();

thread_local! {
    /// The replica of which this thread speaks: each has a supervisor on a thread of its own.
    static REPLICA: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Puts the name of this host before all that [`say`] says.
pub(super) fn say_as(host: &str) {
    let _ = HOST.set(host.to_owned());
}

/// Puts the number of a replica before all that [`say`] says on this thread.
pub(super) fn say_of_replica(number: u32) {
    REPLICA.set(Some(number));
}

/// `work` for another thread, which says what it says of the same replica as this one.
pub(crate) fn of_same_replica<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let replica = REPLICA.get();
    move || {
        REPLICA.set(replica);
        work()
    }
}

/// Writes a line of the launcher's own to stderr. It is not an error if nobody reads stderr.
pub(crate) fn say(message: &str) {
    use std::io::Write;
    let host = HOST.get().map(|host| format!(" ({host})")).unwrap_or_default();
    let replica = REPLICA.get().map(|number| format!(" (replica {number})")).unwrap_or_default();
    let line = format!("polyrank run{host}{replica}: {message}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// The paragraph at the end about the rank that failed first.
pub(super) fn first_failure(
    rank: u32,
    ending: ProcessEnd,
    program: &str,
    after: Duration,
    last_lines: &[String],
    reply: Option<&Reply>,
) -> String {
    let seconds = after.as_secs_f64();
    let mut text = format!("rank {rank} failed first: {ending}, after {seconds:.1} s ({program})");
    if let Some(reply) = reply {
        return text + "; its error file says: " + &said(reply);
    }
    if last_lines.is_empty() {
        text.push_str("; it wrote nothing");
    } else {
        text.push_str("; its last lines:");
        last_lines.iter().for_each(|line| quote(&mut text, line));
    }
    text
}

/// The paragraph about a rank that said earlier than the one that failed first what went wrong.
pub(super) fn root_cause(rank: u32, reply: &Reply) -> String {
    format!("the cause is in rank {rank}, whose error file is older: {}", said(reply))
}

fn said(reply: &Reply) -> String {
    let mut text = reply.message.clone();
    for line in reply.call_stack.iter().flat_map(|stack| stack.trim_end().lines()) {
        quote(&mut text, line);
    }
    text
}

fn quote(text: &mut String, line: &str) {
    text.push_str("\n    | ");
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_read_like_a_shell() {
        assert_eq!(ProcessEnd::Code(3).to_string(), "exit code 3");
        assert_eq!(ProcessEnd::Signal(9).to_string(), "killed by SIGKILL");
        assert_eq!(ProcessEnd::Signal(9).exit_code(), 137);
        assert!(ProcessEnd::Code(0).is_success() && !ProcessEnd::Signal(15).is_success());
    }

    #[test]
    fn the_report_shows_the_last_lines() {
        let lines = ["a".to_owned(), "b".to_owned()];
        let text = first_failure(
            2,
            ProcessEnd::Code(1),
            "./x y",
            Duration::from_millis(1500),
            &lines,
            None,
        );
        let head = "rank 2 failed first: exit code 1, after 1.5 s (./x y); its last lines:";
        assert_eq!(text, format!("{head}\n    | a\n    | b"));
    }
}
