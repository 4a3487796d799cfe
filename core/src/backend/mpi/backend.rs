//! The [`Backend`] of one group, and how its ranks come to a communicator. Knows when to ask which
//! room of this folder; each of them knows how.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::abi::Handle;
use super::collectives::Started;
use super::group::{Found, Group};
use super::held::{self, Held};
use super::messages;
use super::place::Place;
use super::running::{Receive, Running};
use super::small;
use super::start::{Detail, detail};
use super::world::{FAILED, World};
use crate::backend::{
    Attempt, Backend, Call, Capabilities, Flat, Issued, SmallCall, Transfer, Waiting,
};
use crate::clock::Instant;
use crate::executor::{Completion, Outcome};
use crate::store::Store;
use crate::wire::abort::Abort;
use crate::wire::fingerprint::digest;
use crate::wire::frame::Fingerprint;
use crate::{Error, Region, Result, rendezvous};

/// Bytes of memory that is only lent up to which it is copied, so that an operation that fails can
/// leave it to MPI.
pub(super) const COPIED: usize = 64 << 10;

/// One group of ranks over MPI.
struct MpiBackend<H: Handle> {
    world: &'static World<H>,
    group: Arc<Group<H>>,
    detail: Detail,
}

/// See [`super::connect`].
pub(super) async fn connect<H: Handle>(
    world: &'static World<H>,
    store: &Arc<dyn Store>,
    (rank, size): (u32, u32),
    name: &str,
    timeout: Duration,
) -> Result<Arc<dyn Backend>> {
    world.check_process()?;
    let detail = detail()?;
    if size > 1 {
        rendezvous::join_async(&**store, name, rank, size, timeout).await?;
    }
    let members = exchange_places(world, &**store, (rank, size), timeout).await?;
    let comm = communicator(world, &members, name)?;
    let group = Arc::new(Group::new((rank, size), name, comm, store.clone()));
    world.register(&group);
    Ok(Arc::new(MpiBackend { world, group, detail }))
}

