//! One operation of a communicator, and how its ranks exchange what it needs: naively, everybody
//! with everybody. Knows no stream.

use std::ffi::c_int;
use std::io::{self, Read, Write};

use super::memory::copy;
use super::mesh::{Mesh, read_number, read_text, write_number, write_text};
use super::reduce;

/// Bytes up to which a rank writes before it reads; sockets hold as much.
const WRITE_FIRST_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Send,
    Recv,
}

/// Operations for which ranks are connected once: of a kind, and of few bytes or many.
pub(crate) type Connection = (Kind, bool);

/// More bytes than go by the way that is best for few.
const MANY_BYTES: usize = 64 << 10;

/// How elements are reduced: by an operator of the library, or by one that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operator {
    Number(c_int),
    Premul(f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) into: usize,
    pub(crate) count: usize,
    pub(crate) dtype: c_int,
    pub(crate) operator: Operator,
    /// The root, or the peer.
    pub(crate) other: usize,
}

/// What is read from a peer, and where it goes.
struct IncomingMessage {
    peer: usize,
    what: Vec<u8>,
    bytes: usize,
    place: Place,
}

enum Place {
    Memory(usize),
    /// The part of that rank in what is reduced.
    Part(usize),
}

type OutgoingMessage = (usize, Vec<u8>, usize, usize);

/// Runs operations that were grouped: messages all at once, anything else one after the other.
pub(crate) fn run(mesh: &Mesh, rank: usize, size: usize, all: &[Operation]) -> io::Result<()> {
    let is_message = |it: &Operation| matches!(it.kind, Kind::Send | Kind::Recv);
    let here = RankView { mesh, rank, size };
    for one in all.iter().filter(|it| !is_message(it)) {
        here.collective(one)?;
    }
    let messages: Vec<&Operation> = all.iter().filter(|it| is_message(it)).collect();
    here.messages(&messages)
}

struct RankView<'a> {
    mesh: &'a Mesh,
    rank: usize,
    size: usize,
}

