//! `polyrank bench --calibrate FILE`: what links within this host and local work cost here, for
//! `POLYRANK_LINK_COSTS`. Messages are measured as any others are; knows nothing of algorithms.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use clap::Parser;

use super::arguments::{BenchArguments, Benchmark};
use super::files;
use super::operation::Operation;
use super::results::Report;
use polyrank::kernels::{self, Order};
use polyrank::schedule::cost::{Calibration, Link, LinkClass, Sample};
use polyrank::{DType, ReduceOp};

/// The messages that are measured, over both transports that ranks of a host have.
const COURSE: &str = "bench pingpong --sizes 4,256,4K,32K,256K,1M,4M --transport shm,tcp -n 2 \
                      --no-check --inputs untouched";
/// How the names of those contenders of [`COURSE`] end that use a link.
const LINKS: [(&str, LinkClass); 2] =
    [("shm", LinkClass::SharedMemory), ("tcp", LinkClass::Loopback)];
/// Bytes of the measured reduction, which stay in a core's cache, as segments do.
const LOCAL_BYTES: usize = 256 << 10;
const LOCAL_TURNS: usize = 200;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: BenchArguments,
}

/// The benchmark that measures links and local work.
///
/// # Errors
/// None that a user can cause.
pub(super) fn benchmark() -> Result<Benchmark, String> {
    let line = Line::try_parse_from(COURSE.split(' ')).map_err(|error| error.to_string())?;
    line.arguments.benchmark()
}

/// Writes what `report` says of links, and what local work costs; says it on stdout too.
///
/// # Errors
/// Nothing was measured, or the file cannot be written.
pub(super) fn write(report: &Report, path: &Path) -> Result<(), String> {
    // What was measured before of other links stays; a file that says something else does not.
    let mut calibration = known(path).unwrap_or_default();
    calibration.local_byte_s = Some(local_byte_s());
    for (ending, class) in LINKS {
        calibration.links[class as usize] = link(&samples(report, ending), class);
    }
    if calibration.links.iter().all(Option::is_none) {
        return Err("no link was measured".to_owned());
    }
    save(&calibration, path)
}

/// What a file says by now: nothing, if it is new or empty.
///
/// # Errors
/// It says something else, or cannot be read.
pub(super) fn known(path: &Path) -> Result<Calibration, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) if text.is_empty() => Ok(Calibration::default()),
        Ok(text) => Calibration::decode(&text).map_err(|error| wrong(error.to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Calibration::default()),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Writes costs, and says what to do with them.
///
/// # Errors
/// The file cannot be written.
pub(super) fn save(calibration: &Calibration, path: &Path) -> Result<(), String> {
    let text = calibration.encode();
    files::show(&format!("\n{text}"));
    files::write(path, &text)?;
    let path = path.display();
    files::show(&format!("Set POLYRANK_LINK_COSTS={path} for rank 0; it tells the others.\n"));
    Ok(())
}

fn samples(report: &Report, ending: &str) -> Vec<Sample> {
    let pingpongs = report.cases.iter().filter(|case| case.operation == Operation::Pingpong);
    let sample = |case: &super::results::CaseReport| {
        let result = case.results.iter().find(|result| result.contender.ends_with(ending))?;
        Some(Sample { bytes: case.bytes as f64, seconds: result.time_us * 1e-6 })
    };
    pingpongs.filter_map(sample).collect()
}

/// The costs of the link that gave `samples`. A pingpong does not show for how much of its time the
/// ranks are busy: that share is taken from the known costs of such links.
pub(super) fn link(samples: &[Sample], class: LinkClass) -> Option<Link> {
    let usual = class.link();
    let whole = Link::fit(samples, 0.0)?;
    let share = usual.overhead_s / (usual.overhead_s + usual.latency_s);
    Link::fit(samples, whole.latency_s * share)
}

/// Seconds that the reduction of a byte takes: the shortest of many turns, since nothing makes a
/// turn faster than it is.
fn local_byte_s() -> f64 {
    let (mut into, from) = (vec![0; LOCAL_BYTES], vec![0; LOCAL_BYTES]);
    let turn = |_| {
        let begin = Instant::now();
        let (into, from) = (std::hint::black_box(&mut into), std::hint::black_box(&from));
        kernels::reduce(ReduceOp::Sum, DType::F32, into, from, Order::IntoFirst);
        begin.elapsed().as_secs_f64()
    };
    (0..LOCAL_TURNS).map(turn).fold(f64::INFINITY, f64::min) / LOCAL_BYTES as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_link_of_the_course_has_a_contender() {
        let benchmark = benchmark().unwrap();
        assert_eq!(benchmark.contenders.len(), LINKS.len());
        for (contender, (ending, _)) in benchmark.contenders.iter().zip(LINKS) {
            assert!(contender.name.ends_with(ending), "{}", contender.name);
        }
    }

    #[test]
    fn a_link_is_found_again_from_its_times() {
        let seconds = |bytes: f64| 3e-6 + bytes * 0.25e-9;
        let samples = [4.0, 4096.0, 1e6].map(|bytes| Sample { bytes, seconds: seconds(bytes) });
        let found = link(&samples, LinkClass::Loopback).unwrap();
        assert!((found.latency_s + found.overhead_s - 3e-6).abs() < 1e-9, "{found:?}");
        assert!((found.byte_s - 0.25e-9).abs() < 1e-12, "{found:?}");
        assert!(link(&samples[..1], LinkClass::Loopback).is_none());
        assert!((1e-13..1e-7).contains(&local_byte_s()));
    }
}
