//! How two ranks identify each other over a pipe. Pure; knows nothing of peers or frames.
//!
//! A rank with something to send begins with a hello, and the other answers with a welcome. If both
//! send a hello at the same time, each takes the other's for its welcome: the pipe is the same.

use crate::wire::handshake::{Hello, Refusal, Welcome};

/// The meaning of a chunk that arrives before any frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GreetingResult {
    /// The other side is the peer: frames may follow.
    Accepted,
    /// The same, once it was sent this answer.
    Answer([u8; Welcome::BYTES]),
    /// The other side is not the peer, and is sent this answer.
    Refused([u8; Welcome::BYTES], Refusal),
    /// The other side refuses this rank, or uses another protocol.
    Hopeless(String),
}

/// Judges the first `chunk` of the peer that this rank greets with `ours`; `said` is whether it has
/// done so yet.
pub(super) fn judge(chunk: &[u8], ours: &Hello, said: bool) -> GreetingResult {
    if said && let Some(greeted) = welcomed(chunk, ours) {
        return greeted;
    }
    match Hello::decode(chunk) {
        Err(error) => GreetingResult::Hopeless(error.to_string()),
        Ok(theirs) => match check(&theirs, ours) {
            Err(refusal) => GreetingResult::Refused(answer(ours, Some(refusal)), refusal),
            Ok(()) if said => GreetingResult::Accepted,
            Ok(()) => GreetingResult::Answer(answer(ours, None)),
        },
    }
}

/// The answer to the hello of a peer that this rank greets with `ours`.
pub(super) fn answer(ours: &Hello, refusal: Option<Refusal>) -> [u8; Welcome::BYTES] {
    let &Hello { version, rank, generation, .. } = ours;
    Welcome { version, rank, generation, refusal }.encode()
}

/// Whether `theirs` is of the rank that `ours` is for.
fn check(theirs: &Hello, ours: &Hello) -> Result<(), Refusal> {
    theirs.check(ours)?;
    if theirs.rank == ours.target { Ok(()) } else { Err(Refusal::Rank) }
}

/// The meaning of a welcome; `None` if `chunk` is not one.
fn welcomed(chunk: &[u8], ours: &Hello) -> Option<GreetingResult> {
    let Welcome { rank, refusal, .. } = Welcome::decode(chunk).ok()?;
    Some(match refusal {
        Some(refusal) => GreetingResult::Hopeless(refusal.to_string()),
        None if rank != ours.target => {
            GreetingResult::Hopeless("another rank answers there".to_owned())
        }
        None => GreetingResult::Accepted,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::wire::handshake::Token;

    fn hello(rank: u32, target: u32) -> Hello {
        Hello::new(Token([3; 16]), 1, rank, 4, target)
    }

    #[test]
    fn a_hello_is_answered_and_two_that_cross_are_enough() {
        let (ours, theirs) = (hello(0, 2), hello(2, 0).encode());
        let GreetingResult::Answer(answer) = judge(&theirs, &ours, false) else {
            panic!("no answer")
        };
        assert_eq!(judge(&answer, &hello(2, 0), true), GreetingResult::Accepted);
        assert_eq!(judge(&theirs, &ours, true), GreetingResult::Accepted);
    }

    #[test]
    fn a_client_that_is_wrong_hears_why() {
        let ours = hello(0, 2);
        let other_group = Hello { token: Token([4; 16]), ..hello(2, 0) };
        for (theirs, why) in [
            (hello(1, 0), Refusal::Rank),
            (hello(2, 3), Refusal::Rank),
            (other_group, Refusal::Token),
        ] {
            let GreetingResult::Refused(answer, refusal) = judge(&theirs.encode(), &ours, true)
            else {
                panic!("{theirs:?} was taken")
            };
            assert_eq!(refusal, why);
            let told = judge(&answer, &hello(2, 0), true);
            assert_eq!(told, GreetingResult::Hopeless(why.to_string()));
        }
        let GreetingResult::Answer(other) = judge(&hello(2, 1).encode(), &hello(1, 2), false)
        else {
            panic!("no answer")
        };
        assert!(matches!(judge(&other, &hello(2, 0), true), GreetingResult::Hopeless(_)));
        // A welcome that nobody asked for, and no handshake at all.
        assert!(matches!(judge(&other, &ours, false), GreetingResult::Hopeless(_)));
        assert!(matches!(judge(b"GET /", &ours, true), GreetingResult::Hopeless(_)));
        assert!(matches!(judge(&[], &ours, true), GreetingResult::Hopeless(_)));
    }
}
