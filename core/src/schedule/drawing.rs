//! Schedules, their timelines and what they cost as JSON and numbers, for pages that draw them.
//! Knows nothing of how they are drawn.

use std::fmt::Write;

use super::cost::LinkCosts;
use super::select::{CallSize, Overrides, Selector};
use super::timeline::{Moment, Timeline};
use super::{
    Action, Algorithm, Block, BlockContent, Buffer, Build, Chunk, Place, Schedule, Scratch, Step,
    Topology,
};
use crate::generated::collective::{Blocks, Collective};

/// The most ranks whose schedules are drawn: some have as many steps as the square of it.
const MAX_RANKS: u32 = 64;
/// Of algorithms that follow the hosts, two ranks of each host are drawn.
const RANKS_PER_HOST: u32 = 2;

/// The collectives and their algorithms: see `Collective[]` in `drawing.d.ts`.
pub fn collectives() -> String {
    list(Collective::ALL, |collective| {
        let facts = collective.facts();
        let algorithms = list(collective.algorithms(), |algorithm| {
            let Algorithm { name, meant_for, .. } = algorithm;
            format!(r#"{{"name":{},"meantFor":{}}}"#, quote(name), quote(meant_for))
        });
        format!(
            r#"{{"name":{},"rooted":{},"reduces":{},"algorithms":{algorithms}}}"#,
            quote(facts.name),
            facts.rooted,
            facts.reduces
        )
    })
}

/// The schedules of all ranks with their timeline: see `Drawing` in `drawing.d.ts`. `bytes` is the
/// whole: of the tensor, or of all blocks together.
///
/// # Errors
/// Unknown names, a root that is not a rank, more ranks than can be drawn.
pub fn schedule(
    collective: &str,
    algorithm: &str,
    ranks: u32,
    root: u32,
    bytes: f64,
) -> Result<String, String> {
    let (collective, algorithm) = find(collective, algorithm)?;
    if ranks == 0 || ranks > MAX_RANKS {
        return Err(format!("can draw 1 to {MAX_RANKS} ranks, not {ranks}"));
    }
    if root >= ranks {
        return Err(format!("root {root} is none of {ranks} ranks"));
    }
    let places = (0..ranks).map(|rank| Place { rank, size: ranks, root });
    let on = hosts_of(algorithm, ranks);
    let schedules: Vec<Schedule> = algorithm.schedules(root, &on);
    let block_bytes = bytes.max(0.0) / f64::from(blocks(collective, ranks));
    let timeline = Timeline::new(&schedules, block_bytes, &LinkCosts::LOOPBACK, &on)
        .ok_or("the schedules do not fit together")?;
    let contract = collective.contract();
    let parts = places.zip(&schedules).zip(&timeline.ranks).map(|((place, schedule), moments)| {
        let (input, output) = (contract.before)(place);
        let steps =
            list(schedule.steps.iter().zip(moments), |(step, moment)| step_text(step, moment));
        format!(
            r#"{{"input":{},"output":{},"after":{},"scratch":{},"steps":{steps}}}"#,
            list(input, |holds| holds_text(&holds)),
            list(output, |holds| holds_text(&holds)),
            list((contract.after)(place), |holds| holds_text(&holds)),
            list(&schedule.scratch, scratch_text),
        )
    });
    let parts: Vec<String> = parts.collect();
    Ok(format!(
        r#"{{"blockBytes":{block_bytes:?},"rounds":{},"seconds":{:?},"ranks":{}}}"#,
        timeline.rounds,
        timeline.seconds,
        list(parts, |part| part),
    ))
}

/// Seconds that each algorithm of the collective costs for each of the sizes, algorithm by
/// algorithm.
///
/// # Errors
/// An unknown collective.
pub fn prices(collective: &str, ranks: u32, bytes: &[f64]) -> Result<Vec<f64>, String> {
    let collective = find_collective(collective)?;
    let cost = |algorithm: &Algorithm| {
        let load = (algorithm.load)(&Topology::one_host(ranks.max(1)));
        bytes.iter().map(move |&whole| load.cost(whole, &LinkCosts::LOOPBACK))
    };
    Ok(collective.algorithms().iter().flat_map(cost).collect())
}

/// The index of the algorithm that polyrank picks, for each of the sizes.
///
/// # Errors
/// An unknown collective.
pub fn selection(collective: &str, ranks: u32, bytes: &[f64]) -> Result<Vec<u32>, String> {
    let collective = find_collective(collective)?;
    let on = Topology::one_host(ranks.max(1));
    let selector = Selector::new(&on, &LinkCosts::LOOPBACK, Overrides::none());
    let pick = |&whole: &f64| {
        selector.choose(collective, CallSize { bytes: Some(whole as u64), equal_blocks: true })
    };
    Ok(bytes.iter().map(|whole| pick(whole) as u32).collect())
}

fn find_collective(name: &str) -> Result<Collective, String> {
    let found = Collective::ALL.into_iter().find(|collective| collective.facts().name == name);
    found.ok_or_else(|| format!("'{name}' is not a collective"))
}

fn find(collective: &str, algorithm: &str) -> Result<(Collective, &'static Algorithm), String> {
    let collective_found = find_collective(collective)?;
    let found = collective_found.algorithms().iter().find(|known| known.name == algorithm);
    let none = || format!("{collective} has no algorithm '{algorithm}'");
    Ok((collective_found, found.ok_or_else(none)?))
}

/// Where the ranks of a drawing are: on one host, unless that matters.
fn hosts_of(algorithm: &Algorithm, ranks: u32) -> Topology {
    match algorithm.build {
        Build::ByHost(_) => Topology::by_host((0..ranks).map(|rank| rank / RANKS_PER_HOST)),
        Build::Flat(_) | Build::Equal(_) => Topology::one_host(ranks),
    }
}

/// How many blocks the whole is.
fn blocks(collective: Collective, ranks: u32) -> u32 {
    let facts = collective.facts();
    let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
    if many(facts.input) || many(facts.output) { ranks } else { 1 }
}

fn step_text(step: &Step, moment: &Moment) -> String {
    let Moment { round, begin_s, end_s, begins, ends, partner } = moment;
    let (kind, from, into) = match step.action {
        Action::Send { from, .. } => ("send", Some(from), None),
        Action::Recv { into, .. } => ("recv", None, Some(into)),
        Action::RecvReduce { local, into, .. } => ("recvReduce", Some(local), Some(into)),
        Action::Reduce { from, into, .. } => ("reduce", Some(from), Some(into)),
        Action::Copy { from, into } => ("copy", Some(from), Some(into)),
    };
    let chunk = |chunk: Option<Chunk>| chunk.map_or("null".to_owned(), chunk_text);
    let partner = partner.map_or("null".to_owned(), |(rank, step)| format!("[{rank},{step}]"));
    format!(
        r#"{{"kind":"{kind}","from":{},"into":{},"partner":{partner},"round":{round},"#,
        chunk(from),
        chunk(into)
    ) + &format!(
        r#""beginS":{begin_s:?},"endS":{end_s:?},"begins":{begins},"ends":{ends},"text":{}}}"#,
        quote(&step.action.to_string())
    )
}

fn block_text(Block { buffer, index }: Block) -> String {
    let buffer = match buffer {
        Buffer::Input => "input",
        Buffer::Output => "output",
        Buffer::Scratch => "scratch",
    };
    format!(r#"{{"buffer":"{buffer}","index":{index}}}"#)
}

fn scratch_text(Scratch { like, times }: &Scratch) -> String {
    format!(r#"{{"like":{},"times":{times}}}"#, block_text(*like))
}

fn chunk_text(chunk: Chunk) -> String {
    let Chunk { block, part, count, parts } = chunk;
    let block = block_text(block);
    format!(r#"{{"block":{block},"part":{part},"count":{count},"parts":{parts}}}"#)
}

/// The origins whose reduction a block holds; null where it holds nothing to rely on.
fn holds_text(holds: &BlockContent) -> String {
    let origin = |(rank, block): &(u32, u32)| format!("[{rank},{block}]");
    match holds {
        BlockContent::Anything => "null".to_owned(),
        BlockContent::One(one) => list([one], origin),
        BlockContent::Reduction(all) | BlockContent::InOrder(all) => list(all, origin),
    }
}

fn list<T>(items: impl IntoIterator<Item = T>, text: impl FnMut(T) -> String) -> String {
    let items: Vec<String> = items.into_iter().map(text).collect();
    format!("[{}]", items.join(","))
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing into a string cannot fail.
            control if control < ' ' => drop(write!(quoted, "\\u{:04x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}
