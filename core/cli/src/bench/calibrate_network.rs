//! `polyrank bench --calibrate FILE` as a rank of a job on several hosts: what a link between two
//! of them costs. Times messages between rank 0 and rank 1; knows nothing of links within a host.

use std::path::Path;
use std::time::{Duration, Instant};

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::env::variable::{self, Variable};
use polyrank::schedule::cost::{Link, LinkClass, Sample};
use polyrank::transport::host;
use polyrank::{DType, ProcessGroup, Tensor};

use super::calibrate;

/// Bytes of messages that go to and fro, and of others that both send at the same time: collectives
/// have both, and each end is busy longer with the latter.
const SHORT: [usize; 3] = [4, 256, 4 << 10];
/// Bytes of messages that only go both ways at the same time: the rate of a line that rests half of
/// the time says little.
const LONG: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// How long messages of one length are sent before the clock starts, and then measured.
const WARM_UP: Duration = Duration::from_millis(20);
const TURN: Duration = Duration::from_millis(30);
/// The median of so many turns counts.
const TURNS: usize = 7;
/// What is wrong if rank 0 and rank 1 share a host.
const ONE_HOST: &str = "rank 0 and rank 1 are on one host: start one rank on each of two hosts. \
                        What links within a host cost is measured without RANK and WORLD_SIZE";
/// Rank 0 asks for so many messages at most.
const MAX_MESSAGES: u32 = 100_000;

/// Whether a launcher, or whoever set its variables, started this process as one of several ranks.
pub(super) fn is_rank() -> bool {
    let number = |variable: Variable| variable.text().and_then(|text| text.parse::<u32>().ok());
    number(variable::RANK).is_some() && number(variable::WORLD_SIZE).is_some_and(|size| size > 1)
}

/// Measures, and on rank 0 adds what the link costs to what the file at `path` says, if there is
/// one; says it on stdout too.
///
/// # Errors
/// The ranks did not meet, one of them failed, or the file is something else or cannot be written.
pub(super) fn run(path: &Path) -> Result<(), String> {
    let group = init_process_group(InitOptions::default()).map_err(text_of)?;
    if are_on_one_host(&group).map_err(text_of)? {
        return Err(ONE_HOST.to_owned());
    }
    let measured = match group.rank() {
        0 => samples(&group).map(Some),
        1 => answer(&group).map(|()| None),
        _ => Ok(None),
    };
    let measured = measured.map_err(text_of)?;
    destroy_process_group(None).map_err(text_of)?;
    measured.map_or(Ok(()), |samples| write(&samples, path))
}

/// Whether rank 0 and rank 1 share a host.
fn are_on_one_host(group: &ProcessGroup) -> polyrank::Result<bool> {
    let mut ours = [0_u8; 128];
    ours.iter_mut().zip(host::identity().bytes()).for_each(|(into, from)| *into = from);
    let mut all: Vec<_> = (0..group.size()).map(|_| ours.to_vec()).collect();
    group.allgather(&mut all[..], &ours[..], ())?;
    Ok(all[0] == all[1])
}

/// As rank 0: how long messages took.
fn samples(group: &ProcessGroup) -> polyrank::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for (bytes, is_exchange) in lengths() {
        let messages = Messages::new(group, bytes, is_exchange)?;
        let mut count = 1;
        let turn = |count: u32| {
            group.send(&[count][..], 1, 0)?;
            messages.repeat(count)
        };
        // Until that many take long enough, twice as many.
        let begin = Instant::now();
        loop {
            let seconds = turn(count)?;
            if begin.elapsed() > WARM_UP {
                count = ((TURN.as_secs_f64() / seconds) as u32).clamp(1, MAX_MESSAGES);
                break;
            }
            count = (2 * count).min(MAX_MESSAGES);
        }
        let mut turns: Vec<f64> = (0..TURNS).map(|_| turn(count)).collect::<Result<_, _>>()?;
        turns.sort_by(f64::total_cmp);
        group.send(&[0_u32][..], 1, 0)?;
        samples.push(Sample { bytes: bytes as f64, seconds: turns[TURNS / 2] });
    }
    Ok(samples)
}

