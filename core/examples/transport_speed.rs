//! How fast the TCP transport is between two processes on this host, next to bare sockets:
//! `cargo run --release -p polyrank --all-features --example transport_speed`. Knows nothing of
//! collectives.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use polyrank::Region;
use polyrank::kernels::Stores;
use polyrank::transport::tcp::TcpTransport;
use polyrank::transport::wait::wait;
use polyrank::transport::{
    ArrivedPayload, Destination, LossReason, Payload, Rank, Sink, Transport,
};
use polyrank::wire::card::Card;
use polyrank::wire::frame::{Header, Kind};
use polyrank::wire::handshake::Token;

type Failure = Box<dyn std::error::Error>;

const ROUNDS: u64 = 20_000;
const SEGMENT_BYTES: usize = 256 << 10;
const STREAM_BYTES: usize = 32 << 20;
const STREAMS: u64 = 20;

fn main() -> Result<(), Failure> {
    let child = std::env::args().nth(1).is_some();
    if child { echo() } else { measure() }
}

fn measure() -> Result<(), Failure> {
    let raw = TcpListener::bind("127.0.0.1:0")?;
    let listener = TcpTransport::bind("127.0.0.1:0".parse()?)?;
    let card = listener.card(&[]);
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no pipe")?;
    send_bytes(&mut stdin, raw.local_addr()?.to_string().as_bytes())?;
    send_bytes(&mut stdin, &card.encode())?;
    let other = receive_bytes(child.stdout.as_mut().ok_or("no pipe")?)?;
    raw_side(raw.accept()?.0, true)?;
    let cards = [card, Card::decode(&other)?];
    let transport = TcpTransport::new(listener, 0, &cards, Token([1; 16]), 0)?;
    transport_side(transport, 0);
    child.wait()?;
    Ok(())
}

fn echo() -> Result<(), Failure> {
    let mut stdin = std::io::stdin();
    let address = String::from_utf8(receive_bytes(&mut stdin)?)?;
    let card = Card::decode(&receive_bytes(&mut stdin)?)?;
    let listener = TcpTransport::bind("127.0.0.1:0".parse()?)?;
    let own = listener.card(&[]);
    send_bytes(&mut std::io::stdout(), &own.encode())?;
    raw_side(TcpStream::connect(address)?, false)?;
    let transport = TcpTransport::new(listener, 1, &[card, own], Token([1; 16]), 0)?;
    transport_side(transport, 1);
    Ok(())
}

/// What bare sockets do: blocking, spinning, streaming.
fn raw_side(mut stream: TcpStream, asks: bool) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; 136];
    for spins in [false, true] {
        stream.set_nonblocking(spins)?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            if asks {
                stream.write_all(&bytes)?;
            }
            read_exact(&mut stream, &mut bytes)?;
            if !asks {
                stream.write_all(&bytes)?;
            }
        }
        if asks {
            println!("bare sockets, spinning: {spins}: {:.2} us one way", one_way_us(begin));
        }
    }
    stream.set_nonblocking(false)?;
    let mut memory = vec![0; STREAM_BYTES];
    let begin = Instant::now();
    for _ in 0..STREAMS {
        if asks {
            memory.chunks(SEGMENT_BYTES).try_for_each(|piece| stream.write_all(piece))?;
            stream.read_exact(&mut bytes[..1])?;
        } else {
            stream.read_exact(&mut memory)?;
            stream.write_all(&bytes[..1])?;
        }
    }
    if asks {
        println!("bare sockets, 32 MiB: {:.2} GB/s", gigabytes_per_second(begin));
    }
    Ok(())
}

