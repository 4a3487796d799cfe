//! One algorithm, run: the executor of every rank, in this thread, over a network that is
//! only imagined. What it counts comes from the network and from the executors, not from the model
//! of costs. Knows no command line.

use std::sync::Arc;
use std::time::Duration;

use polyrank::clock::Instant;
use polyrank::completion::Completion;
use polyrank::executor::{Bindings, Executor, GroupIdentity, Operation};
use polyrank::schedule::{Algorithm, BlockContent, Place, Schedule, Topology};
use polyrank::transport::sim::{Options, Simulation};
use polyrank::wire::frame::Fingerprint;
use polyrank::{Blocks, Collective, DType, ReduceOp, Region};

/// Steps of all ranks together: a step takes some 250 bytes, and schedules of very many steps take
/// long to build.
const MAX_STEPS: usize = 1 << 20;
/// Bytes of all ranks' buffers together.
const MAX_BYTES: u64 = 2 << 30;
/// Bytes of an element.
const ELEMENT_BYTES: usize = 8;
/// How long everything is under way. Nothing else takes time, so that the time at the end counts
/// the messages that followed one another.
const HOP_NS: u64 = 1_000_000_000;

/// What is run.
#[derive(Clone, Copy)]
pub(super) struct Rehearsal<'a> {
    pub(super) collective: Collective,
    pub(super) algorithm: &'static Algorithm,
    pub(super) on: &'a Topology,
    /// The size of the whole.
    pub(super) bytes: u64,
}

/// What was counted. Of ranks: of the one that has most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrafficCount {
    /// Messages that followed one another.
    pub(super) rounds: u64,
    /// Messages that a rank sent, or received.
    pub(super) messages: u64,
    /// Bytes that a rank sent, or received.
    pub(super) bytes: u64,
    /// Frames that a rank sent, those without data too.
    pub(super) frames: u64,
    /// Ranks that a rank is connected to.
    pub(super) connections: usize,
    /// Bytes that the executor of a rank keeps.
    pub(super) memory_bytes: usize,
    /// Elements that are not what they should be, of all ranks.
    pub(super) wrong: u64,
    /// What it took to run it here.
    pub(super) took: Duration,
}

/// Blocks of one buffer, one after the other in memory.
struct Buffer {
    blocks: Vec<Region>,
}

/// One rank: its executor, its part, and what it will have.
struct Member {
    executor: Executor,
    completion: Arc<Completion>,
    output: Buffer,
}

impl Rehearsal<'_> {
    /// Carries it out, and tells `on_progress` often how many ranks have ended; the error says why
    /// it cannot be, or what went wrong.
    pub(super) fn run(&self, on_progress: &mut dyn FnMut(usize)) -> Result<TrafficCount, String> {
        let began = Instant::now();
        self.check_size()?;
        let schedules = self.schedules()?;
        let options = Options {
            seed: 0,
            latency_ns: HOP_NS..=HOP_NS,
            kibibyte_ns: 0,
            slow_links_percent: 0,
            death: None,
        };
        let (simulation, transports) = Simulation::new(self.on.size(), &options);
        let mut members = Vec::with_capacity(transports.len());
        for ((rank, transport), schedule) in (0..).zip(transports).zip(schedules) {
            let group = GroupIdentity { name: "rehearsal".to_owned(), generation: 1 };
            let executor = Executor::new(Box::new(transport), group, began);
            members.push(self.member(executor, rank, schedule, began));
            on_progress(0);
        }
        drive(&simulation, &mut members, began, on_progress)?;
        let mut counted =
            TrafficCount { rounds: simulation.now_ns() / HOP_NS, ..TrafficCount::default() };
        for (rank, member) in (0..).zip(&members) {
            let traffic = simulation.traffic(rank);
            let messages = traffic.messages_sent.max(traffic.messages_received);
            counted.messages = counted.messages.max(messages);
            counted.bytes = counted.bytes.max(traffic.bytes_sent).max(traffic.bytes_received);
            counted.frames = counted.frames.max(traffic.frames_sent);
            counted.connections = counted.connections.max(traffic.connections);
            counted.memory_bytes = counted.memory_bytes.max(member.executor.memory_bytes());
            let after = (self.collective.contract().after)(self.place(rank));
            counted.wrong += member.output.wrong(&after);
        }
        counted.took = began.elapsed();
        Ok(counted)
    }

    /// The size of the whole, in blocks of whole elements.
    pub(super) fn whole_bytes(&self) -> u64 {
        u64::from(self.blocks()) * self.block_bytes()
    }

    /// How many blocks the whole has.
    fn blocks(&self) -> u32 {
        let facts = self.collective.facts();
        let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
        if many(facts.input) || many(facts.output) { self.on.size() } else { 1 }
    }

    fn block_bytes(&self) -> u64 {
        let elements = self.bytes / u64::from(self.blocks()) / ELEMENT_BYTES as u64;
        elements.max(1) * ELEMENT_BYTES as u64
    }

    fn place(&self, rank: u32) -> Place {
        Place { rank, size: self.on.size(), root: 0 }
    }

    /// Refuses what would not fit into memory.
    fn check_size(&self) -> Result<(), String> {
        let kept_twice = 2 * u64::from(self.on.size());
        let block_bytes = self.block_bytes().saturating_add(size_of::<Region>() as u64);
        let block_bytes = block_bytes.saturating_mul(u64::from(self.blocks()));
        match block_bytes.saturating_mul(kept_twice) {
            0..=MAX_BYTES => Ok(()),
            bytes => Err(format!("its buffers would take {} MiB; give less --bytes", bytes >> 20)),
        }
    }

    /// The schedules of all ranks, if they are few enough.
    fn schedules(&self) -> Result<Vec<Schedule>, String> {
        let mut steps = 0;
        let ranks = 0..self.on.size();
        ranks
            .map(|rank| {
                let schedule = self.algorithm.schedule(self.place(rank), self.on);
                steps += schedule.steps.len();
                (steps <= MAX_STEPS).then_some(schedule)
            })
            .collect::<Option<_>>()
            .ok_or_else(|| format!("it has more than {MAX_STEPS} steps"))
    }

    /// Starts the part of one rank.
    fn member(
        &self,
        mut executor: Executor,
        rank: u32,
        schedule: Schedule,
        now: Instant,
    ) -> Member {
        let contract = self.collective.contract();
        let (input, output) = (contract.before)(self.place(rank));
        let bytes = self.block_bytes() as usize;
        let (input, output) = (Buffer::new(&input, bytes), Buffer::new(&output, bytes));
        let completion = Arc::new(Completion::new());
        let operation = Operation {
            sequence: 1,
            fingerprint: Fingerprint::default(),
            schedule: Arc::new(schedule),
            slot_progress: None,
            bindings: Bindings { input: input.blocks, output: output.blocks.clone() },
            dtype: DType::I64,
            reduce_op: ReduceOp::Sum,
            after: None,
            // Nothing is lost on this network, so nothing is late.
            deadline: now + Duration::from_secs(u64::from(u32::MAX)),
            finish: None,
            completion: completion.clone(),
        };
        executor.submit(operation, now);
        Member { executor, completion, output }
    }
}

