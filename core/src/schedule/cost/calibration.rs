//! Prices that somebody has measured, as a text that a person can read and all ranks can share.
//! Knows no file, no store and no clock.
//!
//! One `name value …` a line, as an address card has it. Unknown names are skipped: a newer release
//! may say more. What is missing has the figures of an unmeasured machine.
//!
//! ```text
//! polyrank prices
//! shared-memory latency_s 6e-7 overhead_s 5e-7 byte_s 1.5e-10
//! wire byte_s 3.2e-10
//! local byte_s 8e-11
//! crowd s 5e-8
//! ```

use std::fmt::Write as _;

use super::{Link, LinkClass, Prices};

/// Most bytes of an encoded calibration.
pub const MAX_CALIBRATION_BYTES: usize = 4096;

const TITLE: &str = "polyrank prices";
/// Nothing that is told here takes longer.
const SECONDS_MAX: f64 = 60.0;

/// What was measured on some machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Links by [`LinkClass`], as far as they were measured.
    pub links: [Option<Link>; LinkClass::ALL.len()],
    /// Seconds for which a byte occupies the wire of a host.
    pub wire_byte_s: Option<f64>,
    /// Seconds to reduce or copy a byte.
    pub local_byte_s: Option<f64>,
    /// Seconds that each further message in flight adds to a message.
    pub crowd_s: Option<f64>,
}

/// Why a text is no calibration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// The text is longer than [`MAX_CALIBRATION_BYTES`].
    #[error("{bytes} bytes of prices are more than the limit")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text does not begin as a calibration does.
    #[error("the first line is not \"{TITLE}\"")]
    NoCalibration,
    /// A line makes no sense.
    #[error("line {line} makes no sense: `{text}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
}

/// How long a message of some length took from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its length.
    pub bytes: f64,
    /// Half of a round trip.
    pub seconds: f64,
}

impl Calibration {
    /// The prices of ranks that reach each other by `within` on one host.
    pub fn prices(&self, within: LinkClass) -> Prices {
        let unmeasured = Prices::of(within);
        let link = |class: LinkClass| self.links[class as usize].unwrap_or(class.link());
        Prices {
            within: link(within),
            between: link(LinkClass::Network),
            wire_byte_s: self.wire_byte_s.unwrap_or(unmeasured.wire_byte_s),
            local_byte_s: self.local_byte_s.unwrap_or(unmeasured.local_byte_s),
            crowd_s: self.crowd_s.unwrap_or(unmeasured.crowd_s),
            ..unmeasured
        }
    }

    /// The text of it.
    pub fn encode(&self) -> String {
        let mut text = format!("{TITLE}\n");
        // Writing to a String cannot fail.
        for (class, link) in LinkClass::ALL.into_iter().zip(&self.links) {
            if let Some(Link { latency_s, overhead_s, byte_s }) = link {
                let name = class.name();
                let _ = writeln!(
                    text,
                    "{name} latency_s {latency_s:e} overhead_s {overhead_s:e} byte_s {byte_s:e}"
                );
            }
        }
        let lines = [
            ("wire byte_s", self.wire_byte_s),
            ("local byte_s", self.local_byte_s),
            ("crowd s", self.crowd_s),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} {value:e}");
            }
        }
        text
    }

    /// Reads the text of a calibration.
    ///
    /// # Errors
    /// A text that is too long, is something else, or has a line that makes no sense.
    pub fn decode(text: &str) -> Result<Calibration, CalibrationError> {
        if text.len() > MAX_CALIBRATION_BYTES {
            return Err(CalibrationError::TooLong { bytes: text.len() });
        }
        let mut lines = (1..).zip(text.lines());
        if lines.next().map(|(_, title)| title.trim_end()) != Some(TITLE) {
            return Err(CalibrationError::NoCalibration);
        }
        let mut calibration = Calibration::default();
        for (line, text) in lines {
            let words: Vec<&str> = text.split_whitespace().collect();
            let flaw = || CalibrationError::Line { line, text: text.to_owned() };
            match *words {
                ["wire", "byte_s", value] => {
                    calibration.wire_byte_s = Some(seconds(value).ok_or_else(flaw)?);
                }
                ["local", "byte_s", value] => {
                    calibration.local_byte_s = Some(seconds(value).ok_or_else(flaw)?);
                }
                ["crowd", "s", value] => {
                    calibration.crowd_s = Some(seconds(value).ok_or_else(flaw)?);
                }
                [name, ref figures @ ..] => {
                    let class = LinkClass::ALL.into_iter().find(|class| class.name() == name);
                    if let Some(class) = class {
                        calibration.links[class as usize] = Some(link(figures).ok_or_else(flaw)?);
                    }
                }
                [] => {}
            }
        }
        Ok(calibration)
    }
}

