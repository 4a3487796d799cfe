//! A forecast as a table, as JSON and as a drawing. Knows no link costs.

use serde_json::{Value, json};

use super::arguments::Question;
use super::forecast::{Forecast, Row};
use crate::chart::{Chart, Line, Panel, Scale, bandwidth, duration};
use crate::sizes;

/// The table for a terminal; the algorithm that polyrank picks has a star.
pub(super) fn table(forecast: &Forecast) -> String {
    let names = forecast.rows.iter().map(|row| row.algorithm.name.len());
    let width = names.max().unwrap_or_default().max("algorithm".len());
    let simulates = forecast.rows.iter().any(|row| row.simulated_s.is_some());
    let hosts = forecast.question.on.hosts() > 1;
    let mut lines = vec![title(forecast), String::new()];
    let mut header = format!("  {:width$}  {:>10}", "algorithm", "time");
    if simulates {
        header += &format!("  {:>10}", "simulated");
    }
    header += &format!("  {:>8}  {:>8}  {:>8}  {:>9}", "algbw", "busbw", "rounds", "messages");
    header += &format!("  {:>11}", "a rank has");
    if hosts {
        header += &format!("  {:>11}", "a host has");
    }
    lines.push(header);
    lines.extend(forecast.rows.iter().map(|row| row_text(forecast, row, width, simulates)));
    lines.push(String::new());
    lines.push(
        "  * what polyrank picks. algbw and busbw in GB/s. rounds: messages one after the other; \
         messages and"
            .to_owned(),
    );
    lines.push(
        "  bytes: the most that one rank sends or gets, and that a host's ranks send to others."
            .to_owned(),
    );
    lines.into_iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn title(forecast: &Forecast) -> String {
    let question = &forecast.question;
    let (ranks, hosts) = (question.on.size(), question.on.hosts());
    let place = match hosts {
        1 => "on one host".to_owned(),
        _ => format!("{} on each of {hosts} hosts", question.on.most()),
    };
    format!("{}, {}, {place}", what(question), sizes::ranks(ranks))
}

/// The collective, and its size if it has one.
pub(super) fn what(question: &Question) -> String {
    let facts = question.collective.facts();
    match facts.has_data() {
        true => format!("{} of {}", facts.name, sizes::show(question.bytes)),
        false => facts.name.to_owned(),
    }
}

fn row_text(forecast: &Forecast, row: &Row, width: usize, simulates: bool) -> String {
    let whole = forecast.question.bytes as f64;
    let algorithm_gbps = whole / row.seconds / 1e9;
    // A rank alone needs no time.
    let rate = |gbps: f64| match gbps.is_finite() {
        true => format!("{gbps:.3}"),
        false => "-".to_owned(),
    };
    let star = if row.is_chosen { '*' } else { ' ' };
    let mut text = format!("{star} {:width$}  {:>10}", row.algorithm.name, time(row.seconds));
    if simulates {
        text += &format!("  {:>10}", row.simulated_s.map_or("-".to_owned(), time));
    }
    text += &format!(
        "  {:>8}  {:>8}  {:>8}  {:>9}  {:>11}",
        rate(algorithm_gbps),
        rate(algorithm_gbps * forecast.bus_factor()),
        row.traffic.rounds,
        row.traffic.messages,
        bytes(row.traffic.bytes * whole),
    );
    if forecast.question.on.hosts() > 1 {
        text += &format!("  {:>11}", bytes(row.host_share * whole));
    }
    text
}

/// The forecast as JSON, with its curves.
pub(super) fn json(forecast: &Forecast) -> String {
    let question = &forecast.question;
    let whole = question.bytes as f64;
    let algorithms: Vec<Value> = forecast
        .rows
        .iter()
        .map(|row| {
            json!({
                "algorithm": row.algorithm.name,
                "chosen": row.is_chosen,
                "follows_hosts": row.follows_hosts(),
                "seconds": row.seconds,
                "simulated_seconds": row.simulated_s,
                "rounds": row.traffic.rounds,
                "rounds_between_hosts": row.wire_rounds,
                "messages_per_rank": row.traffic.messages,
                "bytes_per_rank": row.traffic.bytes * whole,
                "bytes_per_host": row.host_share * whole,
                "largest_message_bytes": row.traffic.message * whole,
                "curve_seconds": row.curve,
            })
        })
        .collect();
    let answer = json!({
        "collective": question.collective.facts().name,
        "ranks": question.on.size(),
        "hosts": question.on.hosts(),
        "bytes": question.bytes,
        "algorithms": algorithms,
        "curve_bytes": forecast.sizes,
        "curve_chosen": forecast.chosen,
    });
    format!("{answer:#}\n")
}

/// Times and bandwidths over sizes, one line for each algorithm.
pub(super) fn chart(forecast: &Forecast) -> Chart {
    let factor = forecast.bus_factor();
    let lines = |value: &dyn Fn(u64, f64) -> f64| {
        let line = |(name, row): (usize, &Row)| {
            let points = forecast.sizes.iter().zip(&row.curve);
            let points = points.map(|(&bytes, &seconds)| (bytes as f64, value(bytes, seconds)));
            Line { name, points: points.collect() }
        };
        forecast.rows.iter().enumerate().map(line).collect()
    };
    let panel = Panel::over_sizes;
    let times = lines(&|_, seconds| seconds);
    let bandwidths = lines(&|bytes, seconds| bytes as f64 * factor / seconds / 1e9);
    Chart {
        title: title(forecast),
        subtitle: "predicted by polyrank from its schedules, not measured".to_owned(),
        names: forecast.rows.iter().map(|row| row.algorithm.name.to_owned()).collect(),
        panels: vec![
            panel("time", "of a call", Scale::Decades, duration, times),
            panel("bus bandwidth", "what every link carries", Scale::Linear, bandwidth, bandwidths),
        ],
    }
}

pub(super) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-3 => format!("{:.1} µs", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

pub(super) fn bytes(bytes: f64) -> String {
    let unit = |unit: f64, name: &str| format!("{:.1} {name}", bytes / unit);
    // What would be rounded to 1024.0 of a unit is 1.0 of the next.
    let below = |unit: f64| bytes < unit * 0.99995;
    match bytes {
        bytes if below(1024.0) => format!("{bytes:.0} B"),
        _ if below(1_048_576.0) => unit(1024.0, "KiB"),
        _ if below(1_073_741_824.0) => unit(1_048_576.0, "MiB"),
        _ => unit(1_073_741_824.0, "GiB"),
    }
}
