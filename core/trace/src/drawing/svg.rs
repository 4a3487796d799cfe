//! The text of the drawing: places, strokes, letters. Knows no operation.

use std::fmt::Write;

use super::scale::Scale;
use crate::words;

/// Colours that stay apart for most colour-blind eyes: on light ground, and on dark. Those of the
/// command's charts.
const COLOURS: [(&str, &str); KINDS] = [
    ("#3e63dd", "#8da4ef"),
    ("#d9480f", "#ff9c5f"),
    ("#2b8a3e", "#69c97d"),
    ("#ae3ec9", "#d98ee8"),
    ("#0b7285", "#4fc3d7"),
    ("#a07900", "#e5bd3d"),
    ("#c2255c", "#f783ac"),
    ("#5c5f66", "#adb1ba"),
];

/// How many kinds of operations have a colour.
pub(super) const KINDS: usize = 8;
/// Width of a letter, about: there is nothing here to measure it with.
const LETTER: f64 = 7.0;
const SPAN_HEIGHT: f64 = 12.0;
/// Narrower spans could not be seen.
const MIN_SPAN: f64 = 0.8;
const MARGIN: f64 = 24.0;
/// Between two marks of the axis, about.
const MARK_DISTANCE: f64 = 120.0;

/// Where a span stands.
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
}

/// A page that grows from its top.
pub(super) struct Page {
    body: String,
    width: f64,
    top: f64,
}

impl Page {
    pub(super) fn new(width: f64) -> Page {
        Page { body: String::new(), width, top: 16.0 }
    }

    /// Where the next thing stands.
    pub(super) fn top(&self) -> f64 {
        self.top
    }

    /// A line of text over the whole width.
    pub(super) fn heading(&mut self, class: &str, words: &str) {
        self.top += 20.0;
        // What does not fit is in the report.
        let fits = ((self.width - 2.0 * MARGIN) / LETTER) as usize;
        let mut shown: String = words.chars().take(fits).collect();
        if shown.len() < words.len() {
            shown.push('…');
        }
        self.text((MARGIN, self.top), class, "start", &shown);
    }

    /// The kinds of operations, and what hatching and frames mean.
    pub(super) fn legend(&mut self, names: &[String]) {
        let (mut x, mut y) = (MARGIN, self.top + 26.0);
        let kinds = names.iter().enumerate().map(|(at, name)| (format!("k{at}"), name.as_str()));
        let marks = [("wait", "not ended"), ("hang", "what is wrong")];
        let marks = marks.map(|(class, name)| (class.to_owned(), name));
        for (class, name) in kinds.chain(marks) {
            let width = 22.0 + LETTER * name.chars().count() as f64 + 16.0;
            if x + width > self.width && x > MARGIN {
                (x, y) = (MARGIN, y + 20.0);
            }
            let place =
                format!("x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"{SPAN_HEIGHT}\"", y - 10.0);
            // Stripes need something below them.
            if class == "wait" {
                let _ = writeln!(self.body, "<rect class=\"k{}\" {place}/>", KINDS - 1);
            }
            let _ = writeln!(self.body, "<rect class=\"{class}\" {place}/>");
            self.text((x + 20.0, y), "", "start", name);
            x += width;
        }
        self.top = y + 26.0;
    }

    /// What a row is.
    pub(super) fn label(&mut self, y: f64, words: &str) {
        self.text((MARGIN, y + 10.0), "", "start", words);
    }

    /// Instead of a row's spans.
    pub(super) fn no_file(&mut self, y: f64) {
        self.text((super::LEFT, y + 10.0), "faint", "start", "no file");
    }

    /// An operation, with what is shown when it is pointed at.
    pub(super) fn span(
        &mut self,
        place: &Place,
        class: &str,
        is_done: bool,
        is_marked: bool,
        hint: &str,
    ) {
        let place = format!(
            "x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{SPAN_HEIGHT}\"",
            place.x,
            place.y,
            place.width.max(MIN_SPAN)
        );
        // Writing to a string cannot fail.
        let _ = write!(
            self.body,
            "<g><title>{}</title><rect class=\"{class}\" {place}/>",
            escaped(hint)
        );
        if !is_done {
            let _ = write!(self.body, "<rect class=\"wait\" {place}/>");
        }
        if is_marked {
            let _ = write!(self.body, "<rect class=\"hang\" {place}/>");
        }
        self.body.push_str("</g>\n");
    }

