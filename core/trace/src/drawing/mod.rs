//! The job as a drawing: a row a rank, a span an operation, as an SVG file in light and in dark.
//! Knows what was found only to mark it.

mod scale;
mod svg;

use std::collections::BTreeMap;

use crate::dump::{Dump, Entry};
use crate::findings::{Finding, Severity};
use crate::job::Job;
use crate::lanes::lanes;
use crate::selection::Selection;
use crate::words;

use scale::Scale;
use svg::Page;

/// As many rows are drawn.
const MAX_ROWS: usize = 512;
/// Overlapping operations beyond these share the last lane.
const MAX_LANES: usize = 16;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 24.0;
const MIN_WIDTH: f64 = 840.0;
const MAX_WIDTH: f64 = 8000.0;
/// Of an operation of the rank that has most, about.
const SPAN_WIDTH: f64 = 6.0;
const LANE: f64 = 15.0;
const ROW_GAP: f64 = 9.0;

/// What one rank has of the drawing.
struct Row<'a> {
    rank: u32,
    /// None where there is no file.
    dump: Option<&'a Dump>,
    spans: Vec<(usize, &'a Entry, usize)>,
    lanes: usize,
}

impl Row<'_> {
    fn height(&self) -> f64 {
        self.lanes.min(MAX_LANES) as f64 * LANE + ROW_GAP
    }
}

impl Job {
    /// The timeline, a whole SVG file.
    #[must_use]
    pub fn svg(&self, selection: &Selection) -> String {
        let rows = self.rows(selection);
        let most = rows.iter().map(|row| row.spans.len()).max().unwrap_or(0);
        let width = (most as f64 * SPAN_WIDTH).clamp(MIN_WIDTH, MAX_WIDTH);
        let scale = scale_of(&rows, LEFT, LEFT + width);
        let findings = self.findings();
        let worst = findings.iter().find(|finding| finding.severity == Severity::Error);
        let worst = worst.filter(|finding| !finding.is_consequence);
        let hues = hues(&rows);
        let mut page = Page::new(LEFT + width + RIGHT);
        page.heading("title", &self.heading());
        let found = worst.map_or("Nothing is wrong: nobody waits for anybody.", |it| &it.text);
        page.heading(if worst.is_some() { "wrong" } else { "faint" }, found);
        page.legend(&hues.names);
        let top = page.top();
        let heights = rows.iter().take(MAX_ROWS).map(Row::height);
        let more = if rows.len() > MAX_ROWS { LANE + ROW_GAP } else { 0.0 };
        let bottom = top + heights.sum::<f64>() + more;
        page.axis(&scale, top, bottom);
        let mut y = top;
        for row in rows.iter().take(MAX_ROWS) {
            self.draw_row(&mut page, row, y, &scale, &hues, worst);
            y += row.height();
        }
        if rows.len() > MAX_ROWS {
            let more = format!("and {} more ranks", rows.len() - MAX_ROWS);
            page.label(y, &more);
        }
        let first_call = worst.and_then(|finding| self.first_call(&rows, finding));
        if let Some((at, words)) = first_call {
            page.mark(scale.place(at), top, bottom, &words);
        }
        page.finish(bottom, &self.heading())
    }

    fn draw_row(
        &self,
        page: &mut Page,
        row: &Row<'_>,
        y: f64,
        scale: &Scale,
        hues: &Hues,
        worst: Option<&Finding>,
    ) {
        page.label(y, &format!("rank {}", row.rank));
        let Some(dump) = row.dump else {
            page.no_file(y);
            return;
        };
        for (group, entry, lane) in &row.spans {
            let is_marked = worst.is_some_and(|it| self.is_about(it, *group, entry));
            let (from, to) = (scale.place(entry.created_ns), scale.place(entry.end_ns(dump)));
            let hint = self.hint(dump, *group, entry, scale.first);
            let lane = (*lane).min(MAX_LANES - 1) as f64;
            let place = svg::Place { x: from, y: y + lane * LANE, width: to - from };
            page.span(&place, &hues.class(entry), entry.is_done(), is_marked, &hint);
        }
    }

