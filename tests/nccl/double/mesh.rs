//! How the ranks of a communicator come together, and a socket between each two of them. Knows no
//! operation.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of an id: a path, then zeros.
pub(crate) const ID_BYTES: usize = 128;

/// A socket to each of the others; none to oneself.
pub(crate) struct Mesh(Vec<Option<UnixStream>>);

fn fresh_path() -> PathBuf {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    std::env::temp_dir().join(format!("nccl-double-{process}-{number}"))
}

/// A new id, whose ranks meet in this process, as those of the real library do.
pub(crate) fn new_id() -> io::Result<[u8; ID_BYTES]> {
    let path = fresh_path();
    let listener = UnixListener::bind(&path)?;
    let mut id = [0; ID_BYTES];
    let text = path.as_os_str().as_encoded_bytes();
    id[..text.len()].copy_from_slice(text);
    std::thread::spawn(move || {
        let _ = introduce(&listener);
        let _ = std::fs::remove_file(path);
    });
    Ok(id)
}

/// Tells each rank where the others listen, when all have come.
fn introduce(listener: &UnixListener) -> io::Result<()> {
    let mut came: Vec<(u64, Vec<u8>, UnixStream)> = Vec::new();
    loop {
        let (mut stream, _) = listener.accept()?;
        let (rank, size) = (read_number(&mut stream)?, read_number(&mut stream)?);
        let path = read_text(&mut stream)?;
        came.push((rank, path, stream));
        if came.len() as u64 == size {
            break;
        }
    }
    came.sort_by_key(|(rank, ..)| *rank);
    let paths: Vec<Vec<u8>> = came.iter().map(|(_, path, _)| path.clone()).collect();
    for (_, _, stream) in &mut came {
        paths.iter().try_for_each(|path| write_text(stream, path))?;
    }
    Ok(())
}

impl Mesh {
    /// Meets the others of `id`.
    pub(crate) fn join(id: &[u8; ID_BYTES], rank: usize, size: usize) -> io::Result<Mesh> {
        let end = id.iter().position(|&byte| byte == 0).unwrap_or(ID_BYTES);
        let meeting = std::str::from_utf8(&id[..end]).map_err(io::Error::other)?;
        let path = fresh_path();
        let listener = UnixListener::bind(&path)?;
        let mut hub = UnixStream::connect(meeting)?;
        write_number(&mut hub, rank as u64)?;
        write_number(&mut hub, size as u64)?;
        write_text(&mut hub, path.as_os_str().as_encoded_bytes())?;
        let paths: Vec<_> = (0..size).map(|_| read_text(&mut hub)).collect::<io::Result<_>>()?;
        let mut peers: Vec<Option<UnixStream>> = (0..size).map(|_| None).collect();
        for (peer, path) in paths.iter().enumerate().take(rank) {
            let path = std::str::from_utf8(path).map_err(io::Error::other)?;
            let mut stream = UnixStream::connect(path)?;
            write_number(&mut stream, rank as u64)?;
            peers[peer] = Some(stream);
        }
        for _ in rank + 1..size {
            let (mut stream, _) = listener.accept()?;
            let peer = read_number(&mut stream)? as usize;
            peers[peer] = Some(stream);
        }
        let _ = std::fs::remove_file(path);
        Ok(Mesh(peers))
    }

    /// Whether there are no others.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.len() == 1
    }

    /// The socket to `peer`.
    pub(crate) fn peer(&self, peer: usize) -> io::Result<&UnixStream> {
        self.0[peer].as_ref().ok_or_else(|| io::Error::other("that is this rank"))
    }

    /// Ends all that is read and written.
    pub(crate) fn close(&self) {
        for stream in self.0.iter().flatten() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// What each rank contributes, in the order of ranks.
    pub(crate) fn gather(&self, rank: usize, ours: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for mut stream in self.0.iter().flatten() {
            write_text(&mut stream, ours)?;
        }
        let theirs = |peer: usize| match peer == rank {
            true => Ok(ours.to_vec()),
            false => read_text(&mut self.peer(peer)?),
        };
        (0..self.0.len()).map(theirs).collect()
    }
}

pub(crate) fn write_number(stream: &mut impl Write, number: u64) -> io::Result<()> {
    stream.write_all(&number.to_le_bytes())
}

pub(crate) fn read_number(stream: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn write_text(stream: &mut impl Write, text: &[u8]) -> io::Result<()> {
    write_number(stream, text.len() as u64)?;
    stream.write_all(text)
}

pub(crate) fn read_text(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut text = vec![0; read_number(stream)? as usize];
    stream.read_exact(&mut text)?;
    Ok(text)
}
