//! Calls of the usual shape: a collective or a message on one or two flat arrays, with no argument
//! but the reduction operator and a rank. Small collectives run immediately, without memory that
//! lasts, if the backend can do that; the others are not resolved, since it is known what they
//! mean: what the resolver finds. Whatever is unusual goes there.

use super::operation::Operation;
use super::tensors::{Memory, TensorDescription, Tensors};
use super::{CallerMemory, Cursor, StagedOperation, State};
use crate::backend::FAST_PATH_BYTES;
use crate::calls::origin::Origin;
use crate::calls::{Constant, Entry, Parameter, Role, Type};
use crate::completion::WaitIntent;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::{FastPathResult, HeldBuffers, ProcessGroup};
use crate::request::{SingleTensorRequest, is_one_tensor};
use crate::tensor::{LentMemory, Region};

/// Most arrays of a short call.
const MAX_ARRAYS: usize = 2;

/// Calls of one method that are given the same arguments.
#[derive(Clone, Copy, Debug)]
pub struct ShortMethod {
    plain: SingleTensorRequest,
    kind: Kind,
    /// How many arrays there are, the positions of the one that is read and the one that is
    /// written.
    arrays: usize,
    input: Option<usize>,
    output: Option<usize>,
    /// Whether the rank that is given is one of all, not of the group.
    is_global_rank: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Collective,
    Send,
    Receive,
}

/// The names of the arguments that calls of a method are given beside their arrays, or their
/// positions, in digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortNames<'a> {
    /// Of the reduction operator.
    pub reduce_op: Option<&'a str>,
    /// Of the root, or of the other rank of a message.
    pub rank: Option<&'a str>,
}

/// A call of the usual shape, without its arrays.
#[derive(Clone, Copy, Debug)]
pub struct ShortCall {
    /// What is called.
    pub method: ShortMethod,
    /// The operator, if one is given.
    pub reduce_op: Option<ReduceOp>,
    /// The rank, if one is given.
    pub rank: Option<u32>,
}

/// What is known of an array of a short call.
#[derive(Debug)]
pub struct ShortArray {
    /// The type of its elements.
    pub dtype: DType,
    /// Its bytes.
    pub bytes: usize,
    /// The part of the core's memory that it looks at; none if it is the language's.
    pub own: Option<Region>,
}

/// The result of a short call.
#[derive(Debug)]
pub enum ShortOutcome {
    /// It is done, as the operation of this sequence number, and its result is copied out.
    Done(u64),
    /// It continues.
    Issued(Box<StagedOperation>),
}

impl ShortMethod {
    /// Calls of `entry` with so many arrays first, and arguments of these names. None if those mean
    /// anything but one collective of equal parts, or one message.
    pub fn new(entry: &'static Entry, arrays: usize, names: ShortNames<'_>) -> Option<ShortMethod> {
        let method = entry.method;
        let is_ordinary = !method.coalesced && !method.unbuilt && method.prepares.is_none();
        if !is_ordinary || !(1..=MAX_ARRAYS).contains(&arrays) {
            return None;
        }
        let is_named = |name: Option<&str>, (at, parameter): (usize, &Parameter)| {
            name.is_some_and(|name| name == parameter.name || name.parse() == Ok(at))
        };
        let overload = method.overloads.iter().find_map(|overload| {
            let (tensors, others) = overload.parameters.split_at_checked(arrays)?;
            let are_tensors = tensors.iter().all(|it| matches!(it.ty, Type::Tensor));
            let usual = (arrays..).zip(others).all(|(at, it)| match it.role {
                Role::Op if is_named(names.reduce_op, (at, it)) => true,
                role if is_rank(role) && is_named(names.rank, (at, it)) => true,
                _ => has_usual_default(it),
            });
            (are_tensors && usual).then_some((tensors, others))
        });
        let (tensors, others) = overload?;
        let named = |name: Option<&str>, wanted: fn(Role) -> bool| {
            let mut others = (arrays..).zip(others).filter(|(_, it)| wanted(it.role));
            name.and_then(|_| others.find(|it| is_named(name, *it))).map(|(_, it)| it.role)
        };
        let rank = named(names.rank, is_rank);
        let reduce_op = named(names.reduce_op, |role| role == Role::Op);
        let is_unknown = rank.is_some() != names.rank.is_some()
            || reduce_op.is_some() != names.reduce_op.is_some();
        let at = |wanted: &[Role]| tensors.iter().position(|it| wanted.contains(&it.role));
        let input = at(&[Role::In, Role::FlatIn, Role::InOut]);
        let output = at(&[Role::Out, Role::FlatOut, Role::InOut]);
        let kind = match (method.collective, rank, input, output) {
            (None, Some(Role::Peer | Role::GlobalPeer), Some(_), None) => Kind::Send,
            (None, Some(Role::Peer | Role::GlobalPeer), None, Some(_)) => Kind::Receive,
            (Some(it), rank, Some(input), Some(output)) => {
                let facts = it.facts();
                let has_root = matches!(rank, Some(Role::Root | Role::GlobalRoot));
                if !tensors.iter().all(|tensor| is_one_tensor(tensor.role, facts)) {
                    return None;
                }
                let is_apart = arrays == MAX_ARRAYS && input != output && !facts.rooted;
                let is_alone = arrays == 1 && input == output && has_root == facts.rooted;
                (is_apart && rank.is_none() || is_alone).then_some(Kind::Collective)?
            }
            _ => return None,
        };
        let plain = SingleTensorRequest {
            collective: method.collective.unwrap_or(Collective::Barrier),
            name: method.name,
            dtype: DType::U8,
            reduce_op: ReduceOp::Sum,
            root: 0,
            timeout: None,
            waiting: WaitIntent::Soon,
            epoch: None,
        };
        let is_global_rank = matches!(rank, Some(Role::GlobalRoot | Role::GlobalPeer));
        let found = ShortMethod { plain, kind, arrays, input, output, is_global_rank };
        (!is_unknown).then_some(found)
    }

