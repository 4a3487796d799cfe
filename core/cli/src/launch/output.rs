//! The ranks' output: each line is shown whole, prefixed with the name of its rank, and the last
//! lines are kept for the report. Knows nothing of processes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use polyrank::env::variable;

use super::arguments::job::ReplicaPlace;
use super::arguments::streams::Stream;

/// Most lines of a rank that the report shows.
const KEPT_LINES: usize = 20;
/// A line that does not end is shown in pieces of this size, so that memory stays bounded.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Most bytes of each line that is kept.
const KEPT_LINE_BYTES: usize = 500;
/// ANSI colours that can be told apart on dark and on light ground.
const COLOURS: [&str; 6] = ["36", "33", "32", "35", "34", "31"];

/// How the ranks' lines look.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineFormat {
    pub(super) prefix: bool,
    pub(super) timestamps: bool,
    /// The number of ranks, so that the prefixes of all are as wide.
    pub(super) world_size: u32,
    /// The replica whose ranks these are.
    pub(super) replica: Option<ReplicaPlace>,
}

/// Held while a line is written, so that lines of stdout and stderr do not mix, nor those of
/// several replicas.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes all ranks' lines, one whole line at a time.
pub(super) struct Screen {
    format: LineFormat,
    colour_stdout: bool,
    colour_stderr: bool,
}

impl Screen {
    pub(super) fn new(format: LineFormat) -> Screen {
        let wanted = variable::NO_COLOR.value().is_none();
        Screen {
            format,
            colour_stdout: wanted && io::stdout().is_terminal(),
            colour_stderr: wanted && io::stderr().is_terminal(),
        }
    }

    fn show(&self, rank: u32, stream: Stream, line: &[u8]) -> io::Result<()> {
        let mut bytes = match self.format.timestamps {
            true => format!("{} ", humantime::format_rfc3339_millis(SystemTime::now())),
            false => String::new(),
        };
        bytes.push_str(&self.prefix(rank, stream));
        self.write(stream, bytes.into_bytes(), line)
    }

    /// Writes a line that has its prefix already.
    pub(super) fn pass_on(&self, stream: Stream, line: &[u8]) -> io::Result<()> {
        self.write(stream, Vec::new(), line)
    }

    fn write(&self, stream: Stream, mut bytes: Vec<u8>, line: &[u8]) -> io::Result<()> {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        let _writing = lock(&WRITING);
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
        let width = |count: u32| count.saturating_sub(1).to_string().len();
        let of_rank = width(self.format.world_size);
        let (shade, name) = match self.format.replica {
            Some(ReplicaPlace { number, count }) => {
                let of_replica = width(count);
                (number, format!("replica {number:>of_replica$}, rank {rank:>of_rank$}"))
            }
            None => (rank, format!("rank {rank:>of_rank$}")),
        };
        match (self.format.prefix, colour) {
            (false, _) => String::new(),
            (true, false) => format!("[{name}] "),
            (true, true) => {
                let code = COLOURS[shade as usize % COLOURS.len()];
                format!("\x1b[{code}m[{name}]\x1b[0m ")
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

/// Where the lines of one stream of one rank go.
pub(super) struct Destination {
    pub(super) rank: u32,
    pub(super) stream: Stream,
    /// Whether they are shown.
    pub(super) shown: bool,
    /// The file that has all of them.
    pub(super) file: Option<File>,
    pub(super) last: LastLines,
}

/// Why lines cannot go on to where they belong.
pub(super) enum OutputError {
    /// The launcher's own stream cannot be written any more: its reader is gone.
    Closed,
    /// A file cannot be written.
    File(io::Error),
}

/// Passes on one stream of one rank until its end. What cannot be written is said once; the rank's
/// output is read to its end all the same, so that the rank does not block on a full pipe.
pub(super) fn forward(
    input: impl Read,
    screen: &Screen,
    to: Destination,
    mut on_error: impl FnMut(OutputError),
) {
    let Destination { rank, stream, mut shown, mut file, last } = to;
    for_each_line(input, MAX_LINE_BYTES, |line| {
        if let Some(error) = file.as_mut().and_then(|file| file.write_all(line).err()) {
            file = None;
            on_error(OutputError::File(error));
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        last.keep(line);
        if shown && screen.show(rank, stream, line).is_err() {
            shown = false;
            on_error(OutputError::Closed);
        }
    });
}

/// Keeps the last lines of one stream until its end, and shows none.
pub(crate) fn keep(input: impl Read, last: &LastLines) {
    for_each_line(input, MAX_LINE_BYTES, |line| {
        last.keep(line.strip_suffix(b"\n").unwrap_or(line))
    });
}

/// Calls `with` for each line with its end, as far as it has one; in pieces, those that are longer
/// than `longest` bytes.
pub(super) fn for_each_line(input: impl Read, longest: u64, mut with: impl FnMut(&[u8])) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(longest).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
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
        let format = LineFormat { prefix: true, timestamps: false, world_size: 8, replica: None };
        let mut screen = Screen::new(format);
        (screen.colour_stdout, screen.colour_stderr) = (false, true);
        assert_eq!(screen.prefix(7, Stream::Stdout), "[rank 7] ");
        assert_eq!(screen.prefix(7, Stream::Stderr), "\x1b[33m[rank 7]\x1b[0m ");
        screen.format.world_size = 101;
        assert_eq!(screen.prefix(7, Stream::Stdout), "[rank   7] ");
        screen.format.prefix = false;
        assert_eq!(screen.prefix(7, Stream::Stderr), "");
        screen.format.prefix = true;
        screen.format.replica = Some(ReplicaPlace { number: 2, count: 12 });
        assert_eq!(screen.prefix(7, Stream::Stdout), "[replica  2, rank   7] ");
        assert_eq!(screen.prefix(7, Stream::Stderr), "\x1b[32m[replica  2, rank   7]\x1b[0m ");
    }
}