/// The rank in the MPI job of each rank of the group.
async fn exchange_places<H: Handle>(
    world: &World<H>,
    store: &dyn Store,
    (rank, size): (u32, u32),
    timeout: Duration,
) -> Result<Vec<c_int>> {
    let ours = Place::here(world.rank, world.size, &world.job);
    let key = |rank: u32| format!("mpi/place/{rank}");
    store.set_async(&key(rank), ours.to_string().as_bytes()).await?;
    let keys: Vec<String> = (0..size).map(key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    store.wait_async(&keys, Some(timeout)).await?;
    let mut places: Vec<Place> = Vec::with_capacity(keys.len());
    for (other, told) in (0..).zip(store.multi_get_async(&keys).await?) {
        let told = String::from_utf8_lossy(&told).into_owned();
        let place = Place::read(&told).filter(|place| {
            let known = places.iter().any(|known| known.rank == place.rank);
            (place.size, &place.job) == (ours.size, &ours.job) && !known
        });
        places.push(place.ok_or_else(|| Error::Rendezvous {
            message: format!(
                "the ranks of a group over MPI must be different ranks of one MPI job: rank {rank} \
                 is {ours} (rank, size, cores, host, job), and rank {other} is {told}. Were they \
                 started by one mpirun?"
            ),
        })?);
    }
    if size == world.size {
        world.progress.set_crowded(ours.is_crowded(&places));
    }
    let members = places.iter().map(|place| place.rank).collect();
    Ok(members)
}

/// A communicator of `members`, which all call this together.
fn communicator<H: Handle>(world: &World<H>, members: &[c_int], name: &str) -> Result<H> {
    let (functions, constants) = (&world.functions, &world.constants);
    let [mut all, mut group, mut comm] = [H::from_bits(0); 3];
    // The same on all members, and another one for groups that are made at the same time.
    let words: Vec<u64> = name.bytes().map(u64::from).collect();
    let tag = (digest(&words) % 32_767) as c_int;
    // SAFETY: MPI is initialised; the list is as long as said; each handle is an output of one call
    // before it is an argument of another.
    unsafe {
        world
            .check((functions.comm_group)(constants.comm_world, &raw mut all), "MPI_Comm_group")?;
        let count = members.len() as c_int;
        let code = (functions.group_incl)(all, count, members.as_ptr(), &raw mut group);
        world.check(code, "MPI_Group_incl")?;
        let code = (functions.comm_create_group)(constants.comm_world, group, tag, &raw mut comm);
        world.check(code, "MPI_Comm_create_group")?;
        let code = (functions.comm_set_errhandler)(comm, constants.errors_return);
        world.check(code, "MPI_Comm_set_errhandler")?;
        (functions.group_free)(&raw mut group);
        (functions.group_free)(&raw mut all);
    }
    Ok(comm)
}

impl<H: Handle> MpiBackend<H> {
    fn fingerprint(call: &Call) -> Fingerprint {
        Fingerprint {
            collective: call.collective as u8,
            dtype: call.dtype as u8,
            reduce_op: call.reduce_op.code(),
            algorithm: 0,
            root: call.root,
            elements: call.elements,
            detail: call.detail,
        }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.world.check_process()?;
        self.group.check(name)
    }

    /// Whether the ranks compare what they are about to run before MPI is given it.
    fn compares_first(&self) -> bool {
        self.detail == Detail::Full && self.group.size > 1
    }

    fn issued(&self, sequence: u64, completion: Arc<Completion>, waiting: Waiting) -> Issued {
        self.world.progress.leave_to(self.world, waiting, completion.is_done());
        Issued { sequence, completion }
    }

    fn check_tag(&self, tag: u32) -> Result<()> {
        let most = self.world.max_tag;
        if tag <= most {
            return Ok(());
        }
        let message = format!("a tag must be in 0..={most} with this MPI library, got {tag}");
        Err(Error::InvalidArgument { message })
    }

    /// Leaves the group: what is in flight after `limit` fails on all ranks.
    fn leave(&self, limit: Duration) {
        if self.world.is_inherited() || self.world.is_finalised() {
            return;
        }
        let progress = &self.world.progress;
        if !progress.wait_idle(self.world, &self.group, Instant::now() + limit) {
            let why = "the process group was destroyed".to_owned();
            let abort = Abort::User { rank: self.group.rank, why };
            progress.break_group(&self.group, abort, Found::Here);
        }
        let in_order = self.group.leave();
        if !in_order || self.group.in_library.load(Ordering::SeqCst) > 0 {
            return;
        }
        let mut comm = self.group.comm;
        // SAFETY: nothing is under way on it, and nothing can be issued any more; all ranks leave.
        let code = unsafe { (self.world.functions.comm_free)(&raw mut comm) };
        if let Err(error) = self.world.check(code, "MPI_Comm_free") {
            tracing::debug!(%error, "the communicator of the group is not freed");
        }
    }
}

impl<H: Handle> Backend for MpiBackend<H> {
    fn name(&self) -> &str {
        "mpi"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { highest_tag: self.world.max_tag, ..super::declared(self.detail) }
    }

    fn collective(&self, mut call: Call, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        self.check(call.name)?;
        let fingerprint = Self::fingerprint(&call);
        own(&mut call);
        let (sequence, completion) = self.world.progress.change(|active, ended| {
            // Again, where nobody else can break it: what is added to a broken group never ends.
            self.group.check(call.name)?;
            let sequence = self.group.next_collective(fingerprint);
            let group = self.group.clone();
            if self.compares_first() {
                let (since, completion) = (Instant::now(), Arc::new(Completion::new()));
                let told = completion.clone();
                active.hold(Held {
                    group,
                    call,
                    sequence,
                    fingerprint,
                    since,
                    deadline,
                    completion,
                });
                return Ok::<_, Error>((sequence, told));
            }
            let name = call.name;
            let Started { requests, kept, finish } = held::start(self.world, &group, call)?;
            let running = Running::new(group, (name, sequence), requests, kept, deadline);
            let completion = Arc::new(Completion::new());
            let told = Some(completion.clone());
            let running = Running { is_collective: true, finish, completion: told, ..running };
            active.add(self.world, running, ended);
            Ok((sequence, completion))
        })?;
        if self.compares_first() {
            held::attend(self.world, &self.group);
        }
        Ok(self.issued(sequence, completion, waiting))
    }

    fn try_small(&self, call: &SmallCall, memory: &mut Flat<'_>) -> Attempt<'_> {
        let can_issue = self.world.check_process().is_ok() && !self.group.is_broken();
        if !can_issue || self.compares_first() {
            return Attempt::Declined;
        }
        let fingerprint = Fingerprint {
            collective: call.collective as u8,
            dtype: call.dtype as u8,
            reduce_op: call.reduce_op.code(),
            algorithm: 0,
            root: call.root,
            elements: call.elements,
            detail: call.detail,
        };
        small::attempt(self.world, &self.group, fingerprint, call, memory)
    }

    fn send(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        self.check("send")?;
        self.check_tag(transfer.tag)?;
        let Transfer { peer, tag, mut memory, finish } = transfer;
        let Some(peer) = peer else {
            let message = "send: a message needs a receiver".to_owned();
            return Err(Error::InvalidArgument { message });
        };
        if memory.is_borrowed() && memory.len() <= COPIED {
            memory = copied(&memory);
        }
        let (sequence, completion) = self.world.progress.change(|active, ended| {
            self.group.check("send")?;
            let sequence = self.group.next_message();
            let (requests, kept) = messages::send(self.world, &self.group, (peer, tag), memory)?;
            let group = self.group.clone();
            let running = Running::new(group, ("send", sequence), requests, kept, deadline);
            let completion = Arc::new(Completion::new());
            let running = Running { finish, completion: Some(completion.clone()), ..running };
            active.add(self.world, running, ended);
            Ok::<_, Error>((sequence, completion))
        })?;
        Ok(self.issued(sequence, completion, waiting))
    }

    fn recv(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        self.check("recv")?;
        self.check_tag(transfer.tag)?;
        let Transfer { peer, tag, memory, finish } = transfer;
        let sequence = self.group.next_message();
        let completion = Arc::new(Completion::new());
        let receive = Receive {
            group: self.group.clone(),
            sequence,
            peer,
            tag,
            memory,
            since: Instant::now(),
            deadline,
            finish,
            completion: completion.clone(),
        };
        self.world.progress.change(|active, ended| {
            self.group.check("recv")?;
            active.add_receive(self.world, receive, ended);
            Ok::<_, Error>(())
        })?;
        Ok(self.issued(sequence, completion, waiting))
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        if completion.is_done() {
            return true;
        }
        if let Err(error) = self.world.check_process() {
            completion.settle(Err(error));
            return true;
        }
        let glance = until.is_some_and(|until| until <= Instant::now());
        let done = self.world.progress.wait(self.world, completion, until);
        // Who waits in slices stalls all the same. A look does not wait for the store.
        if !done && !glance {
            self.world.progress.inspect(Instant::now());
        }
        done || completion.is_done()
    }

    fn is_broken(&self) -> bool {
        self.group.is_broken()
    }

    fn abort(&self, why: &str) {
        if self.world.is_inherited() {
            return;
        }
        let abort = Abort::User { rank: self.group.rank, why: why.into() };
        self.world.progress.break_group(&self.group, abort, Found::Here);
    }

    fn shutdown(&self, limit: Duration) {
        self.leave(limit);
    }

    fn shutdown_async(&self, limit: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.leave(limit) })
    }
}

