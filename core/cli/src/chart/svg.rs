//! The text of the drawing: places, strokes, letters. Knows nothing of where the numbers come from.

use std::fmt::Write;

use super::axis::Axis;
use super::{Chart, Line, Panel};

const WIDTH: f64 = 960.0;
const PANEL_HEIGHT: f64 = 318.0;
/// Of a panel's frame within its cell; more to the left where the marks are wider.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 52.0;
/// From its middle to the edge of a point.
const POINT: f64 = 3.5;
/// A line with more points than these shows every third one, each line others than its neighbour:
/// lines that lie on one another are told apart.
const CROWDED: usize = 12;
/// Between a mark's words and the frame.
const MARK_GAP: f64 = 8.0;
/// Width of a letter, about: there is nothing here to measure it with.
const LETTER: f64 = 7.0;

/// Colours that stay apart for most colour-blind eyes: on light ground, and on dark.
const COLOURS: [(&str, &str); 8] = [
    ("#3e63dd", "#8da4ef"),
    ("#d9480f", "#ff9c5f"),
    ("#2b8a3e", "#69c97d"),
    ("#ae3ec9", "#d98ee8"),
    ("#0b7285", "#4fc3d7"),
    ("#a07900", "#e5bd3d"),
    ("#c2255c", "#f783ac"),
    ("#5c5f66", "#adb1ba"),
];

/// The dashes of the lines, so that they differ without colours too.
const DASHES: [&str; 4] = ["", "6 3", "2 3", "8 3 2 3"];

/// How the points of a line look: these, too, differ without colours. Their number has no divisor
/// in common with that of the dashes.
#[derive(Clone, Copy)]
enum PointShape {
    Disc,
    Square,
    Ring,
    Triangle,
    Frame,
    Diamond,
    Cross,
}

const POINT_SHAPES: [PointShape; 7] = [
    PointShape::Disc,
    PointShape::Square,
    PointShape::Ring,
    PointShape::Triangle,
    PointShape::Frame,
    PointShape::Diamond,
    PointShape::Cross,
];

pub(super) fn draw(chart: &Chart) -> String {
    let mut body = String::new();
    let mut top = 34.0;
    text(&mut body, (24.0, top), "title", &chart.title);
    top += 20.0;
    text(&mut body, (24.0, top), "faint", &chart.subtitle);
    top = legend(&mut body, &chart.names, top + 22.0);
    for (at, panel) in chart.panels.iter().enumerate() {
        let left = (at % 2) as f64 * WIDTH / 2.0;
        let top = top + (at / 2) as f64 * PANEL_HEIGHT;
        draw_panel(&mut body, panel, left, top);
    }
    let height = top + chart.panels.len().div_ceil(2) as f64 * PANEL_HEIGHT + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">\n{}<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         {body}</svg>\n",
        escaped(&chart.title),
        style(),
    )
}

fn style() -> String {
    let mut style = String::from("<style>\n");
    style.push_str(
        "text { font: 12px system-ui, sans-serif; fill: #33363d; }\n\
         .title { font-size: 18px; font-weight: 600; }\n.panel { font-weight: 600; }\n\
         .faint { fill: #6b7079; }\n.ground { fill: #ffffff; }\n\
         .grid { stroke: #e6e8ec; }\n.line { fill: none; stroke-width: 2; }\n\
         .open { fill: none; stroke-width: 1.5; }\n",
    );
    let mut dark = String::from(
        "text { fill: #dfe1e6; }\n.faint { fill: #9a9fa9; }\n.ground { fill: #1b1b1f; }\n\
         .grid { stroke: #33353c; }\n",
    );
    for (at, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        for (style, colour) in [(&mut style, on_light), (&mut dark, on_dark)] {
            // Writing to a string cannot fail.
            let _ = writeln!(style, ".s{at} {{ stroke: {colour}; }}\n.p{at} {{ fill: {colour}; }}");
        }
    }
    let _ = write!(style, "@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n");
    style
}

/// The names of the lines beside a piece of each; where the legend ends.
fn legend(body: &mut String, names: &[String], top: f64) -> f64 {
    let (mut left, mut top) = (24.0, top);
    for (at, name) in names.iter().enumerate() {
        let width = 40.0 + LETTER * name.chars().count() as f64 + 16.0;
        if left + width > WIDTH && left > 24.0 {
            (left, top) = (24.0, top + 20.0);
        }
        let (end, y) = (left + 28.0, top - 4.0);
        let _ = writeln!(
            body,
            "<path class=\"line s{}\"{} d=\"M{left} {y}H{end}\"/>",
            hue(at),
            dash(at)
        );
        draw_point(body, at, left + 14.0, y);
        text(body, (left + 36.0, top), "", name);
        left += width;
    }
    top + 12.0
}

