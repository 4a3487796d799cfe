//! Writing the frames that wait for one peer into its socket. Knows nothing of handshakes.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::transport::stream::{FlushResult, Outbox};
use crate::wire::frame::Header;

/// Writes until `outbox` is empty or the socket is full; calls `sent` for each frame that left.
pub(super) fn flush(
    outbox: &mut Outbox,
    socket: impl AsFd,
    gathered: &mut Vec<u8>,
    sent: impl FnMut(Header),
) -> Result<FlushResult, Errno> {
    outbox.flush(gathered, |pieces| write(&socket, pieces), sent)
}

/// Makes one system call. Returns how many bytes left: 0 if there was no room.
fn write(socket: impl AsFd, pieces: &[&[u8]]) -> Result<usize, Errno> {
    loop {
        let written = match pieces {
            [first, second] => {
                let pieces = [IoSlice::new(first), IoSlice::new(second)];
                let mut control = SendAncillaryBuffer::default();
                sendmsg(&socket, &pieces, &mut control, SendFlags::NOSIGNAL)
            }
            [first] => send(&socket, first, SendFlags::NOSIGNAL),
            _ => Ok(0),
        };
        match written {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            written => return written,
        }
    }
}
