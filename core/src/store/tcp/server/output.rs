//! Bytes on their way to one client. Knows nothing of requests; writes to anything that writes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::store::table::Value;

/// Values up to this size are copied, larger ones are shared until they are sent.
const COPIED_BYTES: usize = 4 << 10;
/// Memory that an emptied buffer keeps.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes on their way to one client.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// What goes first.
    front: VecDeque<Chunk>,
    /// What goes after that.
    pub(super) tail: Vec<u8>,
    /// Bytes of the first chunk, or of `tail` if there is none, that are sent.
    sent: usize,
    unsent_bytes: usize,
    own_bytes: usize,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<Value>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(value) => value.bytes(),
        }
    }
}

impl Output {
    /// Appends the length of `value` and its bytes.
    pub(super) fn value(&mut self, value: Option<&Arc<Value>>) {
        let bytes = value.map_or(&[][..], |value| value.bytes());
        self.tail.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        match value {
            Some(value) if bytes.len() > COPIED_BYTES => {
                let own = std::mem::take(&mut self.tail);
                // With nothing before it, a part of the tail may have been sent already.
                let sent = if self.front.is_empty() { self.sent } else { 0 };
                self.own_bytes += own.len() + size_of::<Chunk>();
                self.unsent_bytes += own.len() - sent + bytes.len();
                self.front.push_back(Chunk::Own(own));
                self.front.push_back(Chunk::Shared(value.clone()));
            }
            _ => self.tail.extend_from_slice(bytes),
        }
    }

    /// Whether everything was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.tail.is_empty()
    }

    /// Bytes still to be sent, about.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes + self.tail.len()
    }

    /// Bytes of memory that are this output's alone.
    pub(super) fn own_bytes(&self) -> usize {
        self.own_bytes + self.tail.len()
    }

    /// Writes until everything is sent or `write` would block.
    pub(super) fn flush(
        &mut self,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while let Some(chunk) = self.front.front() {
            let bytes = &chunk.bytes()[self.sent..];
            let left = bytes.len();
            if left > 0 {
                let Some(written) = try_write(&mut write, bytes)? else { return Ok(()) };
                self.sent += written;
                self.unsent_bytes -= written;
                if written < left {
                    continue;
                }
            }
            if let Some(Chunk::Own(own)) = self.front.pop_front() {
                self.own_bytes -= own.len() + size_of::<Chunk>();
            }
            self.sent = 0;
        }
        while self.sent < self.tail.len() {
            let Some(written) = try_write(&mut write, &self.tail[self.sent..])? else {
                return Ok(());
            };
            self.sent += written;
        }
        self.sent = 0;
        self.tail.clear();
        self.tail.shrink_to(KEPT_BYTES);
        Ok(())
    }
}

/// The number of bytes written; `None` if the socket takes no more now.
fn try_write(
    write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    bytes: &[u8],
) -> io::Result<Option<usize>> {
    match write(bytes) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(written) => Ok(Some(written)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::store::table::Table;

    #[test]
    fn bytes_arrive_in_order_however_little_the_socket_takes() {
        let mut table = Table::new(usize::MAX);
        table.set(b"big", &[7; 10_000]).unwrap();
        table.set(b"small", b"xy").unwrap();
        let mut output = Output::default();
        output.tail.extend_from_slice(b"begin");
        output.value(table.get(b"big"));
        output.value(table.get(b"small"));
        // The value sent is the one that was asked for, not a later one.
        table.set(b"big", b"changed").unwrap();
        output.value(None);
        let expected = [
            &b"begin"[..],
            &10_000u64.to_le_bytes(),
            &[7; 10_000],
            &2u64.to_le_bytes(),
            b"xy",
            &0u64.to_le_bytes(),
        ]
        .concat();
        assert_eq!(output.unsent_bytes(), expected.len());
        let (mut received, mut turn) = (Vec::new(), 0);
        while !output.is_empty() {
            output
                .flush(|bytes| {
                    turn += 1;
                    if turn % 2 == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    let taken = bytes.len().min(7);
                    received.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                })
                .unwrap();
        }
        assert_eq!(received, expected);
        assert_eq!((output.unsent_bytes(), output.own_bytes()), (0, 0));
    }
}