    /// A line from the top to the bottom, with words above it.
    pub(super) fn mark(&mut self, x: f64, top: f64, bottom: f64, words: &str) {
        let _ = writeln!(
            self.body,
            "<path class=\"mark\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/>",
            top - 6.0
        );
        let anchor = if x > self.width / 2.0 { "end" } else { "start" };
        self.text((x, top - 9.0), "wrong", anchor, words);
    }

    /// The times below the rows.
    pub(super) fn axis(&mut self, scale: &Scale, top: f64, bottom: f64) {
        let (from, to) = (scale.place(scale.first), scale.place(scale.last));
        let _ = writeln!(self.body, "<path class=\"grid\" d=\"M{from:.1} {bottom:.1}H{to:.1}\"/>");
        let count = ((to - from) / MARK_DISTANCE).max(1.0) as usize;
        let knee = scale.shortened_from();
        let waited = words::duration(scale.last - scale.busy);
        let waited = format!("then {waited} of waiting, shortened");
        // The words about waiting end where the line does.
        let taken = knee.map_or(0.0, |_| LETTER * (waited.chars().count() + 4) as f64);
        let room = self.width - taken;
        for ns in scale.marks(count) {
            let x = scale.place(scale.first.saturating_add(ns));
            let _ =
                writeln!(self.body, "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
            if x < room {
                let words = if ns == 0 { "0".to_owned() } else { words::duration(ns) };
                self.text((x, bottom + 16.0), "faint", "middle", &words);
            }
        }
        if let Some(x) = knee {
            let (left, y) = (x - 4.0, bottom + 5.0);
            let d = format!("M{left:.1} {y:.1}l4 -10M{x:.1} {y:.1}l4 -10");
            let _ = writeln!(self.body, "<path class=\"mark\" d=\"{d}\"/>");
            self.text((to, bottom + 16.0), "faint", "end", &waited);
        }
    }

    pub(super) fn finish(self, bottom: f64, label: &str) -> String {
        let (width, height) = (self.width, bottom + 34.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\n{}\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            escaped(label),
            style(),
            self.body,
        )
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(words)
        );
    }
}

fn style() -> String {
    let mut style = String::from(
        "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\">\
         <rect class=\"stripe\" width=\"3\" height=\"6\"/></pattern>\
         </defs>\n<style>\n\
         text { font: 12px system-ui, sans-serif; fill: #33363d; }\n\
         .title { font-size: 18px; font-weight: 600; }\n\
         .faint { fill: #6b7079; }\n.wrong { fill: #c92a2a; font-weight: 600; }\n\
         .ground { fill: #ffffff; }\n.stripe { fill: #ffffff; opacity: 0.6; }\n\
         .grid { stroke: #e6e8ec; fill: none; }\n.mark { stroke: #c92a2a; fill: none; }\n\
         .wait { fill: url(#hatch); stroke: #5c5f66; }\n\
         .hang { fill: none; stroke: #c92a2a; stroke-width: 2; }\n",
    );
    let mut dark = String::from(
        "text { fill: #dfe1e6; }\n.faint { fill: #9a9fa9; }\n.wrong { fill: #ff8787; }\n\
         .ground { fill: #1b1b1f; }\n.stripe { fill: #1b1b1f; }\n.grid { stroke: #33353c; }\n\
         .mark, .hang { stroke: #ff8787; }\n.wait { stroke: #adb1ba; }\n",
    );
    for (at, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        let _ = writeln!(style, ".k{at} {{ fill: {on_light}; }}");
        let _ = writeln!(dark, ".k{at} {{ fill: {on_dark}; }}");
    }
    format!("{style}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n")
}

/// Text that cannot end an element; letters that XML forbids were taken out when it was read.
fn escaped(words: &str) -> String {
    let allowed = |letter: &char| !matches!(letter, '\u{fffe}' | '\u{ffff}');
    let words: String = words.chars().filter(allowed).collect();
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