impl Link {
    /// The link for which messages took as long as `samples` say, and each of many messages that
    /// were sent one right after the other took `overhead_s`. None without samples of two lengths.
    ///
    /// The line of least squares, each sample weighed by its own time: a microsecond matters to a
    /// small message as much as a millisecond to a large one.
    pub fn fit(samples: &[Sample], overhead_s: f64) -> Option<Link> {
        let (mut weights, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for Sample { bytes, seconds } in samples.iter().filter(|sample| sample.seconds > 0.0) {
            let weight = 1.0 / (seconds * seconds);
            weights += weight;
            x += weight * bytes;
            y += weight * seconds;
            xx += weight * bytes * bytes;
            xy += weight * bytes * seconds;
        }
        let spread = weights * xx - x * x;
        // Twice the rounding of the products: all samples have one length.
        if spread.is_nan() || spread <= weights * xx * 1e-12 {
            return None;
        }
        let byte_s = ((weights * xy - x * y) / spread).max(0.0);
        let start_s = ((y - byte_s * x) / weights).max(0.0);
        let overhead_s = overhead_s.clamp(0.0, start_s);
        Some(Link { latency_s: start_s - overhead_s, overhead_s, byte_s })
    }
}

fn link(figures: &[&str]) -> Option<Link> {
    let ["latency_s", latency, "overhead_s", overhead, "byte_s", byte, ..] = figures else {
        return None;
    };
    let (latency_s, overhead_s) = (seconds(latency)?, seconds(overhead)?);
    Some(Link { latency_s, overhead_s, byte_s: seconds(byte)? })
}

fn seconds(text: &str) -> Option<f64> {
    text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_calibration_survives_the_journey(
            links in proptest::array::uniform4(proptest::option::of(
                (0.0..1.0, 0.0..1.0, 0.0..1.0)
            )),
            others in proptest::array::uniform3(proptest::option::of(0.0..1.0)),
        ) {
            let link = |(latency_s, overhead_s, byte_s)| Link { latency_s, overhead_s, byte_s };
            let [wire_byte_s, local_byte_s, crowd_s] = others;
            let links = links.map(|figures| figures.map(link));
            let calibration = Calibration { links, wire_byte_s, local_byte_s, crowd_s };
            let text = calibration.encode();
            prop_assert!(text.len() <= MAX_CALIBRATION_BYTES);
            prop_assert_eq!(Calibration::decode(&text), Ok(calibration));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,200}") {
            let _ = Calibration::decode(&text);
            let _ = Calibration::decode(&format!("{TITLE}\n{text}"));
        }
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        let message = |text: &str| Calibration::decode(text).unwrap_err().to_string();
        assert_eq!(message("hello"), "the first line is not \"polyrank prices\"");
        assert_eq!(
            message("polyrank prices\nloopback latency_s 1\n"),
            "line 2 makes no sense: `loopback latency_s 1`"
        );
        assert!(message("polyrank prices\n\nwire byte_s NaN").starts_with("line 3"));
        assert!(message("polyrank prices\nlocal byte_s -1").starts_with("line 2"));
        assert!(message(&" ".repeat(MAX_CALIBRATION_BYTES + 1)).contains("limit"));
        let newer = Calibration::decode("polyrank prices\npigeon latency_s 60\n").unwrap();
        assert_eq!(newer.prices(LinkClass::Loopback), Prices::LOOPBACK);
    }

    #[test]
    fn a_fit_finds_the_link_that_the_samples_were_made_of() {
        let made = Link { latency_s: 3e-6, overhead_s: 1e-6, byte_s: 2e-10 };
        let sample = |bytes: f64| Sample { bytes, seconds: 4e-6 + bytes * 2e-10 };
        let fit = Link::fit(&[4.0, 1024.0, 65_536.0, 1e6].map(sample), 1e-6).unwrap();
        assert!((fit.latency_s - made.latency_s).abs() < 1e-9, "{fit:?}");
        assert!((fit.byte_s - made.byte_s).abs() < 1e-13, "{fit:?}");
        assert_eq!(fit.overhead_s, made.overhead_s);
        assert_eq!(Link::fit(&[sample(4.0), sample(4.0)], 0.0), None);
        assert_eq!(Link::fit(&[], 0.0), None);
    }
}
