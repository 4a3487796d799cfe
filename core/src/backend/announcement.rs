//! What is told on the log when a group begins: how its ranks reach one another, which algorithms
//! were chosen, and why. Knows nothing of how that was found out.

use crate::completion::rank_names;
use crate::env;
use crate::generated::collective::Collective;
use crate::schedule::cost::{Link, LinkCosts};
use crate::schedule::select::Selector;
use crate::wire::card::Card;

/// The part of the log.
macro_rules! announce {
    ($group:expr, $rank:expr, $($text:tt)+) => {
        tracing::info!(
            target: "polyrank::group", group = $group, rank = u64::from($rank), $($text)+
        )
    };
}

/// Tells how `rank` reaches the others, whose `cards` these are.
pub(super) fn tell_ways(group: &str, rank: u32, cards: &[Card]) {
    if !tracing::enabled!(target: "polyrank::group", tracing::Level::INFO) {
        return;
    }
    let Some(own) = cards.get(rank as usize) else { return };
    let way = |card: &Card| match (card, own) {
        (card, own) if card.tcp.is_empty() || own.tcp.is_empty() => "by WebSockets",
        (card, own) if card.host != own.host => "on other hosts by TCP",
        (card, own) if card.shm.is_some() && own.shm.is_some() => "on this host by shared memory",
        _ => "on this host by TCP",
    };
    let mut ways: Vec<(&str, Vec<u32>)> = Vec::new();
    for (other, card) in (0..).zip(cards).filter(|(other, _)| *other != rank) {
        match ways.iter_mut().find(|(known, _)| *known == way(card)) {
            Some((_, ranks)) => ranks.push(other),
            None => ways.push((way(card), vec![other])),
        }
    }
    let ways: Vec<String> =
        ways.iter().map(|(way, ranks)| format!("{} {way}", rank_names(ranks, 0))).collect();
    let listens = own.tcp.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let listens = if listens.is_empty() { "nowhere".to_owned() } else { listens };
    let ways = if ways.is_empty() { "no other ranks".to_owned() } else { ways.join("; ") };
    announce!(group, rank, "one of {} ranks; {ways}; it listens at {listens}", cards.len());
}

/// Tells which algorithms the ranks of a group use, and at which costs they are the cheapest. All
/// ranks choose alike, so that one tells it for all.
pub(super) fn tell_choices(group: &str, rank: u32, selector: &Selector, costs: &LinkCosts) {
    if rank != 0 || !tracing::enabled!(target: "polyrank::group", tracing::Level::INFO) {
        return;
    }
    let from = match env::link_costs_file() {
        Some(path) => format!("measured, from {}", path.display()),
        None => "what such links usually cost; `polyrank bench --calibrate` measures".to_owned(),
    };
    let (within, between) = (link(&costs.within), link(&costs.between));
    announce!(group, rank, "a message costs {within} on a host, {between} between hosts ({from})");
    let all = Collective::ALL.into_iter().filter(|it| it.algorithms().len() > 1);
    let all: Vec<String> = all.map(|collective| choices(selector, collective)).collect();
    announce!(group, rank, "algorithms: {}", all.join("; "));
}

/// "allreduce: one_shot up to 9 KiB, two_shot above".
fn choices(selector: &Selector, collective: Collective) -> String {
    let (choices, mut text) = (selector.choices(collective), String::new());
    for (up_to, algorithm) in &choices {
        let comma = if text.is_empty() { "" } else { ", " };
        text += &match up_to {
            Some(bytes) => format!("{comma}{algorithm} up to {}", size(*bytes)),
            None if choices.len() > 1 => format!("{comma}{algorithm} above"),
            None => (*algorithm).to_owned(),
        };
    }
    let told = if selector.is_told(collective) { " as POLYRANK_ALGORITHM says" } else { "" };
    format!("{}: {text}{told}", collective.facts().name)
}

/// "330 B", "9 KiB", "1.5 MiB".
fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (1024.0 * 1024.0, "MiB"),
        _ => (1024.0 * 1024.0 * 1024.0, "GiB"),
    };
    format!("{:.1} {name}", bytes as f64 / unit).replace(".0 ", " ")
}

/// "2.1 µs and 8.3 GB/s".
fn link(link: &Link) -> String {
    let micros = (link.latency_s + link.overhead_s) * 1e6;
    match link.byte_s > 0.0 {
        true => format!("{micros:.1} µs and {:.1} GB/s", 1e-9 / link.byte_s),
        false => format!("{micros:.1} µs"),
    }
}
