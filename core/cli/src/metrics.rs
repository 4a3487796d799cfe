//! Statistics of the ranks of this host, served as OpenMetrics over HTTP. Ranks write theirs to a
//! folder, again and again; what lies there is served, so that a rank that hangs or was killed
//! keeps nobody waiting. Knows nothing of how they are counted.

use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyrank::recorder::snapshot::read_all;
use polyrank::recorder::{CONTENT_TYPE, open_metrics};

use crate::launch::report::say;
use crate::random;

/// The page.
const PATH: &str = "/metrics";
/// How long a client may take to ask, and to take an answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const MAX_REQUEST: usize = 16 << 10;
/// Most clients at a time; more are sent away.
const MAX_CLIENTS: usize = 16;
/// How long nobody is let in when that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server, until it is dropped.
pub(crate) struct MetricsServer {
    folder: PathBuf,
}

impl MetricsServer {
    /// Serves at `address`, and says where.
    ///
    /// # Errors
    /// What cannot be had, in words.
    pub(crate) fn start(address: SocketAddr) -> Result<MetricsServer, String> {
        let failed = |error: std::io::Error| format!("cannot serve metrics at {address}: {error}");
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let name = random::bytes::<8>().map_err(|error| error.to_string())?;
        let name = u64::from_le_bytes(name);
        let folder = std::env::temp_dir().join(format!("polyrank-metrics-{name:016x}"));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| format!("no folder for metrics: {}: {error}", folder.display()))?;
        let server = MetricsServer { folder };
        say(&format!("metrics are at http://{bound}{PATH}"));
        let folder = server.folder.clone();
        thread::spawn(move || serve(&listener, &folder));
        Ok(server)
    }

    /// Where ranks write.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets what ranks have written that were started before.
    pub(crate) fn forget(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            // One that is gone is forgotten.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(listener: &TcpListener, folder: &Path) {
    let clients = Arc::new(());
    for client in listener.incoming() {
        let Ok(client) = client else {
            // There are no descriptors, or no memory: others need the processor meanwhile.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let (folder, present) = (folder.to_owned(), clients.clone());
        if Arc::strong_count(&present) > MAX_CLIENTS + 1 {
            continue;
        }
        // A client that goes away is no concern of the job's, nor one for which there is no thread.
        drop(thread::Builder::new().spawn(move || {
            drop(answer(&client, &folder));
            drop(present);
        }));
    }
}

/// The first line of a request. What follows is read, too, so that the connection does not end with
/// an error.
fn read_request(client: &TcpStream) -> std::io::Result<String> {
    let until = Instant::now() + CLIENT_LIMIT;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let left = until.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut client = client;
        match client.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let first = request.split(|byte| *byte == b'\r' || *byte == b'\n').next();
    Ok(String::from_utf8_lossy(first.unwrap_or_default()).into_owned())
}

/// The path of what is asked for: `/metrics` of `/metrics?name=x`, and of `http://host/metrics`.
fn path_of(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |start| &rest[start..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

fn answer(client: &TcpStream, folder: &Path) -> std::io::Result<()> {
    client.set_write_timeout(Some(CLIENT_LIMIT))?;
    let request = read_request(client)?;
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path_of(target);
    let (status, kind, text) = match (method, path) {
        ("GET" | "HEAD", PATH) => ("200 OK", CONTENT_TYPE, page(folder)),
        ("GET" | "HEAD", _) => {
            ("404 Not Found", "text/plain", format!("there is nothing here but {PATH}\n"))
        }
        _ => ("405 Method Not Allowed", "text/plain", "GET is all that is answered\n".to_owned()),
    };
    let body = if method == "HEAD" { "" } else { &text };
    let length = text.len();
    let mut client = client;
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )?;
    client.flush()
}

fn page(folder: &Path) -> String {
    // Without the folder the job is over.
    let snapshots = read_all(folder).unwrap_or_default();
    let up = snapshots.iter().flat_map(|it| it.ranks.iter().map(|rank| (*rank, it.is_recent)));
    let mut up: Vec<(u32, bool)> = up.collect();
    // A rank may have several processes; that of a child says nothing of the rank.
    up.sort_by_key(|(rank, is_recent)| (*rank, !is_recent));
    up.dedup_by_key(|(rank, _)| *rank);
    let groups: Vec<_> = snapshots.into_iter().flat_map(|it| it.groups).collect();
    open_metrics(&groups, &up)
}
