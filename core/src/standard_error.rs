//! Lines on standard error, for what nobody may wait for. Knows nothing of what they say.

use std::io;

/// Writes a line at once, so that those of several processes do not mix.
///
/// It takes no lock: a child that is forked while another thread writes would wait for ever for
/// that of [`std::io::stderr`], which the thread holds, and which it has not in the child.
pub fn write_line(line: &str) {
    let line = format!("{line}\n");
    // Whoever has closed it does not want to know.
    let _ = write_all(line.as_bytes());
}

#[cfg(all(unix, feature = "tcp"))]
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let stream = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(&stream, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(all(unix, feature = "tcp")))]
fn write_all(bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut io::stderr(), bytes)
}