    /// Whether it receives a message.
    pub fn is_receive(self) -> bool {
        self.kind == Kind::Receive
    }
}

impl ShortCall {
    /// What `plain` is, on so many arrays, of which those of these positions are read and written.
    pub(super) fn of(
        plain: SingleTensorRequest,
        kind: Kind,
        arrays: usize,
        (input, output): (Option<usize>, Option<usize>),
    ) -> ShortCall {
        let (reduce_op, rank) = (Some(plain.reduce_op), Some(plain.root));
        let method = ShortMethod { plain, kind, arrays, input, output, is_global_rank: false };
        ShortCall { method, reduce_op, rank }
    }

    /// The type of the elements for which it was prepared.
    pub fn dtype(&self) -> DType {
        self.method.plain.dtype
    }

    /// Runs it in `group` on `memories`, whose elements are of `dtype`. None if nothing was done:
    /// then [`ShortCall::prepare`] is the way. `scratch` is memory to work in, kept from one call
    /// to the next.
    pub fn run<M: CallerMemory>(
        &self,
        group: &ProcessGroup,
        dtype: DType,
        memories: &[M],
        scratch: &mut Vec<u8>,
    ) -> Option<ShortOutcome> {
        let ShortMethod { input, output, arrays, .. } = self.method;
        let plain = self.plain(group, dtype).filter(|_| memories.len() == arrays)?;
        if arrays == 0 {
            return self.run_without(group, &plain);
        }
        let (from, to) = (memories.get(input?)?, memories.get(output?)?);
        let is_alone = input == output;
        let (given, taken) = (from.bytes(), to.bytes());
        if given.min(taken) == 0 || given.max(taken) > FAST_PATH_BYTES {
            return None;
        }
        scratch.resize(if is_alone { taken } else { taken + given }, 0);
        let (result, copy) = scratch.split_at_mut(taken);
        from.read(0, if is_alone { &mut *result } else { &mut *copy });
        let mut lent = match is_alone {
            true => LentMemory::InPlace(result),
            false => LentMemory::Apart(copy, result),
        };
        let is_written = self.is_written(group, &plain);
        Some(match group.try_plain(&plain, &mut lent)? {
            FastPathResult::Done(work) => {
                if is_written {
                    to.write(0, &scratch[..taken]);
                }
                ShortOutcome::Done(work.sequence())
            }
            begun => {
                // It has given its part; what comes of it is written to memory that lasts.
                let mut staged = self.staged(group, &plain, tensors_for(dtype, memories));
                let region = |at: usize| staged.tensors.all[at].tensor.region().clone();
                let kept = HeldBuffers {
                    input: input.filter(|_| !is_alone).map(region),
                    output: output.map_or_else(|| Region::zeroed(0), region),
                };
                match &kept.input {
                    None => kept.output.write(|bytes| bytes.copy_from_slice(scratch)),
                    Some(input) => input.write(|bytes| bytes.copy_from_slice(&scratch[taken..])),
                }
                staged.bytes_copied_in = from.bytes();
                staged.state = State::Issued(begun.work(|| kept));
                ShortOutcome::Issued(Box::new(staged))
            }
        })
    }

    /// As [`ShortCall::run`], of a call without arrays.
    fn run_without(
        &self,
        group: &ProcessGroup,
        plain: &SingleTensorRequest,
    ) -> Option<ShortOutcome> {
        Some(match group.try_plain(plain, &mut LentMemory::InPlace(&mut []))? {
            FastPathResult::Done(work) => ShortOutcome::Done(work.sequence()),
            begun => {
                let mut staged = self.staged(group, plain, Tensors::default());
                let kept = || HeldBuffers { input: None, output: Region::zeroed(0) };
                staged.state = State::Issued(begun.work(kept));
                ShortOutcome::Issued(Box::new(staged))
            }
        })
    }

