//! The [`Backend`] of one group, and how its ranks form a communicator. Knows when to ask which
//! module of this folder; each of them knows how.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::abi::Handle;
use super::collectives;
use super::comparison;
use super::group::Group;
use super::host_cores::HostCores;
use super::job::{FAILED, GUARANTEED_TAGS};
use super::messages;
use super::queued_collective::{self, QueuedCollective};
use super::running_operation::{PendingReceive, RunningOperation};
use super::small::{self, MAX_COPIED_BYTES};
use super::world::World;
use crate::backend::group_status::{FoundBy, GroupStatus};
use crate::backend::{
    Attempt, Backend, Call, Capabilities, IssueOptions, IssuedOperation, Leaving, Mismatches,
    OpenComparison, SmallCall, Transfer,
};
use crate::blocking::unblock;
use crate::clock::{self, Instant};
use crate::completion::{Completion, Outcome, WaitIntent};
use crate::debug_level::{DebugLevel, get_debug_level};
use crate::generated::collective::Collective;
use crate::generated::error::{Error, Result};
use crate::rendezvous;
use crate::store::Store;
use crate::tensor::{LentMemory, Region};
use crate::wire::abort::Abort;
use crate::wire::fingerprint::digest;

/// One group of ranks over MPI.
struct MpiBackend<H: Handle> {
    world: &'static World<H>,
    group: Arc<Group<H>>,
    debug_level: DebugLevel,
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
    let debug_level = get_debug_level()?;
    let until = clock::after(if timeout.is_zero() { Duration::MAX } else { timeout });
    let ours = HostCores::here(world.job.rank, world.job.size, &world.job.name);
    store.set_async(&host_cores_key(rank), ours.to_string().as_bytes()).await?;
    // All ranks learn alike whether all are there: nobody waits in MPI for one that is not.
    if size > 1 {
        rendezvous::join_async(&**store, name, rank, size, timeout).await?;
    }
    let members = read_host_cores(world, &**store, &ours, (rank, size)).await?;
    let status = GroupStatus::join("mpi", name, (rank, size), store)?;
    let named = name.to_owned();
    let comm = unblock(move || communicator(world, members, &named, until)).await?;
    let group = Arc::new(Group::new((rank, size), comm, status));
    world.register(&group);
    Ok(Arc::new(MpiBackend { world, group, debug_level }))
}

fn host_cores_key(rank: u32) -> String {
    format!("mpi/place/{rank}")
}

