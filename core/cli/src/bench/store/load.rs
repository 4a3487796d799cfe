//! Many clients in one thread, each with one request under way. Knows nothing of servers.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::requests::{HELLO, LOCAL_NAME, Operation, READY, Request, check, get};
use polyrank::store::raise_open_files;

/// How long a server may leave all clients without an answer, and how long it may take to let them
/// all in.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of a turn, the part that is not counted.
const WARM_UP_SHARE: f64 = 0.2;
/// Answers that are looked at together.
const MAX_EVENTS: usize = 512;
/// Files that the process has open besides the clients' sockets, and some to spare.
const OTHER_FILES: u64 = 64;
/// A limit of a socket cannot be zero.
const MIN_SOCKET_TIMEOUT: Duration = Duration::from_millis(1);

/// Where a server lets clients in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerAddress {
    /// A port of this host.
    Tcp(u16),
    /// A socket of this host that is not a file, by name.
    Local(Vec<u8>),
}

impl ServerAddress {
    fn open(&self) -> io::Result<Socket> {
        let (domain, address) = match self {
            Self::Tcp(port) => {
                (Domain::IPV4, SockAddr::from(SocketAddr::from(([127, 0, 0, 1], *port))))
            }
            Self::Local(name) => {
                let name = String::from_utf8_lossy(name);
                (Domain::UNIX, SockAddr::unix(format!("\0{name}"))?)
            }
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        match self {
            Self::Tcp(_) => {
                socket.connect_timeout(&address, PATIENCE)?;
                socket.set_tcp_nodelay(true)?;
                // Ports of connections that were closed cleanly are not free for a minute.
                socket.set_linger(Some(Duration::ZERO))?;
            }
            // This waits as long as the server's queue is full.
            Self::Local(_) => {
                socket.set_write_timeout(Some(PATIENCE))?;
                socket.connect(&address)?;
            }
        }
        Ok(socket)
    }

    /// The door of the same server that its clients on this host take, if it has one.
    pub(super) fn nearest(&self) -> io::Result<Option<ServerAddress>> {
        let mut socket = self.open()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(&[&HELLO[..], &check(LOCAL_NAME)].concat())?;
        let mut reply = [0; 5];
        socket.read_exact(&mut reply)?;
        if reply[4] != READY {
            return Ok(None);
        }
        socket.write_all(&get(LOCAL_NAME))?;
        let mut bytes = [0; 8];
        socket.read_exact(&mut bytes)?;
        let mut name = vec![0; usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(0).min(107)];
        socket.read_exact(&mut name)?;
        Ok(Some(ServerAddress::Local(name)))
    }
}

/// Clients that are connected.
pub(super) struct Clients {
    clients: Vec<Client>,
    epoll: OwnedFd,
}

struct Client {
    stream: Socket,
    request: Request,
    /// Bytes of the reply that are still to come.
    missing: usize,
    sent: Instant,
}

/// What one turn of one operation was like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) per_second: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
}

impl Clients {
    /// Connects so many clients, one after the other; how long it took.
    pub(super) fn connect(door: &ServerAddress, clients: usize) -> io::Result<(Clients, Duration)> {
        let needed = clients as u64 + OTHER_FILES;
        raise_open_files(needed).map_err(|limit| {
            let message = format!(
                "this process may have {limit} files open, {needed} are needed: raise ulimit -Hn"
            );
            io::Error::other(message)
        })?;
        let began = Instant::now();
        let deadline = began + PATIENCE;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::with_capacity(clients);
        for number in 0..clients {
            let mut stream = door.open()?;
            stream.write_all(&HELLO)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            all.push(Client { stream, request: Request::default(), missing: 4, sent: began });
        }
        for (number, client) in all.iter_mut().enumerate() {
            let late = |_| {
                let limit = PATIENCE.as_secs();
                let why = format!("it has let in {number} of {clients} clients within {limit} s");
                io::Error::new(io::ErrorKind::TimedOut, why)
            };
            let left = deadline.saturating_duration_since(Instant::now()).max(MIN_SOCKET_TIMEOUT);
            client.stream.set_read_timeout(Some(left))?;
            let mut echo = [0; 4];
            client.stream.read_exact(&mut echo).map_err(late)?;
            if echo[..] != HELLO[6..] {
                return Err(io::Error::other("the server sends clients away"));
            }
            client.stream.set_nonblocking(true)?;
        }
        Ok((Clients { clients: all, epoll }, began.elapsed()))
    }

    /// Every client asks, again and again, for so long.
    pub(super) fn run(
        &mut self,
        operation: Operation,
        value_bytes: usize,
        length: Duration,
    ) -> io::Result<Run> {
        let mut ready = Operation::Set.request(0, value_bytes);
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.request = operation.request(number, value_bytes);
            // The key is there before it is asked for.
            ready.bytes = Operation::Set.request(number, value_bytes).bytes;
            client.stream.set_nonblocking(false)?;
            client.stream.write_all(&ready.bytes)?;
            client.stream.read_exact(&mut [0; 4])?;
            client.stream.set_nonblocking(true)?;
        }
        let begin = Instant::now();
        let counted = begin + length.mul_f64(WARM_UP_SHARE);
        let end = counted + length;
        let mut course = LoadTurn { counted, end, times_ns: Vec::new(), operations: 0, waiting: 0 };
        for client in &mut self.clients {
            client.ask(begin)?;
            course.waiting += 1;
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(MAX_EVENTS);
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        while course.waiting > 0 {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience)) {
                // A process that was stopped continues.
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            if events.is_empty() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            for event in &events {
                let number = event.data.u64() as usize;
                let Some(client) = self.clients.get_mut(number) else { continue };
                client.hear(&mut course)?;
            }
        }
        Ok(course.result(length))
    }
}

/// One turn while it lasts.
struct LoadTurn {
    /// From here on answers count.
    counted: Instant,
    end: Instant,
    times_ns: Vec<u32>,
    operations: u64,
    waiting: usize,
}

impl LoadTurn {
    fn result(mut self, length: Duration) -> Run {
        self.times_ns.sort_unstable();
        let of = |share: f64| {
            let last = self.times_ns.len().saturating_sub(1);
            let at = (self.times_ns.len() as f64 * share) as usize;
            self.times_ns.get(at.min(last)).map_or(f64::NAN, |ns| f64::from(*ns) / 1e3)
        };
        Run {
            per_second: self.operations as f64 / length.as_secs_f64(),
            median_us: of(0.5),
            p99_us: of(0.99),
        }
    }
}

impl Client {
    fn ask(&mut self, now: Instant) -> io::Result<()> {
        self.missing = self.request.reply_bytes;
        self.sent = now;
        // With one request under way the socket's buffer is empty, and takes it whole.
        match self.stream.write(&self.request.bytes)? {
            sent if sent == self.request.bytes.len() => Ok(()),
            sent => {
                self.stream.set_nonblocking(false)?;
                self.stream.write_all(&self.request.bytes[sent..])?;
                self.stream.set_nonblocking(true)
            }
        }
    }

    /// Takes what has come, and asks again if that was the whole reply.
    fn hear(&mut self, course: &mut LoadTurn) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let wanted = self.missing.min(buffer.len());
        match self.stream.read(&mut buffer[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => self.missing -= bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.missing > 0 {
            return Ok(());
        }
        let now = Instant::now();
        if now >= course.counted && now < course.end {
            course.operations += self.request.operations;
            let took = (now - self.sent).as_nanos();
            course.times_ns.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
        if now < course.end {
            return self.ask(now);
        }
        course.waiting -= 1;
        Ok(())
    }
}
