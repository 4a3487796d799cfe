//! The requests of one session to the store's server: each is a client of its own, so that one
//! that waits holds up no other. Knows nothing of sessions or sockets.

use std::collections::{HashMap, VecDeque};
use std::io;

use crate::store::protocol::{Decoded, Decoder, MAX_KEY_LIST_BYTES, STOP_WAITING};
use crate::store::table::Refusal;
use crate::store::tcp::server::holders::Holder;
use crate::store::tcp::server::output::Output;
use crate::store::tcp::server::service::{Caller, Service};
use crate::store::tcp::server::waiters::ClientId;
use crate::wire::channel::{MAX_REQUESTS, STORE_CHANNEL, StoreFlag, StoreHeader};
use crate::wire::session::Message;

/// Most bytes of a reply in one message.
const PART_BYTES: usize = 64 << 10;
/// What a request costs beside its bytes.
const REQUEST_BYTES: usize = 512;
/// Most bytes of what waits to be run, or for keys: the longest request that makes sense, a
/// MULTI_GET after a WAIT for the same keys, and half of another.
pub(super) const MAX_WAITING_BYTES: usize = 3 * MAX_KEY_LIST_BYTES;

/// The requests of one session that are under way.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_id: HashMap<u32, Request>,
    /// Those that have something to say, each once.
    ready: VecDeque<u32>,
    unsent_bytes: usize,
    waiting_bytes: usize,
    held_bytes: usize,
}

#[derive(Debug)]
struct Request {
    client: ClientId,
    holder: Holder,
    decoder: Decoder,
    /// What arrived and is not run.
    pending: Vec<u8>,
    /// There is no use in looking at `pending` before it has this many bytes.
    needed: usize,
    /// All of the request is there.
    complete: bool,
    waiting: bool,
    output: Output,
    end: Option<StoreFlag>,
    is_ready: bool,
    /// What of the session's bytes is this request's.
    unsent_bytes: usize,
    waiting_bytes: usize,
    held_bytes: usize,
}

/// Why the session of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not a request.
    Malformed,
    /// There are more than [`MAX_REQUESTS`].
    TooMany,
    /// They keep more than [`MAX_WAITING_BYTES`] before they are run.
    TooLong,
}

/// Makes numbers of clients, and knows whose they are.
pub(super) trait Clients {
    /// A number for request `id` of the session in question.
    fn enter(&mut self, id: u32) -> ClientId;
    /// The session in question.
    fn session(&self) -> u64;
    /// The client is gone.
    fn leave(&mut self, client: ClientId);
}

impl Requests {
    /// A message of the store's channel.
    pub(super) fn arrived(
        &mut self,
        body: &[u8],
        service: &mut Service,
        clients: &mut impl Clients,
    ) -> Result<(), Fault> {
        let (StoreHeader { id, flag }, bytes) =
            StoreHeader::decode(body).ok_or(Fault::Malformed)?;
        if flag == StoreFlag::Cancelled {
            // The reply may have crossed the cancellation.
            if let Some(request) = self.by_id.get_mut(&id).filter(|it| it.end.is_none()) {
                request.finish(StoreFlag::Cancelled, service);
                self.account(id, service);
            }
            return Ok(());
        }
        if !matches!(flag, StoreFlag::More | StoreFlag::Last) {
            return Err(Fault::Malformed);
        }
        if !self.by_id.contains_key(&id) {
            if self.by_id.len() == MAX_REQUESTS {
                return Err(Fault::TooMany);
            }
            let holder = Holder::Session(clients.session());
            self.by_id.insert(id, Request::new(clients.enter(id), holder));
        }
        let request = self.by_id.get_mut(&id).filter(|it| !it.complete).ok_or(Fault::Malformed)?;
        request.pending.extend_from_slice(bytes);
        request.complete = flag == StoreFlag::Last;
        let run = request.run(service);
        self.account(id, service);
        if self.waiting_bytes > MAX_WAITING_BYTES { Err(Fault::TooLong) } else { run }
    }

    /// The wait of request `id` has ended: it continues.
    pub(super) fn woken(&mut self, id: u32, service: &mut Service) -> Result<(), Fault> {
        let Some(request) = self.by_id.get_mut(&id).filter(|it| it.waiting) else {
            return Ok(());
        };
        request.waiting = false;
        request.output.tail.push(STOP_WAITING);
        let run = request.run(service);
        self.account(id, service);
        run
    }

    /// The next part of a reply.
    pub(super) fn next_message(
        &mut self,
        service: &mut Service,
        clients: &mut impl Clients,
    ) -> Option<Message> {
        let id = self.ready.pop_front()?;
        let request = self.by_id.get_mut(&id)?;
        request.is_ready = false;
        let bytes = request.output.unsent_bytes().min(PART_BYTES);
        let mut body = Vec::with_capacity(bytes);
        // Copying to memory does not fail, and a full part is not an error.
        let _ = request.output.flush(|from| {
            let taken = from.len().min(PART_BYTES - body.len());
            body.extend_from_slice(&from[..taken]);
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        });
        let last = request.end.filter(|_| request.output.is_empty());
        let header = StoreHeader { id, flag: last.unwrap_or(StoreFlag::More) };
        let mut message = Message::with_capacity(STORE_CHANNEL, StoreHeader::BYTES + body.len());
        message.extend(&header.encode());
        message.extend(&body);
        // One that is answered must not stand in line again: it would keep those behind it back.
        match last {
            Some(_) => self.remove(id, clients),
            None => self.account(id, service),
        }
        Some(message)
    }