impl<H: Handle> Drop for MpiBackend<H> {
    fn drop(&mut self) {
        self.leave(Duration::ZERO);
        if self.group.in_library.load(Ordering::SeqCst) > 0 {
            FAILED.store(true, Ordering::SeqCst);
        }
    }
}

/// Makes small memory that is only lent memory of our own.
fn own(call: &mut Call) {
    let regions = || call.input.iter().chain(&call.output);
    let borrowed = regions().filter(|region| region.is_borrowed());
    let bytes: usize = borrowed.map(Region::len).sum();
    if bytes == 0 || bytes > COPIED {
        return;
    }
    let mut back: Vec<(Region, Region)> = Vec::new();
    for region in &mut call.output {
        if region.is_borrowed() {
            let copy = copied(region);
            back.push((std::mem::replace(region, copy.clone()), copy));
        }
    }
    for region in &mut call.input {
        if region.is_borrowed() {
            // An input that is an output as well is so in the copy.
            let known = back.iter().find(|(lent, _)| lent.same_memory(region));
            *region = known.map_or_else(|| copied(region), |(_, copy)| copy.clone());
        }
    }
    let finish = call.finish.take();
    let copy_back: Outcome = Box::new(move || {
        for (lent, copy) in &back {
            lent.write_from(copy, <[u8]>::copy_from_slice);
        }
        if let Some(finish) = finish {
            finish();
        }
    });
    call.finish = Some(copy_back);
}

fn copied(region: &Region) -> Region {
    Region::from_vec(region.read(<[u8]>::to_vec))
}
