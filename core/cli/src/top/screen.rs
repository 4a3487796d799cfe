//! The table on the whole terminal, renewed until somebody ends it. Knows nothing of ranks but
//! rows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::ANSWER_LIMIT;
use super::job::{GroupRows, Job};
use super::rows::{HEADER, cells};

/// How soon a key is heeded.
const KEY_INTERVAL: Duration = Duration::from_millis(100);

/// What a look has found; why it could not be had.
type Look = Result<Vec<GroupRows>, String>;

/// Shows the table until somebody ends it, and leaves the terminal as it was.
///
/// # Errors
/// The terminal cannot be used, in words.
pub(super) fn run(job: Job, interval: Duration) -> Result<(), String> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        let registered = signal_hook::flag::register(signal, is_over.clone());
        registered.map_err(|error| format!("signals cannot be waited for: {error}"))?;
    }
    let url = job.url().to_owned();
    let (sender, looks) = channel();
    thread::spawn(move || look_again_and_again(job, interval, &sender));
    let mut terminal = ratatui::try_init().map_err(|error| format!("no terminal: {error}"))?;
    let shown =
        show(&looks, &is_over, |look| terminal.draw(|frame| draw(frame, &url, look)).map(drop));
    ratatui::restore();
    shown.map_err(|error| format!("the terminal cannot be used: {error}"))
}

fn look_again_and_again(mut job: Job, interval: Duration, looks: &Sender<Look>) {
    loop {
        let began = Instant::now();
        // Nobody takes it any more when the table is gone.
        if looks.send(job.look(ANSWER_LIMIT)).is_err() {
            return;
        }
        thread::sleep(interval.saturating_sub(began.elapsed()));
    }
}

fn show(
    looks: &Receiver<Look>,
    is_over: &AtomicBool,
    mut draw: impl FnMut(Option<&Look>) -> io::Result<()>,
) -> io::Result<()> {
    let mut last = None;
    draw(None)?;
    while !is_over.load(Ordering::Relaxed) {
        let newer = looks.try_iter().last();
        let is_new = newer.is_some();
        last = newer.or(last);
        let mut is_resized = false;
        if event::poll(KEY_INTERVAL)? {
            match event::read()? {
                Event::Key(key) => {
                    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
                        && key.code == KeyCode::Char('c');
                    if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(());
                    }
                }
                Event::Resize(..) => is_resized = true,
                _ => {}
            }
        }
        if is_new || is_resized {
            draw(last.as_ref())?;
        }
    }
    Ok(())
}

fn draw(frame: &mut Frame<'_>, url: &str, look: Option<&Look>) {
    let title = format!(" polyrank top {url} ");
    let below = Line::from(" q: end ").right_aligned();
    let groups = match look {
        None => return frame.render_widget(waiting(&title, "ranks are asked"), frame.area()),
        Some(Err(message)) => return frame.render_widget(waiting(&title, message), frame.area()),
        Some(Ok(groups)) => groups,
    };
    let heights = groups.iter().map(|group| Constraint::Min(group.rows.len() as u16 + 3));
    let areas = Layout::vertical(heights).split(frame.area());
    for (group, area) in groups.iter().zip(areas.iter()) {
        let rows = group.rows.iter().map(|row| {
            let (cells, has_answered) = cells(row);
            Row::new(cells).style(if has_answered { Style::new() } else { Style::new().red() })
        });
        let widths = [6, 16, 8, 40, 8, 10, 10, 18].map(Constraint::Max);
        let block = Block::bordered().title(format!("{title}{} ", group.name));
        let header = Row::new(HEADER).style(Style::new().bold());
        let table = Table::new(rows, widths).header(header);
        frame.render_widget(table.block(block.title_bottom(below.clone())), *area);
    }
}

fn waiting<'a>(title: &'a str, text: &'a str) -> ratatui::widgets::Paragraph<'a> {
    ratatui::widgets::Paragraph::new(text).block(Block::bordered().title(title))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::job::Row;
    use super::*;

    #[test]
    fn the_screen_shows_each_rank_and_why_there_is_none() {
        let mut terminal = Terminal::new(TestBackend::new(120, 6)).unwrap();
        let mut drawn = |look: Option<&Look>| {
            terminal.draw(|frame| draw(frame, "host:1", look)).unwrap();
            terminal.backend().to_string()
        };
        assert!(drawn(None).contains("ranks are asked"));
        assert!(drawn(Some(&Err("it is gone".to_owned()))).contains("it is gone"));
        let rows = vec![Row { rank: 7, answer: None }];
        let shown = drawn(Some(&Ok(vec![GroupRows { name: "dp".to_owned(), rows }])));
        for part in ["polyrank top host:1 dp", "operation", "7", "no answer", "q: end"] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }
}