    /// Forgets everything: the session is over.
    pub(super) fn leave(&mut self, service: &mut Service, clients: &mut impl Clients) {
        for (_, request) in self.by_id.drain() {
            service.leave(request.client);
            clients.leave(request.client);
        }
        *self = Self::default();
    }

    /// Bytes of replies that are still to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Bytes of memory that the requests keep.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn remove(&mut self, id: u32, clients: &mut impl Clients) {
        if let Some(request) = self.by_id.remove(&id) {
            self.unsent_bytes -= request.unsent_bytes;
            self.waiting_bytes -= request.waiting_bytes;
            self.held_bytes -= request.held_bytes;
            clients.leave(request.client);
        }
    }

    /// Keeps account of a request that changed, and of whether it has something to say.
    fn account(&mut self, id: u32, service: &Service) {
        let Some(request) = self.by_id.get_mut(&id) else { return };
        let unsent = request.output.unsent_bytes();
        let waiting = request.pending.len() + service.waiting_bytes(request.client);
        let held = REQUEST_BYTES + waiting + request.output.own_bytes();
        self.unsent_bytes = self.unsent_bytes - request.unsent_bytes + unsent;
        self.waiting_bytes = self.waiting_bytes - request.waiting_bytes + waiting;
        self.held_bytes = self.held_bytes - request.held_bytes + held;
        (request.unsent_bytes, request.waiting_bytes) = (unsent, waiting);
        request.held_bytes = held;
        let has_output = request.end.is_some() || !request.output.is_empty();
        if has_output && !request.is_ready {
            request.is_ready = true;
            self.ready.push_back(id);
        }
    }
}

impl Request {
    fn new(client: ClientId, holder: Holder) -> Request {
        Request {
            client,
            holder,
            decoder: Decoder::after_validate(),
            pending: Vec::new(),
            needed: 0,
            complete: false,
            waiting: false,
            output: Output::default(),
            end: None,
            is_ready: false,
            unsent_bytes: 0,
            waiting_bytes: 0,
            held_bytes: 0,
        }
    }

    /// Runs what is there, up to a wait.
    fn run(&mut self, service: &mut Service) -> Result<(), Fault> {
        if !self.complete && self.pending.len() < self.needed {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while !self.waiting && self.end.is_none() {
            match self.decoder.next(&pending[at..]).map_err(|_| Fault::Malformed)? {
                Decoded::Incomplete { used, needed } => {
                    at += used;
                    self.needed = needed;
                    if !self.complete {
                        break;
                    }
                    if at < pending.len() || !self.decoder.is_between_requests() {
                        return Err(Fault::Malformed);
                    }
                    self.finish(StoreFlag::Last, service);
                }
                Decoded::Request { request, used } => {
                    at += used;
                    let caller = Caller { client: self.client, holder: self.holder };
                    let served = service.serve(caller, request, &mut self.output);
                    self.waiting = service.is_waiting(self.client);
                    match served {
                        Ok(()) => {}
                        Err(Refusal::NotANumber) => self.finish(StoreFlag::NotANumber, service),
                        Err(Refusal::Full) => self.finish(StoreFlag::Full, service),
                    }
                }
            }
        }
        if self.end.is_none() {
            self.pending = if at == 0 { pending } else { pending[at..].to_vec() };
        }
        Ok(())
    }

    fn finish(&mut self, end: StoreFlag, service: &mut Service) {
        self.end = Some(end);
        (self.waiting, self.pending) = (false, Vec::new());
        service.leave(self.client);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::store::protocol::{Encode, Kind};

    #[derive(Default)]
    struct Counter(ClientId);

    impl Clients for Counter {
        fn enter(&mut self, _id: u32) -> ClientId {
            self.0 += 1;
            self.0
        }

        fn session(&self) -> u64 {
            1
        }

        fn leave(&mut self, _client: ClientId) {}
    }

    #[test]
    fn answered_requests_do_not_keep_later_ones_back() {
        let mut service = Service::new(1 << 20, None);
        let (mut requests, mut clients) = (Requests::default(), Counter::default());
        let mut bytes = Vec::new();
        bytes.kind(Kind::QueueLen);
        bytes.blob(&[b"queue"]);
        let mut ask = |requests: &mut Requests, id: u32, service: &mut Service| {
            let message = StoreHeader { id, flag: StoreFlag::Last }.message(&bytes);
            requests.arrived(message.body(), service, &mut clients).unwrap();
        };
        let answered = |requests: &mut Requests, service: &mut Service| {
            let message = requests.next_message(service, &mut Counter::default())?;
            StoreHeader::decode(message.body()).map(|(header, _)| (header.id, header.flag))
        };
        for id in 1..=3 {
            ask(&mut requests, id, &mut service);
        }
        for id in 1..=3 {
            let expected = Some((id, StoreFlag::Last));
            assert_eq!(answered(&mut requests, &mut service), expected);
        }
        ask(&mut requests, 4, &mut service);
        let expected = Some((4, StoreFlag::Last));
        assert_eq!(answered(&mut requests, &mut service), expected);
        assert_eq!(answered(&mut requests, &mut service), None);
        assert_eq!((requests.unsent_bytes(), requests.held_bytes()), (0, 0));
    }
}