/// The rank in the MPI job of each rank of the group. All have published it.
async fn read_host_cores<H: Handle>(
    world: &World<H>,
    store: &dyn Store,
    ours: &HostCores,
    (rank, size): (u32, u32),
) -> Result<Vec<c_int>> {
    let keys: Vec<String> = (0..size).map(host_cores_key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut ranks: Vec<HostCores> = Vec::with_capacity(keys.len());
    for (other, told) in (0..).zip(store.multi_get_async(&keys).await?) {
        let told = String::from_utf8_lossy(&told).into_owned();
        let read = HostCores::read(&told).filter(|read| {
            let known = ranks.iter().any(|known| known.rank == read.rank);
            (read.size, &read.job) == (ours.size, &ours.job) && !known
        });
        ranks.push(read.ok_or_else(|| Error::Rendezvous {
            message: format!(
                "the ranks of a group over MPI must be different ranks of one MPI job: rank {rank} \
                 is {ours} (rank, size, cores, host, job), and rank {other} is {told}. Were they \
                 started by one mpirun?"
            ),
        })?);
    }
    if size == world.job.size {
        world.progress.set_crowded(ours.is_crowded(&ranks));
    }
    let members = ranks.iter().map(|member| member.rank).collect();
    Ok(members)
}

/// A communicator of `members`, which all call this together. MPI has no call for that with a
/// limit, nor one that does not block: another thread waits.
///
/// # Errors
/// What MPI says of it; [`Error::RendezvousTimeout`] if it is not there by `until`.
fn communicator<H: Handle>(
    world: &'static World<H>,
    members: Vec<c_int>,
    name: &str,
    until: Instant,
) -> Result<H> {
    if members.len() < 2 {
        return create(world, &members, name);
    }
    let (told, made) = mpsc::channel();
    let (count, named) = (members.len(), name.to_owned());
    let begin = move || {
        // Fails if the receiver has given up.
        let _ = told.send(create(world, &members, &named));
    };
    let thread = std::thread::Builder::new().name("polyrank-mpi-join".to_owned()).spawn(begin);
    thread.map_err(|error| Error::Rendezvous {
        message: format!(
            "cannot start a thread that creates the communicator of group '{name}': {error}"
        ),
    })?;
    let limit = until.saturating_duration_since(Instant::now());
    made.recv_timeout(limit).unwrap_or_else(|_| {
        // A thread stays in MPI.
        FAILED.store(true, Ordering::SeqCst);
        let message = format!(
            "MPI made no communicator for group '{name}' within its timeout: all {count} ranks \
             came to the store, and one of them ended or failed before it came to \
             MPI_Comm_create_group"
        );
        Err(rendezvous::timed_out(world.job.rank, Vec::new(), message))
    })
}

fn create<H: Handle>(world: &World<H>, members: &[c_int], name: &str) -> Result<H> {
    let (functions, constants) = (&world.job.functions, &world.job.constants);
    let [mut all, mut group, mut comm] = [H::from_bits(0); 3];
    // The same on all members, and another one for groups that are made at the same time.
    let words: Vec<u64> = name.bytes().map(u64::from).collect();
    let tag = (digest(&words) % 32_767) as c_int;
    // SAFETY: MPI is initialised; the list is as long as said; each handle is an output of one call
    // before it is an argument of another.
    unsafe {
        world
            .job
            .check((functions.comm_group)(constants.comm_world, &raw mut all), "MPI_Comm_group")?;
        let count = members.len() as c_int;
        let code = (functions.group_incl)(all, count, members.as_ptr(), &raw mut group);
        world.job.check(code, "MPI_Group_incl")?;
        let code = (functions.comm_create_group)(constants.comm_world, group, tag, &raw mut comm);
        world.job.check(code, "MPI_Comm_create_group")?;
        let code = (functions.comm_set_errhandler)(comm, constants.errors_return);
        world.job.check(code, "MPI_Comm_set_errhandler")?;
        (functions.group_free)(&raw mut group);
        (functions.group_free)(&raw mut all);
    }
    Ok(comm)
}

impl<H: Handle> MpiBackend<H> {
    fn check(&self, name: &str) -> Result<()> {
        self.world.check_process()?;
        self.group.status.check(name)
    }

    /// Whether the ranks compare what they are about to run before MPI is given it.
    fn compares_first(&self) -> bool {
        self.debug_level == DebugLevel::Detail && self.group.size > 1
    }

    fn issued(
        &self,
        sequence: u64,
        completion: Arc<Completion>,
        waiting: WaitIntent,
    ) -> IssuedOperation {
        self.world.progress.leave_to(&self.world.job, waiting, completion.is_done());
        IssuedOperation { sequence, completion }
    }

    fn check_tag(&self, tag: u32) -> Result<()> {
        let most = self.world.job.max_tag;
        if tag <= most {
            return Ok(());
        }
        let message = format!("a tag must be from 0 to {most} with this MPI library, got {tag}");
        Err(Error::InvalidArgument { message })
    }

    /// Leaves the group: what is in flight after the limit fails on all ranks.
    ///
    /// # Errors
    /// That ranks disagree on what they ran, if that was not known.
    fn leave(&self, leaving: Leaving) -> Result<()> {
        if self.world.is_inherited() || self.world.is_finalised() {
            return Ok(());
        }
        let (progress, group) = (&self.world.progress, &self.group);
        progress.wait_idle(&self.world.job, group, Instant::now() + leaving.limit);
        let breaks = |abort, found_by| progress.break_group(group, abort, found_by);
        let advance = || {
            progress.wait(&self.world.job, &Completion::new(), Some(Instant::now()));
        };
        let compared = group.status.compare_before_leaving(leaving, &breaks, &advance);
        let why = "the process group was destroyed".to_owned();
        let abort = Abort::User { rank: group.rank, why };
        let in_order = progress.change(|active, ended| active.leave(group, abort, ended));
        group.status.leave();
        if !in_order || group.in_library.load(Ordering::SeqCst) > 0 {
            return compared;
        }
        let mut comm = self.group.comm;
        // SAFETY: nothing is under way on it, and nothing can be issued any more; all ranks leave.
        let code = unsafe { (self.world.job.functions.comm_free)(&raw mut comm) };
        if let Err(error) = self.world.job.check(code, "MPI_Comm_free") {
            tracing::debug!(%error, "the communicator of the group is not freed");
        }
        compared
    }
}

impl<H: Handle> Backend for MpiBackend<H> {
    fn name(&self) -> &str {
        "mpi"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { highest_tag: self.world.job.max_tag, ..declared(self.debug_level) }
    }

    fn collective(&self, mut call: Call, options: IssueOptions) -> Result<IssuedOperation> {
        self.check(call.name)?;
        let fingerprint = call.fingerprint(0);
        own(&mut call);
        let (sequence, completion) = self.world.progress.change(|active, ended| {
            // Again, where nobody else can break it: what is added to a broken group is not begun.
            self.group.status.check(call.name)?;
            let (name, group) = (call.name, self.group.clone());
            let completion = Arc::new(Completion::new());
            let told = completion.clone();
            if self.compares_first() {
                let sequence = group.status.next_collective(fingerprint);
                let since = Instant::now();
                active.hold(QueuedCollective {
                    group,
                    call,
                    sequence,
                    fingerprint,
                    since,
                    deadline: options.deadline,
                    completion,
                });
                return Ok::<_, Error>((sequence, told));
            }
            let started = queued_collective::start(&self.world.job, &group, call)
                .inspect_err(|error| active.not_started(&group, error, ended))?;
            // What is not begun has no number: the other ranks count as this one does.
            let sequence = group.status.next_collective(fingerprint);
            let running = started.running(group, (name, sequence), options.deadline, completion);
            active.add(&self.world.job, running, ended);
            Ok((sequence, told))
        })?;
        if self.compares_first() {
            comparison::start_comparing(self.world, &self.group);
        }
        Ok(self.issued(sequence, completion, options.waiting))
    }

    fn try_small(
        &self,
        call: &SmallCall,
        memory: &mut LentMemory<'_>,
        _: &mut dyn FnMut(u64),
    ) -> Attempt<'_> {
        let can_issue = self.world.check_process().is_ok() && !self.group.status.is_broken();
        if !can_issue || self.compares_first() {
            return Attempt::Declined;
        }
        let fingerprint = call.fingerprint(0);
        small::attempt(self.world, &self.group, fingerprint, call, memory)
    }

    fn send(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.check("send")?;
        self.check_tag(transfer.tag)?;
        let Transfer { peer, tag, mut memory, finish, .. } = transfer;
        let Some(peer) = peer else {
            let message = "send: a message needs a receiver".to_owned();
            return Err(Error::InvalidArgument { message });
        };
        if memory.is_borrowed() && memory.len() <= MAX_COPIED_BYTES {
            memory = copied(&memory);
        }
        let (sequence, completion) = self.world.progress.change(|active, ended| {
            let group = self.group.clone();
            group.status.check("send")?;
            let (requests, kept) = messages::send(&self.world.job, &group, (peer, tag), memory)
                .inspect_err(|error| active.not_started(&group, error, ended))?;
            let sequence = group.status.next_message();
            let running =
                RunningOperation::new(group, ("send", sequence), requests, kept, options.deadline);
            let completion = Arc::new(Completion::new());
            let running =
                RunningOperation { finish, completion: Some(completion.clone()), ..running };
            active.add(&self.world.job, running, ended);
            Ok::<_, Error>((sequence, completion))
        })?;
        Ok(self.issued(sequence, completion, options.waiting))
    }

    fn recv(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.check("recv")?;
        self.check_tag(transfer.tag)?;
        let Transfer { peer, tag, memory, finish, .. } = transfer;
        let completion = Arc::new(Completion::new());
        let sequence = self.world.progress.change(|active, ended| {
            self.group.status.check("recv")?;
            let sequence = self.group.status.next_message();
            let receive = PendingReceive {
                group: self.group.clone(),
                sequence,
                peer,
                tag,
                memory,
                since: Instant::now(),
                deadline: options.deadline,
                finish,
                completion: completion.clone(),
            };
            active.add_receive(&self.world.job, receive, ended);
            Ok::<_, Error>(sequence)
        })?;
        Ok(self.issued(sequence, completion, options.waiting))
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        if completion.is_done() {
            return true;
        }
        if let Err(error) = self.world.check_process() {
            completion.complete(Err(error));
            return true;
        }
        let glance = until.is_some_and(|until| until <= Instant::now());
        let done = self.world.progress.wait(&self.world.job, completion, until);
        // Who waits in slices stalls all the same. A look does not wait for the store.
        if !done && !glance {
            self.world.progress.inspect(Instant::now());
        }
        done || completion.is_done()
    }

    fn is_broken(&self) -> bool {
        self.group.status.is_broken()
    }

    fn abort(&self, why: &str) {
        if self.world.is_inherited() || self.world.is_finalised() {
            return;
        }
        let abort = Abort::User { rank: self.group.rank, why: why.into() };
        self.world.progress.break_group(&self.group, abort, FoundBy::ThisRank);
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        self.leave(leaving)
    }

    fn open_comparison(&self) -> Option<OpenComparison> {
        self.group.status.open_comparison()
    }
}

impl<H: Handle> Drop for MpiBackend<H> {
    fn drop(&mut self) {
        // Nobody is left who could be told of a disagreement.
        let _ = self.leave(Leaving::last(Duration::ZERO));
    }
}

/// What every MPI library can do, where ranks are compared as `debug_level` says.
pub(super) fn declared(debug_level: DebugLevel) -> Capabilities {
    let mismatches = Mismatches::at(debug_level);
    let complete =
        Capabilities { mismatches, highest_tag: GUARANTEED_TAGS, ..Capabilities::complete() };
    let lacks = |collective: &Collective| collectives::starter::<c_int>(*collective).is_none();
    let missing = Collective::ALL.into_iter().filter(lacks);
    missing.fold(complete, Capabilities::without)
}

/// Makes small memory that is only lent memory of our own.
fn own(call: &mut Call) {
    let regions = || call.input.iter().chain(&call.output);
    let borrowed = regions().filter(|region| region.is_borrowed());
    let bytes: usize = borrowed.map(Region::len).sum();
    if bytes == 0 || bytes > MAX_COPIED_BYTES {
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
