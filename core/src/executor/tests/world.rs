//! All ranks of a group in one thread, advanced in a seeded order.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::network::{Loopback, Network, Random, Shared};
use crate::completion::Completion;
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::executor;
use crate::executor::{
    Bindings, Executor, GroupIdentity, Message, Operation, OwnPart, SlotProgress, SmallCollective,
};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::schedule::{Rank, Schedule};
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::spin::SpinBudget;
use crate::tensor::Region;
use crate::transport::sim::{Options, Simulation};
use crate::transport::{EAGER_BYTES, Transport};
use crate::wire::frame::Fingerprint;

/// All ranks.
pub(super) struct World {
    pub(super) executors: Vec<Option<Executor>>,
    pub(super) network: Shared,
    pub(super) random: Random,
    pub(super) now: Instant,
    issued: Vec<u64>,
    /// The clock of the simulated network, and the time at which it began.
    simulation: Option<(Simulation, Instant)>,
    /// Turns without movement.
    quiet: usize,
}

/// A call of one rank.
pub(super) struct Call {
    pub(super) schedule: Arc<Schedule>,
    pub(super) fingerprint: Fingerprint,
    pub(super) input: Vec<Region>,
    pub(super) output: Vec<Region>,
    pub(super) timeout: Duration,
    /// Set if it goes over the board.
    pub(super) small: Option<SmallCollective>,
    /// Whether what this rank contributes fits the board then.
    pub(super) fits: bool,
    /// Whether its part is shown already, see [`World::try_small`].
    pub(super) shown: bool,
}

impl Call {
    pub(super) fn new(schedule: &Arc<Schedule>, input: Vec<Region>, output: Vec<Region>) -> Call {
        let elements = output.iter().chain(&input).map(|block| block.len() as u64 / 4).sum();
        Call {
            schedule: schedule.clone(),
            fingerprint: Fingerprint { dtype: DType::I32 as u8, elements, ..Default::default() },
            input,
            output,
            timeout: Duration::from_secs(60),
            small: None,
            fits: true,
            shown: false,
        }
    }

    /// What is given and where the outcome goes, one block after the other.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) fn flat(&self) -> (Vec<u8>, Vec<u8>) {
        let join = |blocks: &[Region]| {
            blocks.iter().flat_map(|block| block.read(<[u8]>::to_vec)).collect::<Vec<_>>()
        };
        (join(&self.input), join(&self.output))
    }

    /// The operation with this number, issued at `now`.
    pub(super) fn into_operation(
        self,
        sequence: u64,
        now: Instant,
    ) -> (Operation, Arc<Completion>) {
        let Call { fits, shown, .. } = self;
        let completion = Arc::new(Completion::new());
        let operation = Operation {
            sequence,
            fingerprint: self.fingerprint,
            schedule: self.schedule,
            slot_progress: self.small.map(|small| {
                let part = if fits { OwnPart::Data } else { OwnPart::Lent };
                SlotProgress { small, part, shown }
            }),
            bindings: Bindings { input: self.input, output: self.output },
            dtype: DType::I32,
            reduce_op: ReduceOp::Sum,
            after: None,
            deadline: now + self.timeout,
            finish: None,
            completion: completion.clone(),
        };
        (operation, completion)
    }
}

/// What [`Call::flat`] gave, for an operation that is tried immediately.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(super) fn lend<'a>(given: &'a [u8], taken: &'a mut [u8]) -> crate::tensor::LentMemory<'a> {
    use crate::tensor::LentMemory;
    if given.is_empty() { LentMemory::InPlace(taken) } else { LentMemory::Apart(given, taken) }
}

impl World {
    pub(super) fn new(size: u32, seed: u64) -> World {
        World::with_eager_bytes(size, seed, EAGER_BYTES)
    }