fn transport_side(transport: impl Transport, rank: Rank) {
    let mut end = End { transport, inbox: Inbox::default() };
    let peer = 1 - rank;
    for spins in [false, true] {
        for _ in 0..100 {
            end.exchange(rank, peer, spins);
        }
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            end.exchange(rank, peer, spins);
        }
        if rank == 0 {
            println!("transport, spinning: {spins}: {:.2} us one way", one_way_us(begin));
        }
    }
    let memory = Region::zeroed(STREAM_BYTES);
    end.inbox.memory = Some(memory.clone());
    for (spins, label) in [(false, "waiting"), (true, "spinning")] {
        let begin = Instant::now();
        for _ in 0..STREAMS {
            if rank == 0 {
                for start in (0..STREAM_BYTES).step_by(SEGMENT_BYTES) {
                    let mut header = header(STREAM_BYTES);
                    header.offset = start as u64;
                    let part = memory.slice(start..start + SEGMENT_BYTES);
                    end.transport.send(peer, header, Payload::Region(part));
                }
                end.until(spins, |inbox| inbox.frames == 1);
            } else {
                end.until(spins, |inbox| inbox.bytes == STREAM_BYTES);
                end.transport.send(peer, header(0), Payload::Empty);
            }
        }
        if rank == 0 {
            println!("transport, {label}, 32 MiB: {:.2} GB/s", gigabytes_per_second(begin));
        }
    }
    // The side that answers last must have sent its answer before it leaves.
    end.until(false, |inbox| inbox.sent > 0 && inbox.unsent == 0);
    end.transport.close(true);
}

/// One rank's end.
struct End<T> {
    transport: T,
    inbox: Inbox,
}

/// Counts what comes.
#[derive(Default)]
struct Inbox {
    frames: usize,
    bytes: usize,
    sent: usize,
    unsent: usize,
    memory: Option<Region>,
}

impl<T: Transport> End<T> {
    fn exchange(&mut self, rank: Rank, peer: Rank, spins: bool) {
        let content = || Payload::Owned(vec![0; 64]);
        if rank == 0 {
            self.transport.send(peer, header(64), content());
        }
        self.until(spins, |inbox| inbox.frames == 1);
        if rank == 1 {
            self.transport.send(peer, header(64), content());
        }
    }

    fn until(&mut self, spins: bool, done: impl Fn(&Inbox) -> bool) {
        let mut interests = Vec::new();
        while !done(&self.inbox) {
            if !self.transport.advance(&mut self.inbox) && !spins {
                interests.clear();
                self.transport.interests(&mut interests);
                wait(&interests, None);
            }
        }
        self.inbox.frames = 0;
        self.inbox.bytes = 0;
    }
}

impl Sink for Inbox {
    fn announced(&mut self, _: Rank, header: &Header) -> Destination {
        let start = header.offset as usize;
        let range = start..start + header.payload_bytes as usize;
        match &self.memory {
            Some(memory) => Destination::Into(memory.slice(range), Stores::Cached),
            None => Destination::Borrowed,
        }
    }

    fn arrived(&mut self, _: Rank, header: &Header, _: ArrivedPayload<'_>) {
        self.frames += 1;
        self.bytes += header.payload_bytes as usize;
    }

    fn sent(&mut self, _: Rank, _: &Header) {
        self.sent += 1;
    }

    fn lost(&mut self, peer: Rank, why: LossReason) {
        eprintln!("rank {peer} is gone: {why:?}");
        std::process::exit(i32::from(why != LossReason::Goodbye));
    }
}

fn header(bytes: usize) -> Header {
    let mut header = Header::new(Kind::Data, 0);
    header.message_bytes = bytes as u64;
    header
}

fn one_way_us(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64 / 2.0
}

fn gigabytes_per_second(begin: Instant) -> f64 {
    (STREAM_BYTES as u64 * STREAMS) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

/// Reads all of `bytes`, spinning if the stream does not block.
fn read_exact(stream: &mut TcpStream, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut have_bytes = 0;
    while have_bytes < bytes.len() {
        match stream.read(&mut bytes[have_bytes..]) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read_bytes) => have_bytes += read_bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send_bytes(to: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

fn receive_bytes(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
