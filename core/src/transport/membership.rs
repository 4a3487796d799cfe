//! What a rank knows of its group when a transport is made. Knows no transport.

use super::Rank;
use crate::generated::error::{Error, Result};
use crate::wire::card::Card;
#[cfg(feature = "tcp")]
use crate::wire::handshake::Hello;
use crate::wire::handshake::Token;

/// One rank's place in a group, and the cards that the ranks published.
#[derive(Clone, Copy)]
pub struct Membership<'a> {
    /// Whose place it is.
    pub rank: Rank,
    /// One for each rank of the group.
    pub cards: &'a [Card],
    /// All ranks of the group have the same, and no other group has it.
    pub token: Token,
    /// Which of the group's memberships it is.
    pub generation: u32,
}

impl Membership<'_> {
    /// The number of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rank is not one of them.
    pub(super) fn size(&self) -> Result<u32> {
        let (rank, size) = (self.rank, u32::try_from(self.cards.len()).unwrap_or(u32::MAX));
        if rank < size {
            return Ok(size);
        }
        let message = format!("rank {rank} is outside of a group of {size} ranks");
        Err(Error::InvalidArgument { message })
    }

    /// As [`Membership::size`], if the rank can talk to all of them.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if another rank is a different version.
    pub(super) fn compatible_size(&self) -> Result<u32> {
        let (rank, size) = (self.rank, self.size()?);
        for (other, card) in self.cards.iter().enumerate() {
            card.check().map_err(|error| Error::Rendezvous {
                message: format!("rank {rank} cannot talk to rank {other}: {error}"),
            })?;
        }
        Ok(size)
    }

    /// The hello of the rank, one of `size`, with its own rank in place of the target.
    #[cfg(feature = "tcp")]
    pub(super) fn hello(&self, size: u32) -> Hello {
        Hello::new(self.token, self.generation, self.rank, size, self.rank)
    }

    /// The name of the group's pipes at the relay, whose server keeps the token itself, too.
    pub(super) fn pipe_name(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.token.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ u64::from(self.generation)
    }
}