fn draw_panel(body: &mut String, panel: &Panel, left: f64, top: f64) {
    let (high, low) = (top + TOP, top + PANEL_HEIGHT - BOTTOM);
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let y = Axis::new(panel.y_scale, points().map(|point| point.1), low, high);
    let mark = |value: f64| Some((y.place(value)?, (panel.y_text)(value)));
    let marks: Vec<(f64, String)> = y.marks(6).into_iter().filter_map(mark).collect();
    let letters = marks.iter().map(|(_, words)| words.chars().count()).max().unwrap_or_default();
    let from = left + LEFT.max(LETTER * letters as f64 + MARK_GAP);
    let to = left + WIDTH / 2.0 - RIGHT;
    let x = Axis::new(panel.x_scale, points().map(|point| point.0), from, to);
    text(body, (from, top + 18.0), "panel", &panel.title);
    text(body, (from, top + 36.0), "faint", &panel.y_label);
    for (place, words) in &marks {
        let _ = writeln!(body, "<path class=\"grid\" d=\"M{from} {place:.1}H{to}\"/>");
        anchored(body, (from - MARK_GAP, place + 4.0), "end", words);
    }
    for mark in x.marks(7) {
        let Some(place) = x.place(mark) else { continue };
        let _ = writeln!(body, "<path class=\"grid\" d=\"M{place:.1} {low}v4\"/>");
        anchored(body, (place, low + 20.0), "middle", &(panel.x_text)(mark));
    }
    anchored(body, (to, low + 38.0), "end", &panel.x_label);
    for line in &panel.lines {
        draw_line(body, line, &x, &y);
    }
}

fn draw_line(body: &mut String, line: &Line, x: &Axis, y: &Axis) {
    let place = |&(at, value): &(f64, f64)| Some((x.place(at)?, y.place(value)?));
    let places: Vec<_> = line.points.iter().filter_map(place).collect();
    let mut path = String::new();
    for (number, (x, y)) in places.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
    }
    let hue = hue(line.name);
    let _ = writeln!(body, "<path class=\"line s{hue}\"{} d=\"{path}\"/>", dash(line.name));
    let stride = if places.len() > CROWDED { 3 } else { 1 };
    let shown = places.into_iter().skip(line.name % stride).step_by(stride);
    for (x, y) in shown {
        draw_point(body, line.name, x, y);
    }
}

/// A point of the line of this number.
fn draw_point(body: &mut String, name: usize, x: f64, y: f64) {
    let (filled, open) = (format!("p{}", hue(name)), format!("open s{}", hue(name)));
    let r = POINT;
    let mut path = |class: &str, d: String| {
        let _ = writeln!(body, "<path class=\"{class}\" d=\"{d}\"/>");
    };
    let square = |r: f64| format!("M{:.1} {:.1}h{w}v{w}h-{w}z", x - r, y - r, w = 2.0 * r);
    match POINT_SHAPES[name % POINT_SHAPES.len()] {
        PointShape::Disc => circle(body, &filled, x, y),
        PointShape::Ring => circle(body, &open, x, y),
        PointShape::Square => path(&filled, square(r)),
        PointShape::Frame => path(&open, square(r)),
        PointShape::Triangle => {
            path(&filled, format!("M{x:.1} {:.1}l{r} {h}h-{h}z", y - r, h = 2.0 * r));
        }
        PointShape::Diamond => {
            path(&filled, format!("M{x:.1} {:.1}l{r} {r}l-{r} {r}l-{r} -{r}z", y - r));
        }
        PointShape::Cross => {
            let (left, right, up, down) = (x - r, x + r, y - r, y + r);
            path(
                &open,
                format!(
                    "M{left:.1} {up:.1}L{right:.1} {down:.1}M{left:.1} {down:.1}L{right:.1} {up:.1}"
                ),
            );
        }
    }
}

fn circle(body: &mut String, class: &str, x: f64, y: f64) {
    let place = format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{POINT}\"");
    let _ = writeln!(body, "<circle class=\"{class}\" {place}/>");
}

fn hue(name: usize) -> usize {
    name % COLOURS.len()
}

