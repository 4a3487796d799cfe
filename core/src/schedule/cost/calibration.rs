//! Measured link costs, as a text that a person can read and all ranks can share.
//! Knows no file, no store and no clock.
//!
//! One `name value …` a line, as an address card has it. Unknown names are skipped: a newer release
//! may say more. What is missing has the figures of an unmeasured machine.
//!
//! Figures have no exponents and end at a millionth of a nanosecond: what reads all numbers of 64
//! bits would be 12 KiB of what a page has to load.
//!
//! ```text
//! polyrank link costs
//! shared-memory latency_ns 600 overhead_ns 500 byte_ns 0.15
//! wire byte_ns 0.32
//! local byte_ns 0.08
//! crowd ns 50
//! ```

use std::fmt::Write as _;

use super::{Link, LinkClass, LinkCosts};

/// Most bytes of an encoded calibration.
pub const MAX_CALIBRATION_BYTES: usize = 4096;

const TITLE: &str = "polyrank link costs";
/// Nothing that is told here takes longer than a minute.
const MAX_FEMTOSECONDS: u64 = 60 * FEMTOSECONDS_PER_SECOND;
const FEMTOSECONDS_PER_SECOND: u64 = 1_000_000_000_000_000;
const FEMTOSECONDS_PER_NANOSECOND: u64 = 1_000_000;
/// Digits after the point of a nanosecond.
const FRACTION_DIGITS: usize = 6;

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

/// Why a text is not a calibration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// The text is longer than [`MAX_CALIBRATION_BYTES`].
    #[error("{bytes} bytes of link costs are more than the limit")]
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
    /// The link costs of ranks that reach each other by `within` on one host.
    pub fn link_costs(&self, within: LinkClass) -> LinkCosts {
        let unmeasured = LinkCosts::of(within);
        let link = |class: LinkClass| self.links[class as usize].unwrap_or(class.link());
        LinkCosts {
            within: link(within),
            between: link(LinkClass::Network),
            wire_byte_s: self.wire_byte_s.unwrap_or(unmeasured.wire_byte_s),
            local_byte_s: self.local_byte_s.unwrap_or(unmeasured.local_byte_s),
            crowd_s: self.crowd_s.unwrap_or(unmeasured.crowd_s),
            wake_s: link(LinkClass::Loopback).overhead_s,
            ..unmeasured
        }
    }

    /// The text of it, in which figures are rounded to a femtosecond.
    pub fn encode(&self) -> String {
        let mut text = format!("{TITLE}\n");
        // Writing to a String cannot fail.
        for (class, link) in LinkClass::ALL.into_iter().zip(&self.links) {
            if let Some(Link { latency_s, overhead_s, byte_s }) = link {
                let figures = [*latency_s, *overhead_s, *byte_s].map(nanoseconds);
                let ([latency, overhead, byte], name) = (figures, class.name());
                let _ = writeln!(
                    text,
                    "{name} latency_ns {latency} overhead_ns {overhead} byte_ns {byte}"
                );
            }
        }
        let lines = [
            ("wire byte_ns", self.wire_byte_s),
            ("local byte_ns", self.local_byte_s),
            ("crowd ns", self.crowd_s),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} {}", nanoseconds(value));
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
                ["wire", "byte_ns", value] => {
                    calibration.wire_byte_s = Some(seconds(value).ok_or_else(flaw)?);
                }
                ["local", "byte_ns", value] => {
                    calibration.local_byte_s = Some(seconds(value).ok_or_else(flaw)?);
                }
                ["crowd", "ns", value] => {
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
    let ["latency_ns", latency, "overhead_ns", overhead, "byte_ns", byte, ..] = figures else {
        return None;
    };
    let (latency_s, overhead_s) = (seconds(latency)?, seconds(overhead)?);
    Some(Link { latency_s, overhead_s, byte_s: seconds(byte)? })
}

/// Seconds, as nanoseconds with a point. What cannot be a time is none.
fn nanoseconds(seconds: f64) -> String {
    let femtoseconds = (seconds * FEMTOSECONDS_PER_SECOND as f64).round() as u64;
    let whole = femtoseconds / FEMTOSECONDS_PER_NANOSECOND;
    let fraction = femtoseconds % FEMTOSECONDS_PER_NANOSECOND;
    let text = format!("{whole}.{fraction:0FRACTION_DIGITS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The seconds that nanoseconds with a point are.
fn seconds(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > FRACTION_DIGITS {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<FRACTION_DIGITS$}").parse().ok()?;
    let femtoseconds = whole.checked_mul(FEMTOSECONDS_PER_NANOSECOND)?.checked_add(fraction)?;
    let seconds = femtoseconds as f64 / FEMTOSECONDS_PER_SECOND as f64;
    (femtoseconds <= MAX_FEMTOSECONDS).then_some(seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Femtoseconds that are told and read without rounding.
    const FIGURES: std::ops::Range<u64> = 0..1 << 50;

    proptest! {
        #[test]
        fn a_calibration_survives_the_journey(
            links in proptest::array::uniform4(proptest::option::of(
                (FIGURES, FIGURES, FIGURES)
            )),
            others in proptest::array::uniform3(proptest::option::of(FIGURES)),
        ) {
            let seconds = |femtoseconds: u64| femtoseconds as f64 / 1e15;
            let link = |(latency, overhead, byte)| Link {
                latency_s: seconds(latency),
                overhead_s: seconds(overhead),
                byte_s: seconds(byte),
            };
            let [wire_byte_s, local_byte_s, crowd_s] = others.map(|it| it.map(seconds));
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
        assert_eq!(message("hello"), "the first line is not \"polyrank link costs\"");
        assert_eq!(
            message("polyrank link costs\nloopback latency_ns 1\n"),
            "line 2 makes no sense: `loopback latency_ns 1`"
        );
        assert!(message("polyrank link costs\n\nwire byte_ns NaN").starts_with("line 3"));
        assert!(message("polyrank link costs\nlocal byte_ns -1").starts_with("line 2"));
        assert!(message(&" ".repeat(MAX_CALIBRATION_BYTES + 1)).contains("limit"));
        let newer = Calibration::decode("polyrank link costs\npigeon latency_ns 60\n").unwrap();
        assert_eq!(newer.link_costs(LinkClass::Loopback), LinkCosts::LOOPBACK);
    }

    #[test]
    fn figures_are_decimals_of_nanoseconds() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("0.15", Some(1.5e-10)),
            ("600", Some(6e-7)),
            ("60000000000", Some(60.0)),
            ("60000000000.000001", None),
            ("99999999999999999999", None),
            ("0.0000001", None),
            ("1e3", None),
            ("+1", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text:?}");
        }
        assert_eq!(nanoseconds(1.5e-10), "0.15");
        assert_eq!(nanoseconds(6e-7), "600");
        assert_eq!(nanoseconds(f64::NAN), "0");
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