/// Lets time pass until all are done.
fn drive(
    simulation: &Simulation,
    members: &mut [Member],
    began: Instant,
    on_progress: &mut dyn FnMut(usize),
) -> Result<(), String> {
    let mut awake: Vec<u32> = (0..members.len() as u32).collect();
    let mut finished = Vec::new();
    let mut ended = 0;
    loop {
        let now = began + Duration::from_nanos(simulation.now_ns());
        for rank in awake.drain(..) {
            let executor = &mut members[rank as usize].executor;
            while executor.advance(now).moved {}
            executor.take_finished(&mut finished);
        }
        ended += finished.len();
        finished.drain(..).for_each(|finished| finished.settle());
        if ended == members.len() {
            break;
        }
        on_progress(ended);
        simulation.take_awake(&mut awake);
        if awake.is_empty() && !simulation.step() {
            return Err(format!("{} ranks never ended", members.len() - ended));
        }
    }
    match members.iter().find_map(|member| member.completion.error()) {
        None => Ok(()),
        Some(error) => Err(error.to_string()),
    }
}

impl Buffer {
    /// Memory for as many blocks, with what is in them before.
    fn new(before: &[BlockContent], block_bytes: usize) -> Buffer {
        let memory = Region::zeroed(before.len() * block_bytes);
        let mut blocks = Vec::with_capacity(before.len());
        for (index, holds) in before.iter().enumerate() {
            let block = memory.slice(index * block_bytes..(index + 1) * block_bytes);
            block.write(|memory| {
                for (index, element) in memory.chunks_exact_mut(ELEMENT_BYTES).enumerate() {
                    let value = expected(holds, index).unwrap_or(-1);
                    element.copy_from_slice(&value.to_ne_bytes());
                }
            });
            blocks.push(block);
        }
        Buffer { blocks }
    }

    /// Elements that are not what they should be.
    fn wrong(&self, after: &[BlockContent]) -> u64 {
        let wrong = |(block, holds): (&Region, &BlockContent)| {
            let scale = scale(holds);
            block.read(|memory| {
                let elements = memory.chunks_exact(ELEMENT_BYTES).enumerate();
                let wrong = elements.filter(|(index, element)| {
                    let expected = scale.map(|scale| value(scale, *index));
                    expected.is_some_and(|value| **element != value.to_ne_bytes())
                });
                wrong.count() as u64
            })
        };
        self.blocks.iter().zip(after).map(wrong).sum()
    }
}

/// What stands at `index` of a block; none where nothing is promised.
fn expected(holds: &BlockContent, index: usize) -> Option<i64> {
    scale(holds).map(|scale| value(scale, index))
}

/// Data is a number for each origin times a number for each index, so that a sum of data is the sum
/// of the first, which is exact, times the second.
fn value(scale: i64, index: usize) -> i64 {
    scale * (index as i64 % 1000 + 1)
}

fn scale(holds: &BlockContent) -> Option<i64> {
    let number = |&(rank, block): &(u32, u32)| i64::from(rank + 1) * 100_003 + i64::from(block);
    match holds {
        BlockContent::Anything => None,
        BlockContent::One(origin) => Some(number(origin)),
        BlockContent::Reduction(origins) | BlockContent::InOrder(origins) => {
            Some(origins.iter().map(number).sum())
        }
    }
}
