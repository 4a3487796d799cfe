//! A connection that ends when too many bytes come without a message: fragments of messages may be
//! empty, so that their number has no bound. Knows nothing of messages.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::session::MAX_UNFINISHED_BYTES;

/// How many bytes came since it was set back to zero: by the reader that sees a message in them.
pub(in crate::store) type Unfinished = Rc<Cell<usize>>;

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(in crate::store) struct Measured<S> {
    stream: S,
    unfinished: Unfinished,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes came without a message")]
pub(in crate::store) struct TooMuch;

impl<S> Measured<S> {
    pub(in crate::store) fn new(stream: S) -> (Measured<S>, Unfinished) {
        let unfinished = Unfinished::default();
        (Measured { stream, unfinished: unfinished.clone() }, unfinished)
    }

    /// The connection, whose bytes are nobody's any more.
    pub(in crate::store) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Measured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = self.unfinished.get();
        if bytes > MAX_UNFINISHED_BYTES {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TooMuch)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.unfinished.set(bytes + buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Measured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