impl RankView<'_> {
    fn collective(&self, one: &Operation) -> io::Result<()> {
        let bytes = one.count * reduce::width(one.dtype);
        let to_root = one.other == self.rank;
        let others = || (0..self.size).filter(|&peer| peer != self.rank);
        let what = one.what();
        let to = |peer, from: usize| (peer, what.clone(), from, bytes);
        let take = |peer, place| IncomingMessage { peer, what: what.clone(), bytes, place };
        match one.kind {
            Kind::AllReduce => {
                let ours = one.contribution(one.from, bytes);
                let sends = others().map(|peer| to(peer, ours.as_ptr() as usize)).collect();
                let takes = others().map(|peer| take(peer, Place::Part(peer))).collect();
                self.reduced(one, ours.clone(), sends, takes)
            }
            Kind::Reduce if to_root => {
                let ours = one.contribution(one.from, bytes);
                let takes = others().map(|peer| take(peer, Place::Part(peer))).collect();
                self.reduced(one, ours, Vec::new(), takes)
            }
            Kind::Reduce => {
                let ours = one.contribution(one.from, bytes);
                self.exchange(vec![to(one.other, ours.as_ptr() as usize)], Vec::new()).map(drop)
            }
            Kind::ReduceScatter => {
                let all = one.contribution(one.from, bytes * self.size);
                let part = |rank: usize| all[rank * bytes..(rank + 1) * bytes].to_vec();
                let start = all.as_ptr() as usize;
                let sends = others().map(|peer| to(peer, start + peer * bytes)).collect();
                let takes = others().map(|peer| take(peer, Place::Part(peer))).collect();
                self.reduced(one, part(self.rank), sends, takes)
            }
            Kind::Broadcast if to_root => {
                copy(one.from, one.into, bytes);
                self.exchange(others().map(|peer| to(peer, one.from)).collect(), Vec::new())
                    .map(drop)
            }
            Kind::Broadcast => {
                self.exchange(Vec::new(), vec![take(one.other, Place::Memory(one.into))]).map(drop)
            }
            _ => {
                copy(one.from, one.into + self.rank * bytes, bytes);
                let sends = others().map(|peer| to(peer, one.from)).collect();
                let at = |peer| Place::Memory(one.into + peer * bytes);
                self.exchange(sends, others().map(|peer| take(peer, at(peer))).collect()).map(drop)
            }
        }
    }

    fn messages(&self, all: &[&Operation]) -> io::Result<()> {
        let (mut sends, mut takes, mut own) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
        for one in all {
            let bytes = one.count * reduce::width(one.dtype);
            match (one.kind, one.other == self.rank) {
                (Kind::Send, true) => own.0.push((one.from, bytes)),
                (Kind::Send, false) => sends.push((one.other, one.what(), one.from, bytes)),
                (_, true) => own.1.push((one.into, bytes)),
                (_, false) => {
                    let (what, place) = (one.what(), Place::Memory(one.into));
                    takes.push(IncomingMessage { peer: one.other, what, bytes, place });
                }
            }
        }
        for ((from, sent), (into, taken)) in own.0.iter().zip(&own.1) {
            copy(*from, *into, *sent.min(taken));
        }
        sends.sort_by_key(|send| send.0);
        takes.sort_by_key(|take| take.peer);
        self.exchange(sends, takes).map(drop)
    }

    fn reduced(
        &self,
        one: &Operation,
        ours: Vec<u8>,
        sends: Vec<OutgoingMessage>,
        takes: Vec<IncomingMessage>,
    ) -> io::Result<()> {
        let mut parts = self.exchange(sends, takes)?;
        parts[self.rank] = ours;
        let average = one.operator == Operator::Number(4);
        let number = match one.operator {
            Operator::Number(4) | Operator::Premul(_) => 0,
            Operator::Number(number) => number,
        };
        let outcome = reduce::reduce(one.dtype, number, &parts, average);
        copy(outcome.as_ptr() as usize, one.into, outcome.len());
        Ok(())
    }

    /// Sends and reads all; the parts of the others where they are to be reduced.
    fn exchange(
        &self,
        sends: Vec<OutgoingMessage>,
        takes: Vec<IncomingMessage>,
    ) -> io::Result<Vec<Vec<u8>>> {
        let send = || {
            sends.iter().try_for_each(|(peer, what, from, bytes)| {
                let mut stream = self.mesh.peer(*peer)?;
                write_text(&mut stream, what)?;
                write_number(&mut stream, *bytes as u64)?;
                // SAFETY: the issuer of the operation keeps the memory until it is over.
                let data = unsafe { std::slice::from_raw_parts(*from as *const u8, *bytes) };
                stream.write_all(if *bytes == 0 { &[] } else { data })
            })
        };
        let bytes: usize = sends.iter().map(|send| send.3).sum();
        if bytes <= WRITE_FIRST_BYTES {
            send()?;
            return self.take(takes);
        }
        std::thread::scope(|scope| {
            let sending = scope.spawn(send);
            let taken = self.take(takes);
            sending.join().map_err(|_| io::Error::other("a panic"))??;
            taken
        })
    }

    fn take(&self, takes: Vec<IncomingMessage>) -> io::Result<Vec<Vec<u8>>> {
        let mut parts = vec![Vec::new(); self.size];
        for IncomingMessage { peer, what, bytes, place } in takes {
            let mut stream = self.mesh.peer(peer)?;
            let theirs = read_text(&mut stream)?;
            let sent = read_number(&mut stream)? as usize;
            if theirs != what || sent != bytes {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "calls do not match"));
            }
            let mut data = vec![0; bytes];
            stream.read_exact(&mut data)?;
            match place {
                Place::Memory(into) => copy(data.as_ptr() as usize, into, bytes),
                Place::Part(rank) => parts[rank] = data,
            }
        }
        Ok(parts)
    }
}

impl Operation {
    /// The connection that it needs of all ranks; messages are between two.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let is_message = matches!(self.kind, Kind::Send | Kind::Recv);
        let many = self.count * reduce::width(self.dtype) > MANY_BYTES;
        (!is_message).then_some((self.kind, many))
    }

    /// What both sides must call alike.
    fn what(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Recv => Kind::Send,
            other => other,
        };
        // The peer of one is not that of the other; factors may differ.
        let other = if kind == Kind::Send { 0 } else { self.other };
        let operator = match self.operator {
            Operator::Number(number) => number,
            Operator::Premul(_) => -1,
        };
        format!("{kind:?} {} {} {operator} {other}", self.count, self.dtype).into_bytes()
    }

    /// What this rank contributes to a reduction.
    fn contribution(&self, from: usize, bytes: usize) -> Vec<u8> {
        let mut ours = vec![0; bytes];
        copy(from, ours.as_mut_ptr() as usize, bytes);
        if let Operator::Premul(factor) = self.operator {
            reduce::scale(self.dtype, &mut ours, factor);
        }
        ours
    }
}
