//! The Unix sockets of a host's ranks: the one at which a rank listens, and messages that carry a
//! file. Knows nothing of frames or lanes.
//!
//! Names are abstract: they are not paths, and disappear with the process, so nothing has to be
//! removed.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use super::memory::File;
use crate::fork;
use crate::generated::error::{Error, Result};
use crate::random;
use crate::wire::card::{Card, SharedMemory};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// The prefix of all names.
const PREFIX: &str = "polyrank-";

/// A socket that listens for the ranks of this host, before its rank knows them.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    key: SharedMemory,
}

/// What was received.
pub(super) enum SocketRead {
    /// This many bytes, and the file that came with them.
    Bytes(usize, Option<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    End,
}

impl Listener {
    /// Listens for ranks of this host, if its processes can share memory in this way.
    ///
    /// # Errors
    /// [`Error::Network`] with the system's error.
    pub fn bind() -> Result<Listener> {
        let name = random::bytes::<16>()?;
        let name = name.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let key = SharedMemory { name, user: rustix::process::geteuid().as_raw() };
        Self::bind_to(key).map_err(|error| Error::Network {
            message: format!("this system does not let processes share memory: {error}"),
        })
    }

    fn bind_to(key: SharedMemory) -> std::result::Result<Listener, Errno> {
        // An error is better found now, while another transport can still be chosen.
        File::new(4096)?.map()?;
        let socket = open()?;
        bind(&socket, &address(&key)?)?;
        listen(&socket, BACKLOG)?;
        Ok(Listener { socket, key })
    }

    /// Adds to `card` that its rank can be reached here.
    #[must_use]
    pub fn sign(&self, card: Card) -> Card {
        Card { shm: Some(self.key.clone()), ..card }
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> std::result::Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        fork::unshared(|| accept_with(&self.socket, flags))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to the rank with this key: immediately or not at all.
pub(super) fn reach(key: &SharedMemory) -> std::result::Result<OwnedFd, Errno> {
    let socket = open()?;
    connect(&socket, &address(key)?)?;
    Ok(socket)
}

/// Sends `bytes`, few enough to fit into a new connection, together with `file`.
pub(super) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    file: Option<&File>,
) -> std::result::Result<(), Errno> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::NOBUFS);
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::AGAIN),
        Err(error) => Err(error),
    }
}

/// Reads what is available, as far as it fits into `bytes`, and takes a file that came with it.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> SocketRead {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut place = [IoSliceMut::new(bytes)];
    match recvmsg(socket, &mut place, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::AGAIN | Errno::INTR) => SocketRead::Nothing,
        Ok(message) if message.bytes > 0 => {
            let file = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            // The system closes the files for which there was no room.
            SocketRead::Bytes(
                message.bytes,
                file.filter(|_| !message.flags.contains(ReturnFlags::CTRUNC)),
            )
        }
        Ok(_) | Err(_) => SocketRead::End,
    }
}

fn open() -> std::result::Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    fork::unshared(|| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None))
}

fn address(key: &SharedMemory) -> std::result::Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("{PREFIX}{}", key.name).as_bytes())
}
