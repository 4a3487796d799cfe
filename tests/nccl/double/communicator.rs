//! Communicators: how they are made, ready, broken, aborted. Knows no function of the library.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use super::mesh::{ID_BYTES, Mesh, new_id};
use super::operation::{self, Connection, Operation, Operator};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const SYSTEM_ERROR: c_int = 2;
pub(crate) const INVALID_ARGUMENT: c_int = 4;
pub(crate) const INVALID_USAGE: c_int = 5;
pub(crate) const REMOTE_ERROR: c_int = 6;
pub(crate) const IN_PROGRESS: c_int = 7;

/// The number of the first operator that is made.
const FIRST_MADE: c_int = 5;

/// The sockets of a communicator: for operations, and for connecting and splitting it.
struct Meshes {
    data: Mesh,
    control: Mesh,
}

pub(crate) struct Communicator {
    pub(crate) device: c_int,
    place: OnceLock<(usize, usize)>,
    meshes: OnceLock<Meshes>,
    /// What went wrong, or is under way.
    state: AtomicI32,
    /// How often it says that a call is in progress before it is not.
    busy: AtomicI32,
    /// How many splits and connections are under way.
    pending: AtomicI32,
    /// The kinds of operations for which the ranks are connected.
    connected: Mutex<HashSet<Connection>>,
    aborted: Mutex<bool>,
    rung: Condvar,
    is_aborted: AtomicBool,
    operators: Mutex<HashMap<c_int, (c_int, f64)>>,
}

impl Communicator {
    fn new(device: c_int) -> Arc<Communicator> {
        Arc::new(Communicator {
            device,
            place: OnceLock::new(),
            meshes: OnceLock::new(),
            state: AtomicI32::new(IN_PROGRESS),
            busy: AtomicI32::new(0),
            pending: AtomicI32::new(0),
            connected: Mutex::default(),
            aborted: Mutex::new(false),
            rung: Condvar::new(),
            is_aborted: AtomicBool::new(false),
            operators: Mutex::default(),
        })
    }

    /// Begins to meet the others of `id`.
    pub(crate) fn begin(
        device: c_int,
        id: [u8; ID_BYTES],
        rank: usize,
        size: usize,
    ) -> Arc<Communicator> {
        let made = Communicator::new(device);
        let here = made.clone();
        std::thread::spawn(move || here.meet(&id, rank, size));
        made
    }