/// As rank 1: sends and receives what rank 0 measures.
fn answer(group: &ProcessGroup) -> polyrank::Result<()> {
    for (bytes, is_exchange) in lengths() {
        let messages = Messages::new(group, bytes, is_exchange)?;
        loop {
            let mut count = [0_u32];
            group.recv(&mut count[..], 0, 0)?;
            if count == [0] {
                break;
            }
            messages.repeat(count[0])?;
        }
    }
    Ok(())
}

fn lengths() -> impl Iterator<Item = (usize, bool)> {
    let alone = SHORT.map(|bytes| (bytes, false));
    let exchanged = SHORT.into_iter().chain(LONG).map(|bytes| (bytes, true));
    alone.into_iter().chain(exchanged)
}

/// Messages of one length between rank 0 and rank 1.
struct Messages<'a> {
    group: &'a ProcessGroup,
    is_exchange: bool,
    sent: Tensor,
    received: Tensor,
}

impl Messages<'_> {
    fn new(
        group: &ProcessGroup,
        bytes: usize,
        is_exchange: bool,
    ) -> polyrank::Result<Messages<'_>> {
        let memory = || Tensor::zeros(DType::U8, &[bytes]);
        Ok(Messages { group, is_exchange, sent: memory()?, received: memory()? })
    }

    /// Sends and receives so many; the seconds of one, or of one there and one back at a time.
    fn repeat(&self, count: u32) -> polyrank::Result<f64> {
        let Messages { group, is_exchange, sent, received } = self;
        let peer = 1 - group.rank();
        let receive = || group.recv_async(received.clone(), Some(peer), 1);
        let begin = Instant::now();
        for _ in 0..count {
            let send = || group.send_async(sent.clone(), peer, 1);
            match (is_exchange, peer) {
                (true, _) => {
                    let (receiving, sending) = (receive()?, send()?);
                    receiving.wait(None)?;
                    sending.wait(None)?;
                }
                (false, 1) => {
                    send()?.wait(None)?;
                    receive()?.wait(None)?;
                }
                (false, _) => {
                    receive()?.wait(None)?;
                    send()?.wait(None)?;
                }
            }
        }
        let messages = if *is_exchange { 1.0 } else { 2.0 };
        Ok(begin.elapsed().as_secs_f64() / f64::from(count) / messages)
    }
}

/// Adds the costs to a file.
fn write(samples: &[Sample], path: &Path) -> Result<(), String> {
    let mut calibration = calibrate::known(path)?;
    let link: Link = calibrate::link(samples, LinkClass::Network)
        .ok_or_else(|| "no link was measured".to_owned())?;
    calibration.links[LinkClass::Network as usize] = Some(link);
    // Two ranks alone have the wire for themselves.
    calibration.wire_byte_s = Some(link.byte_s);
    calibrate::save(&calibration, path)
}

fn text_of(error: polyrank::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use polyrank::schedule::cost::Calibration;

    use super::*;

    #[test]
    fn the_link_is_added_to_what_the_file_says() {
        let made = tempfile::tempdir().unwrap();
        let path = made.path().join("costs");
        let sample = |bytes: f64| Sample { bytes, seconds: 10e-6 + bytes * 0.8e-9 };
        let samples = [4.0, 4096.0, 1e6].map(sample);
        write(&samples, &path).unwrap();
        let near = Link { latency_s: 1e-6, overhead_s: 2e-6, byte_s: 3e-9 };
        let mut known = Calibration { local_byte_s: Some(1e-9), ..Calibration::default() };
        known.links[LinkClass::SharedMemory as usize] = Some(near);
        std::fs::write(&path, known.encode()).unwrap();
        write(&samples, &path).unwrap();
        let found = Calibration::decode(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(found.links[LinkClass::SharedMemory as usize], Some(near));
        assert_eq!(found.local_byte_s, Some(1e-9));
        let link = found.links[LinkClass::Network as usize].unwrap();
        assert!((link.latency_s + link.overhead_s - 10e-6).abs() < 1e-9, "{link:?}");
        assert!((link.byte_s - 0.8e-9).abs() < 1e-12, "{link:?}");
        assert_eq!(found.wire_byte_s, Some(link.byte_s));
        std::fs::write(&path, "something else").unwrap();
        assert!(write(&samples, &path).unwrap_err().contains("first line"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else");
    }
}