fn dash(name: usize) -> String {
    match DASHES[name % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

fn text(body: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(words));
}

fn anchored(body: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"faint\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// A mark's value with no more digits than it needs.
pub(super) fn number(value: f64) -> String {
    let rounded = format!("{value:.3}");
    match value.abs() {
        size if size > 0.0 && !(1e-3..1e7).contains(&size) => format!("{value:.0e}"),
        _ => rounded.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Scale;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let panel = Panel {
            title: "time".to_owned(),
            y_label: "of a call".to_owned(),
            x_label: "bytes".to_owned(),
            x_scale: Scale::Octaves,
            y_scale: Scale::Decades,
            x_text: |value| format!("{value}"),
            y_text: |value| format!("{value} µs"),
            lines: vec![Line { name: 0, points }],
        };
        Chart {
            title: "a < b".to_owned(),
            subtitle: "here & now".to_owned(),
            names: vec!["\"one\"".to_owned()],
            panels: vec![panel],
        }
    }

    #[test]
    fn names_cannot_break_the_file() {
        let svg = chart(vec![(1.0, 2.0), (4.0, 30.0)]).svg();
        assert!(svg.contains("a &lt; b") && svg.contains("here &amp; now"));
        assert!(svg.contains("&quot;one&quot;") && !svg.contains("\"one\""));
    }

    #[test]
    fn every_point_is_drawn_where_it_belongs() {
        let svg = chart(vec![(1.0, 1.0), (4.0, 100.0)]).svg();
        // The legend has one, too.
        assert_eq!(svg.matches("<circle").count(), 2 + 1);
        // From the lower left corner of the frame to the upper right.
        assert!(svg.contains("d=\"M64.0 354.0L460.0 134.0\""), "{svg}");
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        let svg = chart(vec![(0.0, 1.0), (2.0, f64::NAN), (2.0, 5.0)]).svg();
        assert_eq!(svg.matches("<circle").count(), 1 + 1);
        assert!(!svg.contains("NaN"));
        assert!(!chart(Vec::new()).svg().contains("NaN"));
    }

    #[test]
    fn lines_differ_without_colours() {
        let looks = |name: usize| {
            let mut point = String::new();
            draw_point(&mut point, name, 0.0, 0.0);
            let colour = |class: &str| point.replace(&format!("{class}{}", hue(name)), class);
            let shape = if point.contains("open") { colour("s") } else { colour("p") };
            (dash(name), shape)
        };
        let all: std::collections::BTreeSet<_> = (0..28).map(looks).collect();
        assert_eq!(all.len(), 28);
    }

    #[test]
    fn axes_say_what_they_are_and_in_which_unit() {
        let svg = chart(vec![(1.0, 1.0), (4.0, 100.0)]).svg();
        for text in [">bytes<", ">10 µs<", ">of a call<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let shown = [1e-7, 1e-5, 1e-3, 0.5, 10.0].map(crate::chart::duration);
        assert_eq!(shown, ["0.1 µs", "10 µs", "1 ms", "500 ms", "10 s"]);
    }

    #[test]
    fn lines_on_one_another_show_points_of_both() {
        let points: Vec<_> = (0..20).map(|at| (f64::from(1 << at), 1.0)).collect();
        let mut chart = chart(points.clone());
        chart.names.push("two".to_owned());
        chart.panels[0].lines.push(Line { name: 1, points });
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 7 + 1);
        assert_eq!(svg.matches("<path class=\"p1\"").count(), 7 + 1);
    }

    #[test]
    fn wide_marks_are_whole() {
        let mut chart = chart(vec![(1.0, 1e-9), (4.0, 1e9)]);
        chart.panels[0].y_text = |value| format!("{value:.9} µs");
        let svg = chart.svg();
        let marks = svg.lines().filter(|line| line.contains("text-anchor=\"end\""));
        let marks = marks.filter_map(|line| line.strip_prefix("<text x=\"")?.split_once('"'));
        let mut count = 0;
        for (x, rest) in marks.filter(|(_, rest)| rest.contains("µs")) {
            let words = rest.split(['>', '<']).nth(1).unwrap_or_default();
            let width = LETTER * words.chars().count() as f64;
            assert!(x.parse::<f64>().is_ok_and(|x| x >= width), "{words} at {x}");
            count += 1;
        }
        assert!(count > 2);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.5, 10.0, 1e5, 1e9, 1e-6].map(number);
        assert_eq!(shown, ["0", "0.5", "10", "100000", "1e9", "1e-6"]);
    }
}
