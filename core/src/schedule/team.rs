//! Some of the ranks, and the share of a block on which they work: so that one piece of an
//! algorithm runs over all ranks, or over one rank of each host. Knows no collective.

use super::{Block, Chunk, Place, Rank, Topology};

/// Ranks in an order, and where this rank stands among them.
#[derive(Clone, Debug)]
pub struct Team {
    ranks: Vec<Rank>,
    /// This rank's place in the order.
    pub index: u32,
}

impl Team {
    /// All ranks, in their order.
    pub fn all(place: Place) -> Team {
        Team { ranks: (0..place.size).collect(), index: place.rank }
    }

    /// All ranks, as the root counts them: it is the first.
    pub fn from_root(place: Place) -> Team {
        let index = super::peers::relative(place);
        let ranks = (0..place.size).map(|other| super::peers::absolute(other, place));
        Team { ranks: ranks.collect(), index }
    }

    /// These ranks, if `rank` is one of them.
    pub fn of(ranks: Vec<Rank>, rank: Rank) -> Option<Team> {
        let index = ranks.iter().position(|&other| other == rank)? as u32;
        Some(Team { ranks, index })
    }

    /// The ranks of this rank's host; the root is the first where it is one of them.
    pub fn of_host(place: Place, on: &Topology) -> Team {
        let mut ranks = on.members(on.host_of(place.rank)).to_vec();
        if let Some(root) = ranks.iter().position(|&rank| rank == place.root) {
            ranks.rotate_left(root);
        }
        let index = ranks.iter().position(|&rank| rank == place.rank).unwrap_or_default() as u32;
        Team { ranks, index }
    }

    /// The first rank of each host, the root first and in its host's stead; none if this rank is
    /// none of them.
    pub fn of_leaders(place: Place, on: &Topology) -> Option<Team> {
        let home = on.host_of(place.root);
        let hosts = (0..on.hosts()).map(|host| (home + host) % on.hosts());
        let leader = |host| if host == home { place.root } else { on.members(host)[0] };
        Team::of(hosts.map(leader).collect(), place.rank)
    }

    /// The rank number `lane` of each host, if every host has one and this rank is one of them.
    pub fn of_lane(lane: u32, place: Place, on: &Topology) -> Option<Team> {
        let own = on.members(on.host_of(place.rank));
        if lane >= on.fewest() || own.get(lane as usize) != Some(&place.rank) {
            return None;
        }
        let ranks = (0..on.hosts()).map(|host| on.members(host)[lane as usize]).collect();
        Team::of(ranks, place.rank)
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The rank at a place in the order.
    pub fn rank(&self, index: u32) -> Rank {
        self.ranks[index as usize]
    }

    /// The place `distance` places on, in the circle.
    pub fn on(&self, distance: u32) -> u32 {
        super::peers::after(self.index, distance, self.size())
    }

    /// The place `distance` places back, in the circle.
    pub fn back(&self, distance: u32) -> u32 {
        super::peers::before(self.index, distance, self.size())
    }
}

/// Part `part` of a block cut into `parts`, which may be cut further.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The block.
    pub block: Block,
    /// Which part of it.
    pub part: u32,
    /// How many parts there are.
    pub parts: u32,
}

impl Share {
    /// All of a block.
    pub const fn all(block: Block) -> Share {
        Share { block, part: 0, parts: 1 }
    }

    /// All of the share.
    pub const fn whole(self) -> Chunk {
        self.block.part(self.part, self.parts)
    }

    /// The same share of another block.
    pub const fn in_block(self, block: Block) -> Share {
        Share { block, ..self }
    }

    /// The `count` pieces from `first` on of the share cut into `pieces`.
    pub const fn span(self, first: u32, count: u32, pieces: u32) -> Chunk {
        self.block.span(self.part * pieces + first, count, self.parts * pieces)
    }

    /// Piece `piece` of the share cut into `pieces`.
    pub const fn piece(self, piece: u32, pieces: u32) -> Chunk {
        self.span(piece, 1, pieces)
    }

    /// The `count` pieces from `first` on, in the circle of all `pieces`: one chunk, or two if they
    /// go beyond the last piece.
    pub fn around(self, first: u32, count: u32, pieces: u32) -> impl Iterator<Item = Chunk> {
        let first = first % pieces;
        let straight = count.min(pieces - first);
        let rest = count - straight;
        let wrapped = (rest > 0).then(|| self.span(0, rest, pieces));
        std::iter::once(self.span(first, straight, pieces)).chain(wrapped)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn leaders_stand_for_their_hosts_and_the_root_for_its_own() {
        let on = Topology::by_host([0, 0, 1, 1, 2]);
        let place = Place { rank: 3, size: 5, root: 3 };
        let leaders = Team::of_leaders(place, &on).unwrap();
        assert_eq!((leaders.ranks, leaders.index), (vec![3, 4, 0], 0));
        assert!(Team::of_leaders(Place { rank: 2, ..place }, &on).is_none());
        let host = Team::of_host(Place { rank: 2, ..place }, &on);
        assert_eq!((host.ranks, host.index), (vec![3, 2], 1));
    }

    #[test]
    fn lanes_have_one_rank_of_each_host() {
        let on = Topology::by_host([0, 1, 0, 1, 0]);
        let place = Place { rank: 3, size: 5, root: 0 };
        let lane = Team::of_lane(1, place, &on).unwrap();
        assert_eq!((lane.ranks, lane.index), (vec![2, 3], 1));
        assert!(Team::of_lane(0, place, &on).is_none());
        assert!(Team::of_lane(2, Place { rank: 4, ..place }, &Topology::one_host(5)).is_none());
    }

    #[test]
    fn pieces_of_a_share_are_parts_of_the_block() {
        let share = Share { block: Block::output(0), part: 1, parts: 3 };
        assert_eq!(share.piece(1, 2), Block::output(0).part(3, 6));
        let around: Vec<Chunk> = share.around(3, 2, 4).collect();
        assert_eq!(around, [Block::output(0).part(7, 12), Block::output(0).part(4, 12)]);
        assert_eq!(share.around(2, 2, 4).count(), 1);
    }
}
