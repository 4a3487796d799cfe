//! Results as a drawing: for each operation and number of ranks a panel of times and one of
//! bandwidths. Knows nothing of SVG.

use super::inputs::Inputs;
use super::operation::Form;
use super::results::{CaseReport, MeasuredCase, Report};
use crate::chart::{Chart, Line, Panel, Scale, bandwidth, duration};
use crate::sizes;

/// The drawing of a report.
pub(super) fn plot(report: &Report) -> Chart {
    let mut names: Vec<String> = Vec::new();
    for result in report.cases.iter().flat_map(|case| &case.results) {
        if !names.contains(&result.contender) {
            names.push(result.contender.clone());
        }
    }
    let mut panels = Vec::new();
    // Cases of one topic follow one another; forms of one size alternate.
    let mut topics: Vec<(String, Vec<&CaseReport>)> = Vec::new();
    for case in report.cases.iter().filter(|case| case.operation.has_size()) {
        let topic = topic(case);
        match topics.iter_mut().find(|(other, _)| *other == topic) {
            Some((_, cases)) => cases.push(case),
            None => topics.push((topic, vec![case])),
        }
    }
    for (topic, cases) in &topics {
        let panel = |y_label: &str, y_scale, y_text, value: fn(&MeasuredCase) -> f64| {
            Panel::over_sizes(topic, y_label, y_scale, y_text, lines(&names, cases, value))
        };
        panels.push(panel("time", Scale::Decades, duration, |result| result.time_us / 1e6));
        panels.push(panel("bus bandwidth", Scale::Linear, bandwidth, |result| result.busbw_gbps));
    }
    let machine = &report.machine;
    Chart {
        title: report.title.clone(),
        subtitle: format!(
            "{} · {}, {} cores, {}",
            report.date, machine.cpu, machine.cores, machine.system
        ),
        names,
        panels,
    }
}

fn topic(case: &CaseReport) -> String {
    let mut topic =
        format!("{}, {}, {}", case.operation.name(), sizes::ranks(case.ranks), case.dtype);
    if let Some(reduction) = case.reduction {
        topic.push_str(&format!(", {}", reduction.name()));
    }
    if case.form != case.operation.natural_form() {
        topic.push_str(match case.form {
            Form::OutOfPlace => ", out of place",
            Form::InPlace => ", in place",
        });
    }
    if case.inputs == Inputs::Untouched {
        topic.push_str(", inputs untouched");
    }
    topic
}

fn lines(names: &[String], cases: &[&CaseReport], value: fn(&MeasuredCase) -> f64) -> Vec<Line> {
    let line = |(name, contender): (usize, &String)| {
        let point = |case: &&CaseReport| {
            let result = case.results.iter().find(|result| result.contender == *contender)?;
            Some((case.bytes as f64, value(result)))
        };
        Line { name, points: cases.iter().filter_map(point).collect() }
    };
    let lines = names.iter().enumerate().map(line);
    lines.filter(|line| !line.points.is_empty()).collect()
}
