//! A client's session with a store's server: requests that wait for their replies, and pipes to
//! other ranks. Pure; knows nothing of sockets, locks or clocks.

use std::task::{Poll, Waker};

use super::bell::Bells;
use super::pipes::Pipes;
use crate::sorted::SortedMap;
use crate::wire::channel::{RELAY_CHANNEL, STORE_CHANNEL, StoreFlag, StoreHeader};
use crate::wire::session::{Message, Packet, PacketEffect, Session, Violation};

/// Bytes of a request in one message.
const PART_BYTES: usize = 64 << 10;

/// One side of the conversation, from the first socket to the end of the session.
#[derive(Debug)]
pub(super) struct Link {
    session: Session,
    requests: SortedMap<u32, Request>,
    last_id: u32,
    pub(super) pipes: Pipes,
    /// Rung when a pipe may have something new, or room.
    pub(super) bells: Bells,
    end: Option<String>,
    /// Who waits for the session to open.
    opening: Vec<Waker>,
    /// What moves the packets.
    owner: Option<Waker>,
    /// Whom to wake when nobody looks at this any more.
    woken: Vec<Waker>,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The bytes of the replies.
    Replied(Vec<u8>),
    /// The wait was cancelled.
    Cancelled,
    /// ADD met a value that is not a number, or one to which so much cannot be added.
    NotANumber,
    /// The store is full.
    Full,
    /// The session ended first.
    Lost(String),
}

#[derive(Debug, Default)]
struct Request {
    reply: Vec<u8>,
    end: Option<StoreFlag>,
    waker: Option<Waker>,
    /// Nobody waits for the reply any more.
    abandoned: bool,
}

impl Link {
    pub(super) fn new(session: Session) -> Link {
        Link {
            session,
            requests: SortedMap::new(),
            last_id: 0,
            pipes: Pipes::default(),
            bells: Bells::default(),
            end: None,
            opening: Vec::new(),
            owner: None,
            woken: Vec::new(),
        }
    }

    /// The session, to attach and detach sockets, and to ask it things.
    pub(super) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Sends a request of these bytes; its number.
    pub(super) fn begin(&mut self, bytes: &[u8]) -> u32 {
        let id = loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.requests.contains_key(&self.last_id) {
                break self.last_id;
            }
        };
        self.requests.insert(id, Request::default());
        let mut parts = bytes.chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let flag = if parts.peek().is_some() { StoreFlag::More } else { StoreFlag::Last };
            self.session.send(StoreHeader { id, flag }.message(part));
        }
        self.wake_owner();
        id
    }

    /// The answer to request `id`, once; until then `waker` is woken when there is one.
    pub(super) fn poll(&mut self, id: u32, waker: &Waker) -> Poll<Answer> {
        let Some(request) = self.requests.get_mut(&id) else {
            return Poll::Ready(Answer::Lost("the request was given up".into()));
        };
        let Some(end) = request.end else {
            if let Some(why) = &self.end {
                return Poll::Ready(Answer::Lost(why.clone()));
            }
            request.waker = Some(waker.clone());
            return Poll::Pending;
        };
        let reply = std::mem::take(&mut request.reply);
        self.requests.remove(&id);
        Poll::Ready(match end {
            StoreFlag::Cancelled => Answer::Cancelled,
            StoreFlag::NotANumber => Answer::NotANumber,
            StoreFlag::Full => Answer::Full,
            StoreFlag::Last | StoreFlag::More => Answer::Replied(reply),
        })
    }

    /// Asks the server to end the wait of request `id`; the answer tells whether it did.
    pub(super) fn cancel(&mut self, id: u32) {
        if self.requests.get(&id).is_some_and(|request| request.end.is_none()) {
            let header = StoreHeader { id, flag: StoreFlag::Cancelled };
            self.session.send(header.message(&[]));
            self.wake_owner();
        }
    }

    /// Cancels request `id` and forgets it: nobody will ask for its answer.
    pub(super) fn abandon(&mut self, id: u32) {
        self.cancel(id);
        if let Some(request) = self.requests.get_mut(&id) {
            // The number must not be used again before the server is done with it.
            request.abandoned = true;
            if request.end.is_some() || self.end.is_some() {
                self.requests.remove(&id);
            }
        }
    }

    /// Whether the session stood, was lost before, or neither yet; `waker` is woken then. One that
    /// stood and is over says so to the first request, whether its end came before this or after.
    pub(super) fn poll_open(&mut self, waker: &Waker) -> Poll<Result<(), String>> {
        if self.session.number() != 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(why) = &self.end {
            return Poll::Ready(Err(why.clone()));
        }
        self.opening.push(waker.clone());
        Poll::Pending
    }

    /// Reads a packet that the socket brought.
    pub(super) fn receive(&mut self, packet: Vec<u8>) -> Result<(), Violation> {
        if self.session.receive(packet)? == PacketEffect::Welcome {
            self.woken.append(&mut self.opening);
        }
        while let Some(message) = self.session.take() {
            match message.channel {
                STORE_CHANNEL => self.reply(&message)?,
                RELAY_CHANNEL => {
                    let answer = self.pipes.arrived(message);
                    if let Some(answer) = answer.map_err(|_| Violation::Malformed)? {
                        self.session.send(answer);
                    }
                }
                _ => return Err(Violation::Malformed),
            }
        }
        self.bells.ring();
        Ok(())
    }

    /// The next packet for the socket.
    pub(super) fn next_packet(&mut self) -> Option<Packet> {
        let packet = self.session.next_packet();
        if packet.is_none() {
            // What was sent may have left to the last byte.
            self.bells.ring();
        }
        packet
    }

    /// Queues a message of the relay.
    pub(super) fn send(&mut self, message: Message) {
        self.session.send(message);
        self.wake_owner();
    }

    /// The session is over.
    pub(super) fn lose(&mut self, why: String) {
        if self.end.is_some() {
            return;
        }
        self.pipes.lose_all(&why);
        self.bells.ring();
        self.end = Some(why);
        self.woken.append(&mut self.opening);
        self.requests.retain(|_, request| {
            self.woken.extend(request.waker.take());
            !request.abandoned
        });
        self.wake_owner();
    }

    /// Why the session is over, if it is.
    pub(super) fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// Wakes `owner` whenever there may be a packet to send, or the session is over.
    pub(super) fn set_owner(&mut self, owner: &Waker) {
        if self.owner.as_ref().is_none_or(|present| !present.will_wake(owner)) {
            self.owner = Some(owner.clone());
        }
    }

    /// Whom to wake now.
    pub(super) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    fn wake_owner(&mut self) {
        self.woken.extend(self.owner.clone());
    }

    fn reply(&mut self, message: &Message) -> Result<(), Violation> {
        let (header, bytes) = StoreHeader::decode(message.body()).ok_or(Violation::Malformed)?;
        let Some(request) = self.requests.get_mut(&header.id).filter(|it| it.end.is_none()) else {
            return Err(Violation::Malformed);
        };
        if !request.abandoned {
            request.reply.extend_from_slice(bytes);
        }
        if header.flag != StoreFlag::More {
            request.end = Some(header.flag);
            self.woken.extend(request.waker.take());
            if request.abandoned {
                self.requests.remove(&header.id);
            }
        }
        Ok(())
    }
}