    /// The operation of the call on `arrays`, which share no memory, in `group`. None where
    /// [`StagedOperation::prepare`] says what is wrong.
    pub fn prepare(
        &self,
        group: &ProcessGroup,
        arrays: Vec<ShortArray>,
    ) -> Option<StagedOperation> {
        let ShortMethod { kind, input, output, .. } = self.method;
        let dtype = arrays.first().map_or(self.dtype(), |it| it.dtype);
        if arrays.len() != self.method.arrays || arrays.iter().any(|it| it.dtype != dtype) {
            return None;
        }
        let tensors = Tensors::new((0..).zip(arrays).map(|(at, it)| it.described(at)).collect());
        let tensors = tensors.ok().filter(|it| it.lack.is_none())?;
        let tensor = |at: Option<usize>| Some(tensors.all.get(at?)?.tensor.clone());
        let plain = self.plain(group, dtype)?;
        let operation = match kind {
            Kind::Send => {
                Operation::Send { tensor: tensor(input)?, peer: self.peer(group)?, tag: 0 }
            }
            Kind::Receive => {
                let peer = Some(self.peer(group)?);
                Operation::Recv { tensor: tensor(output)?, peer, tag: 0 }
            }
            Kind::Collective => {
                let region = |at| tensor(at).map(|it| it.region().clone());
                let kept = HeldBuffers {
                    input: region(input.filter(|_| input != output)),
                    output: region(output).unwrap_or_else(|| Region::zeroed(0)),
                };
                group.suits_plain(&plain, &kept).then_some(Operation::Plain(plain, kept))?
            }
        };
        let mut staged = self.staged(group, &plain, tensors);
        staged.state = State::Prepared(operation);
        Some(staged)
    }

    fn staged(
        &self,
        group: &ProcessGroup,
        plain: &SingleTensorRequest,
        tensors: Tensors,
    ) -> StagedOperation {
        let ShortMethod { input, output, .. } = self.method;
        let (is_read, is_written) = (self.is_read(group, plain), self.is_written(group, plain));
        StagedOperation {
            name: plain.name,
            group: Some(group.clone()),
            tensors,
            inputs: input.filter(|_| is_read).into_iter().collect(),
            outputs: output.filter(|_| is_written).into_iter().collect(),
            kept_outputs: 0,
            copied_in: Cursor::default(),
            copied_out: Cursor::default(),
            bytes_copied_in: 0,
            timeout: plain.timeout.unwrap_or_else(|| group.timeout()),
            is_one_sided: false,
            origin: Origin::default(),
            state: State::Over,
        }
    }

    /// What the backend is asked for. None if the rank that is given is none of the group, or what
    /// was prepared was so for other members or elements.
    fn plain(&self, group: &ProcessGroup, dtype: DType) -> Option<SingleTensorRequest> {
        let SingleTensorRequest { epoch, dtype: prepared, .. } = self.method.plain;
        let present = group.epoch();
        if epoch.is_some_and(|epoch| epoch != present || dtype != prepared) {
            return None;
        }
        let reduce_op = self.reduce_op.unwrap_or(ReduceOp::Sum);
        let root = match self.rank {
            Some(rank) if self.method.is_global_rank => group.group_rank(rank).ok()?,
            Some(rank) => (rank < group.size()).then_some(rank)?,
            None => 0,
        };
        let epoch = Some(present);
        Some(SingleTensorRequest { dtype, reduce_op, root, epoch, ..self.method.plain })
    }

    /// The other rank of a message.
    fn peer(&self, group: &ProcessGroup) -> Option<u32> {
        let peer = self.plain(group, self.dtype())?.root;
        self.rank.is_some().then_some(peer)
    }

    /// Whether this rank gives anything.
    fn is_read(&self, group: &ProcessGroup, plain: &SingleTensorRequest) -> bool {
        let facts = plain.collective.facts();
        let is_spread = facts.rooted && !facts.reduces;
        self.method.kind != Kind::Collective || !is_spread || plain.root == group.rank()
    }

    /// Whether this rank gets anything.
    fn is_written(&self, group: &ProcessGroup, plain: &SingleTensorRequest) -> bool {
        let facts = plain.collective.facts();
        let is_root = plain.root == group.rank();
        match facts.rooted {
            true if facts.reduces => is_root,
            true => !is_root,
            false => true,
        }
    }

    /// Whether the rank that is given is one of `group`'s own ranks, as works have it.
    pub fn is_rank_of(&self, group: &ProcessGroup) -> bool {
        self.plain(group, self.dtype()).is_some_and(|plain| self.rank.unwrap_or(0) == plain.root)
    }