    fn rows<'a>(&'a self, selection: &'a Selection) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        for dump in &self.dumps {
            if !selection.has_rank(dump.rank) {
                continue;
            }
            let mut chosen = selection.entries(self, dump);
            chosen.sort_by_key(|(_, entry)| entry.created_ns);
            let span = |(_, entry): &(usize, &Entry)| (entry.created_ns, entry.end_ns(dump));
            let (places, count) = lanes(&chosen.iter().map(span).collect::<Vec<_>>());
            let spans = chosen.into_iter().zip(places).map(|((at, entry), lane)| (at, entry, lane));
            let (rank, spans) = (dump.rank, spans.collect());
            rows.push(Row { rank, dump: Some(dump), spans, lanes: count });
        }
        let missing = self.missing.iter().filter(|rank| selection.has_rank(**rank));
        rows.extend(missing.take(MAX_ROWS).map(|rank| {
            let rank = *rank;
            Row { rank, dump: None, spans: Vec::new(), lanes: 1 }
        }));
        rows.sort_by_key(|row| row.rank);
        rows
    }

    fn heading(&self) -> String {
        let run = self.run_id.as_ref().map(|run| format!(" of run {run}")).unwrap_or_default();
        format!("Operations{run}, {}", words::count(self.world_size as usize, "rank"))
    }

    fn is_about(&self, finding: &Finding, group: usize, entry: &Entry) -> bool {
        let is_group = finding.groups.contains(&self.groups[group].title);
        let is_it = match finding.sequence {
            Some(sequence) => entry.message.is_none() && entry.sequence == sequence,
            None => true,
        };
        is_group && is_it && !entry.is_done()
    }

    /// When the first rank called what the finding is about.
    fn first_call(&self, rows: &[Row<'_>], finding: &Finding) -> Option<(i64, String)> {
        let all = rows.iter().flat_map(|row| &row.spans);
        let about = all.filter(|(group, entry, _)| self.is_about(finding, *group, entry));
        let (group, entry, _) = about.min_by_key(|(_, entry, _)| entry.created_ns)?;
        Some((entry.created_ns, words::operation(entry, &self.groups[*group].title)))
    }

    /// What a span says when it is pointed at.
    fn hint(&self, dump: &Dump, group: usize, entry: &Entry, first: i64) -> String {
        let mut lines = vec![
            format!("rank {}: {}", dump.rank, words::operation(entry, &self.groups[group].title)),
            format!("issued at {}", words::duration(entry.created_ns - first)),
        ];
        let took = words::duration(entry.end_ns(dump) - entry.created_ns);
        lines.push(match &entry.failed {
            Some(why) => format!("failed after {took}: {why}"),
            None if entry.is_done() => format!("took {took}"),
            None => format!("{}, for {took}", entry.state.name()),
        });
        if !entry.input_sizes.is_empty() {
            lines.push(words::tensors(&entry.input_sizes, &entry.input_dtypes));
        }
        lines.extend(words::place(entry));
        lines.join("\n")
    }
}

/// Kinds of operations, each with its colour: the most frequent have one of their own.
struct Hues {
    names: Vec<String>,
}

impl Hues {
    fn class(&self, entry: &Entry) -> String {
        let at = self.names.iter().position(|name| *name == entry.name);
        format!("k{}", at.unwrap_or(svg::KINDS - 1).min(svg::KINDS - 1))
    }
}

fn hues(rows: &[Row<'_>]) -> Hues {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, entry, _) in rows.iter().flat_map(|row| &row.spans) {
        *counts.entry(&entry.name).or_default() += 1;
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let is_crowded = names.len() > svg::KINDS;
    let own = if is_crowded { svg::KINDS - 1 } else { names.len() };
    let mut names: Vec<String> =
        names.into_iter().take(own).map(|(name, _)| name.to_owned()).collect();
    if is_crowded {
        names.push("others".to_owned());
    }
    Hues { names }
}

/// From the first call that is drawn to the last dump; what comes after the last event is shortened
/// if nothing else would be seen for it.
fn scale_of(rows: &[Row<'_>], from: f64, to: f64) -> Scale {
    let spans = || rows.iter().flat_map(|row| &row.spans).map(|(_, entry, _)| *entry);
    let dumped = rows.iter().filter_map(|row| row.dump).map(|dump| dump.dumped_ns).max();
    let first = spans().map(|entry| entry.created_ns).min().or(dumped).unwrap_or(0);
    let ends = spans().map(|entry| {
        let end = entry.completed_ns.filter(|_| entry.is_done());
        end.unwrap_or(entry.created_ns).max(entry.created_ns)
    });
    let busy = ends.max().unwrap_or(first);
    let open = rows.iter().filter_map(|row| row.dump.map(|dump| (dump, row)));
    let open = open.flat_map(|(dump, row)| row.spans.iter().map(|it| it.1.end_ns(dump)));
    Scale::new(first, busy, open.max().unwrap_or(busy).max(busy), from, to)
}
