//! Sockets that Python code opened.

#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;

/// A listener on a duplicate of the socket `fd`, which stays the caller's.
pub(crate) fn listener_from_fd(fd: i32) -> io::Result<TcpListener> {
    if fd < 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the descriptor is borrowed for the next line only, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let listener = TcpListener::from(borrowed.try_clone_to_owned()?);
    // Fails if it is not a socket.
    listener.local_addr()?;
    Ok(listener)
}
