//! A connected TCP socket that does not block, as tungstenite wants it. Knows nothing of
//! WebSockets.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::wire::session::MAX_UNFINISHED_BYTES;

/// Most buffers full of bytes that are read and dropped when a socket is closed.
const DRAINED_BUFFERS: usize = 64;

/// The socket, and the bytes that were read from it before.
#[derive(Debug)]
pub(super) struct BufferedSocket {
    fd: Arc<OwnedFd>,
    /// Bytes that come before those of the socket.
    before: Vec<u8>,
    /// Bytes that were read; the caller that sees a message in them sets it back.
    pub(super) read_bytes: usize,
    /// Bytes that the system took.
    pub(super) written_bytes: u64,
    /// Whether the last attempt to write found no room.
    pub(super) is_full: bool,
    process_id: u32,
}

impl BufferedSocket {
    pub(super) fn new(fd: Arc<OwnedFd>, before: Vec<u8>) -> BufferedSocket {
        let process_id = std::process::id();
        BufferedSocket { fd, before, read_bytes: 0, written_bytes: 0, is_full: false, process_id }
    }

    /// Tells the other side that nothing more will be written.
    pub(super) fn end_writing(&mut self) {
        // An error means that the connection is gone already.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }
}

impl Read for BufferedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes > MAX_UNFINISHED_BYTES {
            let why = "too many bytes came without a message";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let bytes = self.take(buffer)?;
        self.read_bytes += bytes;
        Ok(bytes)
    }
}

impl BufferedSocket {
    /// As [`Read::read`], of bytes in which nobody looks for a message.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.before.is_empty() {
            let bytes = self.before.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.before[..bytes]);
            self.before.drain(..bytes);
            return Ok(bytes);
        }
        loop {
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                read => return Ok(read?.0),
            }
        }
    }
}

impl Write for BufferedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.is_full = error == Errno::AGAIN;
                    return Err(error.into());
                }
                Ok(sent_bytes) => {
                    self.written_bytes += sent_bytes as u64;
                    self.is_full = sent_bytes < bytes.len();
                    return Ok(sent_bytes);
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BufferedSocket {
    fn drop(&mut self) {
        if self.process_id != std::process::id() {
            // The parent process continues with this connection.
            return;
        }
        // Unread bytes would turn the end into a reset, which can overtake the last message.
        let mut buffer = [0_u8; 4096];
        for _ in 0..DRAINED_BUFFERS {
            match recv(&self.fd, &mut buffer[..], RecvFlags::empty()) {
                Ok((bytes, _)) if bytes > 0 => {}
                _ => break,
            }
        }
        // A child process, or a thread that waits for the socket, may hold it too; it must end all
        // the same.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}
