//! The ranks' output: each line is shown whole, prefixed with the name of its rank, and the last
//! lines are kept for the report. Knows nothing of processes.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polyrank::env::variable;

/// Most lines of a rank that the report shows.
const KEPT_LINES: usize = 20;
/// A line that does not end is shown in pieces of this size, so that memory stays bounded.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Most bytes of each line that is kept.
const KEPT_LINE_BYTES: usize = 500;
/// ANSI colours that can be told apart on dark and on light ground.
const COLOURS: [&str; 6] = ["36", "33", "32", "35", "34", "31"];

/// Where a line goes: the launcher's own stream of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Writes all ranks' lines, one whole line at a time.
pub(super) struct Screen {
    prefix: bool,
    colour_stdout: bool,
    colour_stderr: bool,
    /// Held while a line is written, so that lines of stdout and stderr do not mix either.
    writing: Mutex<()>,
}

impl Screen {
    pub(super) fn new(prefix: bool) -> Screen {
        let wanted = variable::NO_COLOR.value().is_none();
        Screen {
            prefix,
            colour_stdout: wanted && io::stdout().is_terminal(),
            colour_stderr: wanted && io::stderr().is_terminal(),
            writing: Mutex::new(()),
        }
    }

    fn show(&self, rank: u32, stream: Stream, line: &[u8]) -> io::Result<()> {
        let mut bytes = self.prefix(rank, stream).into_bytes();
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        let _writing = lock(&self.writing);
        match stream {
            Stream::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()
            }
            Stream::Stderr => io::stderr().lock().write_all(&bytes),
        }
    }

    fn prefix(&self, rank: u32, stream: Stream) -> String {
        let colour = match stream {
            Stream::Stdout => self.colour_stdout,
            Stream::Stderr => self.colour_stderr,
        };
        match (self.prefix, colour) {
            (false, _) => String::new(),
            (true, false) => format!("[rank {rank}] "),
            (true, true) => {
                let code = COLOURS[rank as usize % COLOURS.len()];
                format!("\x1b[{code}m[rank {rank}]\x1b[0m ")
            }
        }
    }
}

/// The last lines of one rank, stdout and stderr in the order in which they came.
#[derive(Clone, Default)]
pub(crate) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// The lines kept so far, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.0).iter().cloned().collect()
    }

    fn keep(&self, line: &[u8]) {
        let shown = &line[..line.len().min(KEPT_LINE_BYTES)];
        let mut text = String::from_utf8_lossy(shown).into_owned();
        if shown.len() < line.len() {
            text.push('…');
        }
        let mut lines = lock(&self.0);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}

/// Passes on one stream of one rank until its end.
///
/// # Errors
/// The launcher's own stream cannot be written any more (its reader is gone). The rank's output is
/// read to its end all the same, so that the rank does not block on a full pipe.
pub(super) fn forward(
    input: impl Read,
    screen: &Screen,
    rank: u32,
    stream: Stream,
    last: &LastLines,
    mut on_closed: impl FnMut(),
) {
    let mut open = true;
    for_each_line(input, |line| {
        last.keep(line);
        if open && screen.show(rank, stream, line).is_err() {
            open = false;
            on_closed();
        }
    });
}

/// Keeps the last lines of one stream until its end, and shows none.
pub(crate) fn keep(input: impl Read, last: &LastLines) {
    for_each_line(input, |line| last.keep(line));
}

fn for_each_line(input: impl Read, mut with: impl FnMut(&[u8])) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        with(&line);
    }
}

/// A panic elsewhere cannot leave a line or a list of lines in a state that matters.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_cut() {
        let last = LastLines::default();
        (0..30).for_each(|number| last.keep(format!("line {number}").as_bytes()));
        last.keep(&[b"\xff".to_vec(), vec![b'x'; 2 * KEPT_LINE_BYTES]].concat());
        let lines = last.lines();
        assert_eq!(lines.len(), KEPT_LINES);
        assert_eq!(lines[0], "line 11");
        assert!(lines[19].starts_with('\u{fffd}') && lines[19].ends_with("x…"));
    }

    #[test]
    fn prefixes_are_plain_where_there_is_no_terminal() {
        let mut screen = Screen::new(true);
        (screen.colour_stdout, screen.colour_stderr) = (false, true);
        assert_eq!(screen.prefix(7, Stream::Stdout), "[rank 7] ");
        assert_eq!(screen.prefix(7, Stream::Stderr), "\x1b[33m[rank 7]\x1b[0m ");
        screen.prefix = false;
        assert_eq!(screen.prefix(7, Stream::Stderr), "");
    }
}