    /// The position of the array that is written in `group`, if this rank's is written.
    pub fn output(&self, group: &ProcessGroup) -> Option<usize> {
        self.method.output.filter(|_| self.has_output(group))
    }

    /// Whether this rank's array is one of the outputs of the call in `group`, if it is done.
    pub fn has_output(&self, group: &ProcessGroup) -> bool {
        self.plain(group, self.dtype()).is_some_and(|plain| self.is_written(group, &plain))
    }
}

impl ShortArray {
    fn described(self, at: usize) -> TensorDescription {
        let ShortArray { dtype, bytes, own } = self;
        // No two share memory.
        let memory = own.map_or(Memory::Foreign { bytes, place: (at, 0) }, Memory::Own);
        let (shape, strides) = (None, None);
        TensorDescription { dtype, shape, strides, offset: 0, read_only: false, memory }
    }
}

/// The tensors of a call on small arrays, and memory for their copies.
fn tensors_for<M: CallerMemory>(dtype: DType, memories: &[M]) -> Tensors {
    let tensors = memories.iter().map(|memory| super::tensors::flat(dtype, memory.bytes()));
    Tensors { all: tensors.collect(), lack: None }
}

fn is_rank(role: Role) -> bool {
    matches!(role, Role::Root | Role::GlobalRoot | Role::Peer | Role::GlobalPeer)
}

/// Whether leaving a parameter out means what a short call does.
fn has_usual_default(parameter: &Parameter) -> bool {
    parameter.optional
        && match parameter.default {
            None | Some(Constant::Null | Constant::Bool(false) | Constant::EmptySequence) => true,
            Some(Constant::ReduceOp(reduce_op)) => reduce_op == ReduceOp::Sum,
            Some(Constant::Int(0)) => parameter.role == Role::Tag,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::entry;

    #[test]
    fn only_calls_whose_meaning_is_known_are_short() {
        let names = |reduce_op, rank| ShortNames { reduce_op, rank };
        let nothing = || names(None, None);
        let is_short = |key, arrays, names: ShortNames<'_>| {
            let entry = entry(key).unwrap_or_else(|error| panic!("{error}"));
            ShortMethod::new(entry, arrays, names).is_some()
        };
        let short = [
            ("PROCESS_GROUP_ALLREDUCE", 1, nothing()),
            ("PROCESS_GROUP_ALLREDUCE", 1, names(Some("1"), None)),
            ("DISTRIBUTED_ALL_REDUCE", 1, names(Some("op"), None)),
            ("PROCESS_GROUP_BROADCAST", 1, names(None, Some("1"))),
            ("DISTRIBUTED_BROADCAST", 1, names(None, Some("src"))),
            ("DISTRIBUTED_BROADCAST", 1, names(None, Some("group_src"))),
            ("DISTRIBUTED_REDUCE", 1, names(Some("op"), Some("dst"))),
            ("DISTRIBUTED_ALL_GATHER_INTO_TENSOR", 2, nothing()),
            ("PROCESS_GROUP_ALL_TO_ALL_SINGLE", 2, nothing()),
            ("DISTRIBUTED_REDUCE_SCATTER_TENSOR", 2, names(Some("op"), None)),
            ("DISTRIBUTED_SEND", 1, names(None, Some("dst"))),
            ("DISTRIBUTED_RECV", 1, names(None, Some("src"))),
        ];
        for (key, arrays, names) in short {
            assert!(is_short(key, arrays, names), "{key} of {arrays} with {names:?}");
        }
        let others = [
            // Nobody is the root, or the other rank.
            ("DISTRIBUTED_BROADCAST", 1, nothing()),
            ("DISTRIBUTED_RECV", 1, nothing()),
            ("PROCESS_GROUP_ALLREDUCE", 1, names(None, Some("1"))),
            ("PROCESS_GROUP_ALLREDUCE", 1, names(None, Some("timeout"))),
            ("PROCESS_GROUP_ALLREDUCE", 1, names(Some("nonsense"), None)),
            ("PROCESS_GROUP_ALLREDUCE", 2, nothing()),
            ("DISTRIBUTED_ALL_GATHER_INTO_TENSOR", 1, nothing()),
            ("DISTRIBUTED_SEND", 1, names(None, Some("tag"))),
            // Lists of tensors, and several tensors of which each is reduced.
            ("PROCESS_GROUP_ALLGATHER", 2, nothing()),
            ("PROCESS_GROUP_ALLREDUCE_COALESCED", 1, nothing()),
            ("DISTRIBUTED_GATHER", 1, names(None, Some("dst"))),
        ];
        for (key, arrays, names) in others {
            assert!(!is_short(key, arrays, names), "{key} of {arrays} with {names:?}");
        }
    }
}
