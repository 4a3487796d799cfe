//! Both directions of a client's socket, whatever kind it is. Knows nothing of what bytes mean.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::tcp;
#[cfg(target_os = "linux")]
use tokio::net::unix;

/// What a client sends.
#[derive(Debug)]
pub(super) enum From {
    /// From anywhere.
    Tcp(tcp::OwnedReadHalf),
    /// From this host.
    #[cfg(target_os = "linux")]
    Local(unix::OwnedReadHalf),
}

/// What a client is sent.
#[derive(Debug)]
pub(super) enum To {
    /// To anywhere.
    Tcp(tcp::OwnedWriteHalf),
    /// To this host.
    #[cfg(target_os = "linux")]
    Local(unix::OwnedWriteHalf),
}

impl From {
    /// Receives once.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => Pin::new(half).poll_read(cx, buffer),
            #[cfg(target_os = "linux")]
            Self::Local(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}

impl To {
    /// Whether the socket may take bytes.
    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(cx),
            #[cfg(target_os = "linux")]
            Self::Local(half) => half.as_ref().poll_write_ready(cx),
        }
    }

    /// Sends what the socket takes immediately.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            #[cfg(target_os = "linux")]
            Self::Local(half) => half.try_write(bytes),
        }
    }
}
