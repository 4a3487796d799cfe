//! Line charts as SVG: pure text out of numbers, in light and in dark. Knows units, and nothing of
//! what the numbers mean.

mod axis;
mod svg;

pub(crate) use axis::Scale;

use crate::sizes;

/// A page of charts with one legend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// A line below the title: machine, versions, date.
    pub(crate) subtitle: String,
    /// Names of the lines; a line's number is its place in here, and its colour, dashes and points.
    pub(crate) names: Vec<String>,
    /// Two stand side by side.
    pub(crate) panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What the vertical axis is.
    pub(crate) y_label: String,
    /// What the horizontal axis is.
    pub(crate) x_label: String,
    pub(crate) x_scale: Scale,
    pub(crate) y_scale: Scale,
    /// Shows a value of the horizontal axis, with its unit.
    pub(crate) x_text: fn(f64) -> String,
    /// Shows a value of the vertical axis, with its unit.
    pub(crate) y_text: fn(f64) -> String,
    pub(crate) lines: Vec<Line>,
}

impl Panel {
    /// Lines over sizes in bytes, each twice the one before.
    pub(crate) fn over_sizes(
        title: &str,
        y_label: &str,
        y_scale: Scale,
        y_text: fn(f64) -> String,
        lines: Vec<Line>,
    ) -> Panel {
        Panel {
            title: title.to_owned(),
            y_label: y_label.to_owned(),
            x_label: "size".to_owned(),
            x_scale: Scale::Octaves,
            y_scale,
            x_text: |bytes| sizes::show(bytes as u64),
            y_text,
            lines,
        }
    }
}

/// A duration as a mark of an axis: `10 µs`, `1 ms`.
pub(crate) fn duration(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        seconds if seconds < 0.999e-3 => (1e6, "µs"),
        seconds if seconds < 0.999 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", svg::number(seconds * scale))
}

/// A bandwidth, in 10⁹ bytes a second, as a mark of an axis: `2.5 GB/s`.
pub(crate) fn bandwidth(gbps: f64) -> String {
    format!("{} GB/s", svg::number(gbps))
}

/// The points of one line, from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its place in [`Chart::names`].
    pub(crate) name: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Chart {
    /// The drawing, a whole file.
    pub(crate) fn svg(&self) -> String {
        svg::draw(self)
    }
}