    fn meet(&self, id: &[u8; ID_BYTES], rank: usize, size: usize) {
        let met = || -> io::Result<Meshes> {
            let data = Mesh::join(id, rank, size)?;
            if is_to_fail(rank) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            // The first rank opens a second meeting, of which the others hear in the first.
            let second = if rank == 0 { new_id()?.to_vec() } else { Vec::new() };
            let second = data.gather(rank, &second)?.swap_remove(0);
            let second = second.try_into().map_err(|_| io::Error::other("an id"))?;
            Ok(Meshes { data, control: Mesh::join(&second, rank, size)? })
        };
        let state = match met() {
            Ok(meshes) => {
                let _ = self.place.set((rank, size));
                let _ = self.meshes.set(meshes);
                SUCCESS
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => SYSTEM_ERROR,
            // It is gone, or failed.
            Err(_) => REMOTE_ERROR,
        };
        self.state.store(state, Ordering::SeqCst);
    }

    /// Begins to split: those of one colour meet in a communicator of their own, which is `told`
    /// when it is there.
    pub(crate) fn split(
        self: &Arc<Self>,
        color: c_int,
        key: c_int,
        told: impl FnOnce(Arc<Communicator>) + Send + 'static,
    ) {
        let (parent, child) = (self.clone(), Communicator::new(self.device));
        self.pending.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            match parent.split_here(&child, color, key) {
                Ok(()) if color >= 0 => told(child),
                Ok(()) => {}
                Err(_) => parent.state.store(REMOTE_ERROR, Ordering::SeqCst),
            }
            parent.pending.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn split_here(&self, child: &Communicator, color: c_int, key: c_int) -> io::Result<()> {
        let (Some(meshes), Some(&(rank, _))) = (self.meshes.get(), self.place.get()) else {
            return Err(io::Error::other("not ready"));
        };
        let ours = [color.to_le_bytes(), key.to_le_bytes()].concat();
        let all = meshes.control.gather(rank, &ours)?;
        let number = |bytes: &[u8]| c_int::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut members: Vec<(c_int, usize)> = (0..all.len())
            .filter(|&other| number(&all[other][..4]) == color)
            .map(|other| (number(&all[other][4..]), other))
            .collect();
        members.sort_unstable();
        let leads = color >= 0 && members[0].1 == rank;
        let id = if leads { new_id()?.to_vec() } else { Vec::new() };
        let ids = meshes.control.gather(rank, &id)?;
        if color >= 0 {
            let place = members.iter().position(|member| member.1 == rank).unwrap_or_default();
            let id = ids[members[0].1].clone().try_into();
            child.meet(&id.map_err(|_| io::Error::other("an id"))?, place, members.len());
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> Option<(usize, usize)> {
        self.place.get().copied()
    }

    /// The state, for who asks: after some calls it takes a while until it is good.
    pub(crate) fn async_error(&self) -> c_int {
        let state = self.state.load(Ordering::SeqCst);
        if state == SUCCESS && self.pending.load(Ordering::SeqCst) > 0 {
            return IN_PROGRESS;
        }
        if state == SUCCESS && self.busy.load(Ordering::SeqCst) > 0 {
            self.busy.fetch_sub(1, Ordering::SeqCst);
            return IN_PROGRESS;
        }
        state
    }

    /// Whether something can be issued: the caller asked until it was ready.
    pub(crate) fn is_ready(&self) -> bool {
        let counts = [&self.busy, &self.pending];
        self.state.load(Ordering::SeqCst) == SUCCESS
            && counts.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Runs `launch` when the ranks are connected for these operations, which the first of a kind
    /// has them do: the communicator is busy until all have come, for ever if they come for
    /// different ones. As with the library, a rank that is gone meanwhile is not noticed. False if
    /// `launch` says that it could not.
    pub(crate) fn when_connected(
        self: &Arc<Self>,
        all: &[Operation],
        launch: impl FnOnce() -> bool + Send + 'static,
    ) -> bool {
        let mut connected = self.connected.lock().unwrap();
        let kinds = all.iter().filter_map(Operation::connection);
        let is_new = kinds.clone().filter(|kind| connected.insert(*kind)).count() > 0;
        let (Some(meshes), Some((rank, _))) = (self.meshes.get(), self.place()) else {
            return launch();
        };
        if !is_new || meshes.control.is_alone() {
            return launch();
        }
        let kinds = format!("{:?}", kinds.collect::<Vec<_>>());
        let here = self.clone();
        self.pending.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            let Some(meshes) = here.meshes.get() else { return };
            let Ok(kinds) = meshes.control.gather(rank, kinds.as_bytes()) else { return };
            if kinds.iter().all(|other| *other == kinds[0]) {
                launch();
                here.pending.fetch_sub(1, Ordering::SeqCst);
            }
        });
        true
    }

    /// Something was issued, and the caller has to ask.
    pub(crate) fn note_busy(&self) {
        self.busy.store(2, Ordering::SeqCst);
    }

    /// Runs what was grouped. What goes wrong hangs, until the communicator is aborted.
    pub(crate) fn run(&self, all: &[Operation]) {
        let (Some(meshes), Some((rank, size))) = (self.meshes.get(), self.place()) else { return };
        // What is left in the sockets is of an operation that did not end.
        if self.is_aborted.load(Ordering::SeqCst) {
            return;
        }
        let Err(error) = operation::run(&meshes.data, rank, size, all) else { return };
        if error.kind() != io::ErrorKind::InvalidData && !self.is_aborted.load(Ordering::SeqCst) {
            self.state.store(REMOTE_ERROR, Ordering::SeqCst);
        }
        let aborted = self.aborted.lock().unwrap();
        drop(self.rung.wait_while(aborted, |aborted| !*aborted).unwrap());
    }

    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
        if let Some(meshes) = self.meshes.get() {
            meshes.data.close();
            meshes.control.close();
        }
        *self.aborted.lock().unwrap() = true;
        self.rung.notify_all();
    }

    pub(crate) fn make_operator(&self, dtype: c_int, factor: f64) -> c_int {
        let mut operators = self.operators.lock().unwrap();
        let free = (FIRST_MADE..).find(|number| !operators.contains_key(number));
        let number = free.unwrap_or(FIRST_MADE);
        operators.insert(number, (dtype, factor));
        number
    }

    pub(crate) fn destroy_operator(&self, number: c_int) -> bool {
        self.operators.lock().unwrap().remove(&number).is_some()
    }

    /// The operator of a number, for elements of `dtype`.
    pub(crate) fn operator(&self, number: c_int, dtype: c_int) -> Option<Operator> {
        if (0..FIRST_MADE).contains(&number) {
            return Some(Operator::Number(number));
        }
        let operators = self.operators.lock().unwrap();
        let (made_for, factor) = operators.get(&number).copied()?;
        (made_for == dtype).then_some(Operator::Premul(factor))
    }
}

/// Whether the environment wants the making of communicators to fail at this rank.
fn is_to_fail(rank: usize) -> bool {
    let named = std::env::var("NCCL_DOUBLE_MEETING_FAILS").ok();
    named.and_then(|text| text.parse().ok()) == Some(rank)
}
