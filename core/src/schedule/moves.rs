//! Pieces of algorithms that work in place, over the ranks of a [`Team`] and on a [`Share`] of a
//! block: an algorithm is one of them over all ranks, or several over the hosts. Knows no
//! collective and no contract.

use super::builder::Builder;
use super::peers::{self, Fold};
use super::{Block, Operands, Place, Share, Team, Topology};

/// Every rank ends with the sum of the share, whose pieces travel round the ring twice.
///
/// Rounds: 2·(n-1). See [`allreduce`](super::allreduce).
pub fn ring(builder: &mut Builder, team: &Team, share: Share) {
    let size = team.size();
    let (next, previous) = (team.rank(team.on(1)), team.rank(team.back(1)));
    let piece = |back: u32| share.piece(team.back(back), size);
    for round in 0..size - 1 {
        builder.send(next, piece(round));
        let summed = piece(round + 1);
        builder.recv_reduce(previous, summed, summed, Operands::IncomingFirst);
    }
    for round in 0..size - 1 {
        builder.send(next, piece(round + size - 1));
        builder.recv(previous, piece(round));
    }
}

/// Every rank ends with the sum of the share, in ⌊log2 n⌋ exchanges of all of it. Ranks beyond a
/// power of two are folded into a neighbour before, and get the result after.
///
/// A rank cannot receive into what it still sends, so the share and scratch memory take turns; it
/// ends where it began.
pub fn recursive_doubling(builder: &mut Builder, team: &Team, share: Share) {
    let size = team.size();
    let own = share.whole();
    let (index, partner) = match peers::fold(team.index, size) {
        Fold::Out { partner } => {
            builder.send(team.rank(partner), own);
            builder.recv(team.rank(partner), own);
            return;
        }
        Fold::In { index, partner } => (index, partner.map(|partner| team.rank(partner))),
    };
    if let Some(partner) = partner {
        builder.recv_reduce(partner, own, own, Operands::IncomingFirst);
    }
    let rounds = peers::power_of_two_below(size).ilog2();
    if rounds > 0 {
        let other = builder.scratch(share.block);
        let (mut sum, mut other) = (own, share.in_block(other).whole());
        for round in 0..rounds {
            let peer_index = index ^ (1 << round);
            let peer = team.rank(peers::unfold(peer_index, size));
            let operands = by_rank(index, peer_index);
            if round == 0 && rounds % 2 == 1 {
                builder.copy(own, other);
                builder.send(peer, other);
                builder.recv_reduce(peer, own, own, operands);
            } else {
                builder.send(peer, sum);
                builder.recv_reduce(peer, sum, other, operands);
                (sum, other) = (other, sum);
            }
        }
    }
    if let Some(partner) = partner {
        builder.send(partner, own);
    }
}

/// Every rank ends with the sum of the share, by halves and then by doubles, whatever the number of
/// ranks: piece by piece, the reverse of a Bruck allgather and then one.
///
/// Rounds: 2·⌈log2 n⌉. Bytes sent by each rank: 2·(n-1)/n of the share, the least possible.
pub fn circulant(builder: &mut Builder, team: &Team, share: Share) {
    let size = team.size();
    let steps = peers::circulant(size);
    for &(distance, moved) in steps.iter().rev() {
        for chunk in share.around(team.on(distance), moved, size) {
            builder.send(team.rank(team.on(distance)), chunk);
        }
        for chunk in share.around(team.index, moved, size) {
            let from = team.rank(team.back(distance));
            builder.recv_reduce(from, chunk, chunk, Operands::LocalFirst);
        }
    }
    for &(distance, moved) in &steps {
        for chunk in share.around(team.index, moved, size) {
            builder.send(team.rank(team.back(distance)), chunk);
        }
        for chunk in share.around(team.on(distance), moved, size) {
            builder.recv(team.rank(team.on(distance)), chunk);
        }
    }
}

/// The first rank ends with the sum of the share; the others hold partial sums.
///
/// Rounds: ⌊log2 n⌋. Number v sends to v without its lowest bit.
pub fn binomial_reduce(builder: &mut Builder, team: &Team, share: Share) {
    let mut bit = 1;
    while bit < team.size() && team.index & bit == 0 {
        if team.index + bit < team.size() {
            let child = team.rank(team.index + bit);
            builder.recv_reduce(child, share.whole(), share.whole(), Operands::LocalFirst);
        }
        bit *= 2;
    }
    if team.index != 0 {
        builder.send(team.rank(team.index - bit), share.whole());
    }
}

/// Every rank ends with the first one's share.
///
/// Rounds: ⌊log2 n⌋. Number v receives from v without its lowest bit.
pub fn binomial_broadcast(builder: &mut Builder, team: &Team, share: Share) {
    let mut bit = 1;
    while bit < team.size() && team.index & bit == 0 {
        bit *= 2;
    }
    if team.index != 0 {
        builder.recv(team.rank(team.index - bit), share.whole());
    }
    while bit > 1 {
        bit /= 2;
        if team.index + bit < team.size() {
            builder.send(team.rank(team.index + bit), share.whole());
        }
    }
}

/// Every rank ends with the first one's share, which each hands to the next.
///
/// Rounds: n-1, which overlap.
pub fn chain(builder: &mut Builder, team: &Team, share: Share) {
    if team.index > 0 {
        builder.recv(team.rank(team.index - 1), share.whole());
    }
    if team.index + 1 < team.size() {
        builder.send(team.rank(team.index + 1), share.whole());
    }
}

/// A piece of an algorithm: what a team does with a share.
pub type Piece = fn(&mut Builder, &Team, Share);

/// Every rank ends with the sum of the block: each host's ranks reduce a part to each lane's rank,
/// the lanes carry their parts `between` hosts, and hand them out. There are as many lanes as the
/// smallest host has ranks.
pub fn by_lanes(builder: &mut Builder, place: Place, on: &Topology, block: Block, between: Piece) {
    let parts = on.fewest();
    let members = on.members(on.host_of(place.rank)).to_vec();
    let Some(host) = Team::of(members, place.rank) else { return };
    let share = |lane: u32| (lane < parts).then_some(Share { block, part: lane, parts });
    let own = share(host.index);
    for distance in 1..host.size() {
        let (to, from) = (host.on(distance), host.back(distance));
        if let Some(theirs) = share(to) {
            builder.send(host.rank(to), theirs.whole());
        }
        if let Some(own) = own.map(Share::whole) {
            builder.recv_reduce(host.rank(from), own, own, Operands::LocalFirst);
        }
    }
    if let Some(own) = own
        && let Some(lane) = Team::of_lane(own.part, place, on)
    {
        between(builder, &lane, own);
    }
    for distance in 1..host.size() {
        let (to, from) = (host.on(distance), host.back(distance));
        if let Some(own) = own {
            builder.send(host.rank(to), own.whole());
        }
        if let Some(theirs) = share(from) {
            builder.recv(host.rank(from), theirs.whole());
        }
    }
}

/// The operand of the lower rank is the left one.
pub fn by_rank(local: u32, incoming: u32) -> Operands {
    if local < incoming { Operands::LocalFirst } else { Operands::IncomingFirst }
}
