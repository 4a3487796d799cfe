//! Who gives whom how many blocks, as the ranks say it, and whether they agree. Pure.

use super::cartesian::Grid;
use crate::generated::error::{Error, Result};
use crate::sorted::sort;

/// The blocks that a rank gives and gets.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    /// Where each of the outputs comes from; none where a grid ends.
    pub(super) sources: Vec<Option<Edge>>,
    /// Where each of the inputs goes.
    pub(super) destinations: Vec<Option<Edge>>,
    /// How many edges there are, at most, from one rank to another: the same on all ranks.
    pub(super) rounds: usize,
}

/// A block from or to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) peer: u32,
    /// How many there are before it from this one of the two ranks to that one.
    pub(super) round: usize,
}

impl Edges {
    /// Those of a rank in a grid. What is given in one direction comes from the opposite one.
    pub(super) fn of_grid(grid: &Grid, rank: u32) -> Edges {
        let neighbours = grid.neighbours(rank);
        let opposite = (0..neighbours.len()).map(|place| place ^ 1);
        let sources = numbered(&neighbours, opposite);
        let destinations = numbered(&neighbours, 0..neighbours.len());
        let rounds = rounds(grid.neighbours(rank).into_iter().flatten().collect());
        Edges { sources, destinations, rounds }
    }

    /// Those of `rank` in a graph, of which each rank gave its sources and destinations.
    ///
    /// # Errors
    /// [`Error::TopologyMismatch`] for an edge that one end names more often than the other.
    pub(super) fn of_graph(given: &[Adjacent], rank: u32) -> Result<Edges> {
        check_edges(given)?;
        let own = given.get(rank as usize).cloned().unwrap_or_default();
        let mut edges = Edges::of_adjacent(&own);
        let all = given.iter().map(|it| rounds(it.destinations.clone()));
        edges.rounds = all.max().unwrap_or(0);
        Ok(edges)
    }

    /// Those of the only rank that is asked.
    pub(super) fn of_adjacent(own: &Adjacent) -> Edges {
        let all = |ranks: &[u32]| {
            let ranks: Vec<Option<u32>> = ranks.iter().copied().map(Some).collect();
            numbered(&ranks, 0..ranks.len())
        };
        let (sources, destinations) = (all(&own.sources), all(&own.destinations));
        let rounds = rounds(own.destinations.clone());
        Edges { sources, destinations, rounds }
    }
}

/// What a rank says of its neighbours in a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Adjacent {
    pub(super) sources: Vec<u32>,
    pub(super) destinations: Vec<u32>,
}

/// The blocks from or to `peers`, those of one peer numbered in the order of `places`.
fn numbered(peers: &[Option<u32>], places: impl Iterator<Item = usize>) -> Vec<Option<Edge>> {
    let mut edges: Vec<Option<Edge>> = vec![None; peers.len()];
    for place in places {
        let Some(peer) = peers.get(place).copied().flatten() else { continue };
        let round = edges.iter().flatten().filter(|edge| edge.peer == peer).count();
        edges[place] = Some(Edge { peer, round });
    }
    edges
}

/// How often the one is named that is named most.
fn rounds(mut peers: Vec<u32>) -> usize {
    sort(&mut peers);
    peers.chunk_by(|one, next| one == next).map(<[u32]>::len).max().unwrap_or(0)
}

/// Checks that both ends name each edge as often.
fn check_edges(given: &[Adjacent]) -> Result<()> {
    let of = |named: fn(&Adjacent) -> &Vec<u32>, edge: fn(u32, u32) -> (u32, u32)| {
        let ends = (0..).zip(given);
        let edges = ends.flat_map(|(rank, it)| named(it).iter().map(move |&peer| edge(rank, peer)));
        let mut edges: Vec<(u32, u32)> = edges.collect();
        sort(&mut edges);
        edges
    };
    let begun = of(|it| &it.destinations, |rank, peer| (rank, peer));
    let ended = of(|it| &it.sources, |rank, peer| (peer, rank));
    if begun == ended {
        return Ok(());
    }
    let mut all = [begun.as_slice(), &ended].concat();
    sort(&mut all);
    all.dedup();
    let count = |edges: &[(u32, u32)], edge| {
        edges.partition_point(|it| *it <= edge) - edges.partition_point(|it| *it < edge)
    };
    let counts = all.into_iter().map(|edge| (edge, count(&begun, edge), count(&ended, edge)));
    let mut differing = counts.filter(|(_, begins, ends)| begins != ends);
    let Some(((from, to), begins, ends)) = differing.next() else { return Ok(()) };
    let more = match differing.count() {
        0 => String::new(),
        1 => " (1 more edge differs)".to_owned(),
        more => format!(" ({more} more edges differ)"),
    };
    Err(Error::TopologyMismatch {
        rank: from,
        ours: format!("{} to rank {to}", counted(begins)),
        other_rank: to,
        theirs: format!("{} from rank {from}{more}", counted(ends)),
    })
}

fn counted(edges: usize) -> String {
    if edges == 1 { "1 edge".to_owned() } else { format!("{edges} edges") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn adjacent(sources: &[u32], destinations: &[u32]) -> Adjacent {
        Adjacent { sources: sources.to_vec(), destinations: destinations.to_vec() }
    }

    fn edge(peer: u32, round: usize) -> Option<Edge> {
        Some(Edge { peer, round })
    }

    #[test]
    fn what_goes_one_way_comes_from_the_other() {
        // Both neighbours are rank 1: what rank 0 gives first is what rank 1 gets from behind.
        let grid = Grid::new(&[2], &[true], 2).unwrap();
        let edges = Edges::of_grid(&grid, 0);
        assert_eq!(edges.destinations, [edge(1, 0), edge(1, 1)]);
        assert_eq!(edges.sources, [edge(1, 1), edge(1, 0)]);
        assert_eq!(edges.rounds, 2);
        let alone = Edges::of_grid(&Grid::new(&[1, 1], &[true, true], 1).unwrap(), 0);
        assert_eq!(alone.destinations, [edge(0, 0), edge(0, 1), edge(0, 2), edge(0, 3)]);
        assert_eq!(alone.sources, [edge(0, 1), edge(0, 0), edge(0, 3), edge(0, 2)]);
    }

    #[test]
    fn edges_of_a_graph_are_numbered_in_their_order() {
        let given = [adjacent(&[0, 1], &[0, 1, 1]), adjacent(&[0, 0], &[0]), adjacent(&[], &[])];
        let edges = Edges::of_graph(&given, 0).unwrap();
        assert_eq!(edges.destinations, [edge(0, 0), edge(1, 0), edge(1, 1)]);
        assert_eq!(edges.sources, [edge(0, 0), edge(1, 0)]);
        for rank in 0..3 {
            assert_eq!(Edges::of_graph(&given, rank).unwrap().rounds, 2);
        }
    }

    #[test]
    fn an_edge_that_one_end_does_not_know_is_told_by_both_ranks() {
        let given = [adjacent(&[], &[1, 2]), adjacent(&[0], &[2, 2]), adjacent(&[1], &[])];
        let text = Edges::of_graph(&given, 0).unwrap_err().to_string();
        let expected = "rank 0 gave 1 edge to rank 2, but rank 2 gave 0 edges from rank 0 (1 more \
                        edge differs)";
        assert!(text.ends_with(expected), "{text}");
    }
}