    /// As [`World::new`], where messages of up to `eager_bytes` leave unasked.
    pub(super) fn with_eager_bytes(size: u32, seed: u64, eager_bytes: usize) -> World {
        let network: Shared = Arc::new(Mutex::new(Network::default()));
        network.lock().unwrap().eager_bytes = eager_bytes;
        let unasked_bytes = [0, 20_000, 200_000][seed as usize % 3];
        network.lock().unwrap().unasked_bytes = unasked_bytes;
        let transport = |rank| Box::new(Loopback::new(rank, size, &network, seed)) as Box<_>;
        let transports = (0..size).map(transport).collect();
        World::over(transports, network.clone(), seed, None)
    }

    /// As [`World::new`], with a board of ranks that read one another's memory.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) fn with_board(size: u32, seed: u64) -> World {
        World::with_board_of_readers(size, seed, true)
    }

    /// As [`World::new`], with a board of ranks that read one another's memory, or do not.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) fn with_board_of_readers(size: u32, seed: u64, reads_memory: bool) -> World {
        let mut world = World::new(size, seed);
        let boards = crate::transport::shm::board::in_one_process(size);
        for (place, mut board) in world.executors.iter_mut().zip(boards) {
            if !reads_memory {
                board.forbid_reading();
            }
            *place = place.take().map(|executor| executor.with_board(board));
        }
        world
    }

    /// Ranks on the simulated network.
    pub(super) fn simulated(size: u32, options: &Options) -> World {
        let (simulation, transports) = Simulation::new(size, options);
        let transports = transports.into_iter().map(|it| Box::new(it) as Box<_>).collect();
        World::over(transports, Shared::default(), options.seed, Some(simulation))
    }

    fn over(
        transports: Vec<Box<dyn Transport>>,
        network: Shared,
        seed: u64,
        simulation: Option<Simulation>,
    ) -> World {
        let now = Instant::now();
        let size = transports.len();
        let executor = |transport| {
            let group = GroupIdentity { name: "world".to_owned(), generation: 3 };
            Some(Executor::new(transport, group, now))
        };
        World {
            executors: transports.into_iter().map(executor).collect(),
            network,
            random: Random::new(seed),
            now,
            issued: vec![0; size],
            simulation: simulation.map(|simulation| (simulation, now)),
            quiet: 0,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.executors.len() as u32
    }

    pub(super) fn executor(&mut self, rank: Rank) -> &mut Executor {
        self.executors[rank as usize].as_mut().expect("the rank lives")
    }

    /// Issues `call` on `rank`.
    pub(super) fn issue(&mut self, rank: Rank, call: Call) -> Arc<Completion> {
        self.issue_with(rank, call, |_| {})
    }

    /// As [`World::issue`], an operation that is changed before.
    pub(super) fn issue_with(
        &mut self,
        rank: Rank,
        call: Call,
        change: impl FnOnce(&mut Operation),
    ) -> Arc<Completion> {
        self.issued[rank as usize] += 1;
        let now = self.now;
        let (mut operation, completion) = call.into_operation(self.issued[rank as usize], now);
        change(&mut operation);
        self.executor(rank).submit(operation, now);
        completion
    }

    /// Tries `call` on `rank` over the fast path; it has to be issued if only its part is shown.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) fn try_small(&mut self, rank: Rank, call: &mut Call) -> executor::SmallAttempt {
        let (given, mut taken) = call.flat();
        let (small, fingerprint) = (call.small.unwrap(), call.fingerprint);
        let sequence = self.issued[rank as usize] + 1;
        let mut memory = lend(&given, &mut taken);
        let executor = self.executor(rank);
        let operation = executor::SmallOperation { sequence, fingerprint, small };
        let attempt = executor.try_small(&operation, &mut memory, SpinBudget::NONE, &mut |_| {});
        self.issued[rank as usize] += u64::from(attempt == executor::SmallAttempt::Done);
        call.shown = attempt == executor::SmallAttempt::Shown;
        attempt
    }

    pub(super) fn send(
        &mut self,
        from: Rank,
        to: Rank,
        tag: u32,
        memory: &Region,
    ) -> Arc<Completion> {
        self.send_of(DType::I32, from, to, tag, memory)
    }

    /// As [`World::send`], of elements of type `dtype`.
    pub(super) fn send_of(
        &mut self,
        dtype: DType,
        from: Rank,
        to: Rank,
        tag: u32,
        memory: &Region,
    ) -> Arc<Completion> {
        let (message, completion) = self.message(dtype, Some(to), tag, memory);
        let now = self.now;
        self.executor(from).send(message, now);
        completion
    }

    pub(super) fn recv(
        &mut self,
        to: Rank,
        from: Option<Rank>,
        tag: u32,
        memory: &Region,
    ) -> Arc<Completion> {
        self.recv_of(DType::I32, to, from, tag, memory)
    }

    /// As [`World::recv`], of elements of type `dtype`.
    pub(super) fn recv_of(
        &mut self,
        dtype: DType,
        to: Rank,
        from: Option<Rank>,
        tag: u32,
        memory: &Region,
    ) -> Arc<Completion> {
        let (message, completion) = self.message(dtype, from, tag, memory);
        let now = self.now;
        self.executor(to).recv(message, now);
        completion
    }

    fn message(
        &self,
        dtype: DType,
        peer: Option<Rank>,
        tag: u32,
        memory: &Region,
    ) -> (Message, Arc<Completion>) {
        let completion = Arc::new(Completion::new());
        let message = Message {
            peer,
            tag,
            dtype,
            memory: memory.clone(),
            deadline: self.now + Duration::from_secs(60),
            finish: None,
            completion: completion.clone(),
        };
        (message, completion)
    }

    /// Advances one rank once.
    pub(super) fn step(&mut self, rank: Rank) {
        let now = self.now;
        let mut finished = Vec::new();
        self.quiet += 1;
        if let Some(executor) = &mut self.executors[rank as usize] {
            if executor.advance(now).moved {
                self.quiet = 0;
            }
            executor.take_finished(&mut finished);
        }
        if let Some((simulation, began)) = &self.simulation
            && self.quiet > 2 * self.executors.len()
        {
            self.quiet = 0;
            if !simulation.step() {
                // Nothing travels: only deadlines and graces are left.
                simulation.wake_at(simulation.now_ns() + 1_000_000);
            }
            self.now = *began + Duration::from_nanos(simulation.now_ns());
        }
        finished.into_iter().for_each(|finished| finished.settle());
    }

    /// Advances ranks in a seeded order until all `completions` are done.
    pub(super) fn run(&mut self, completions: &[Arc<Completion>]) {
        for _ in 0..1_000_000 {
            if completions.iter().all(|completion| completion.is_done()) {
                return;
            }
            let rank = self.random.below(self.executors.len()) as u32;
            self.step(rank);
        }
        let open = completions.iter().filter(|completion| !completion.is_done()).count();
        let stalled: Vec<_> =
            self.executors.iter().flatten().map(|executor| executor.stalled(self.now)).collect();
        panic!("{open} of {} never ended: {stalled:?}", completions.len());
    }

    /// Advances all ranks for a while.
    pub(super) fn settle(&mut self) {
        for _ in 0..400 * self.size() {
            let rank = self.random.below(self.executors.len()) as u32;
            self.step(rank);
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Ends a rank without a goodbye.
    pub(super) fn kill(&mut self, rank: Rank) {
        self.executors[rank as usize] = None;
    }
}

/// Memory with these numbers.
pub(super) fn memory(values: impl IntoIterator<Item = i32>) -> Region {
    Region::from_vec(values.into_iter().flat_map(i32::to_le_bytes).collect())
}

/// The numbers in memory.
pub(super) fn values(region: &Region) -> Vec<i32> {
    region.read(|bytes| {
        let chunks = bytes.chunks_exact(4);
        chunks.map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap())).collect()
    })
}

/// The errors of completions that are all done.
pub(super) fn errors(completions: &[Arc<Completion>]) -> Vec<Error> {
    completions.iter().map(|completion| completion.error().expect("it failed")).collect()
}

/// That all went well.
pub(super) fn assert_ok(completions: &[Arc<Completion>]) {
    let results: Vec<Option<Result<()>>> =
        completions.iter().map(|completion| completion.result()).collect();
    assert!(results.iter().all(|result| result == &Some(Ok(()))), "{results:?}");
}
