//! What a resolved call on tensors does, by the roles of its parameters. Knows nothing of copies.

#[cfg(not(target_family = "wasm"))]
use super::managed::ManagedReduction;
use super::tensors::Tensors;
use super::window::WindowCall;
use crate::calls::invocation::rank_of;
#[cfg(not(target_family = "wasm"))]
use crate::calls::replicas::ReplicaManagerObject;
use crate::calls::resolve::{ResolvedCall, unsupported};
use crate::calls::{FromValue, Role, Value};
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};
use crate::process_group::topology::{NeighborCall, Topology};
use crate::process_group::{
    CheckedRequest, ExchangeRequest, HeldBuffers, MessageRequest, PreparedOperation, ProcessGroup,
    Window,
};
use crate::request::SingleTensorRequest;
use crate::sorted::SortedMap;
use crate::tensor::{Tensor, single_tensor};
use crate::work::Work;

/// What a call becomes.
#[derive(Debug)]
pub(super) enum Operation {
    Collective(CheckedRequest),
    /// A permutation of the ranks' tensors.
    Permutation {
        output: Tensor,
        input: Tensor,
        pairs: Vec<(u32, u32)>,
    },
    /// One of the usual ones, of which nothing is to be found out.
    Plain(SingleTensorRequest, HeldBuffers),
    Send {
        tensor: Tensor,
        peer: u32,
        tag: u32,
    },
    Recv {
        tensor: Tensor,
        peer: Option<u32>,
        tag: u32,
    },
    /// A message to a rank and one from a rank.
    Exchange(ExchangeRequest),
    /// An exchange between neighbours.
    Neighbors(Topology, Box<NeighborCall>),
    /// A reduction over replicas.
    #[cfg(not(target_family = "wasm"))]
    Managed(ReplicaManagerObject, ManagedReduction),
    /// A call on a window.
    Window(Window, Box<WindowCall>),
    /// Messages that go together.
    #[cfg(feature = "nccl")]
    Messages(Vec<MessageRequest>),
}

impl Operation {
    /// Whether no other rank has to make a call for it.
    pub(super) fn is_one_sided(&self) -> bool {
        matches!(self, Operation::Window(_, call) if call.is_one_sided())
    }

    /// Issues it in `group`.
    pub(super) fn issue(self, group: &ProcessGroup, waiting: WaitIntent) -> Result<Work> {
        match self {
            Operation::Collective(checked) => group.issue_checked(checked, waiting),
            Operation::Permutation { output, input, pairs } => {
                group.issue_permutation(output, input, &pairs, waiting)
            }
            Operation::Plain(plain, kept) => {
                let name = plain.name;
                let plain = SingleTensorRequest { waiting, ..plain };
                // It suited when it was made.
                let others = || match plain.epoch {
                    Some(epoch) => group.check_epoch(epoch, name),
                    None => Ok(()),
                };
                group.issue_plain(&plain, kept).unwrap_or_else(|| {
                    others()?;
                    group.require_members(name)?;
                    Err(unsupported(name.to_owned()))
                })
            }
            Operation::Send { tensor, peer, tag } => {
                group.issue_message(MessageRequest::send(tensor, peer, tag), None, waiting)
            }
            Operation::Recv { tensor, peer, tag } => {
                group.issue_message(MessageRequest::receive(tensor, peer, tag), None, waiting)
            }
            Operation::Exchange(exchange) => group.issue_exchange(exchange, waiting),
            Operation::Neighbors(topology, call) => topology.issue(*call, waiting),
            #[cfg(not(target_family = "wasm"))]
            Operation::Managed(manager, reduction) => reduction.issue(&manager),
            Operation::Window(window, call) => call.issue(&window, waiting),
            #[cfg(feature = "nccl")]
            Operation::Messages(messages) => {
                group.issue_together("batch_isend_irecv", messages, None, waiting)
            }
        }
    }

    /// The messages that it is, to go with others.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what is none, and for receiving from any rank.
    #[cfg(feature = "nccl")]
    pub(super) fn into_messages(self) -> Result<Vec<MessageRequest>> {
        Ok(vec![match self {
            Operation::Messages(messages) => return Ok(messages),
            Operation::Send { tensor, peer, tag } => MessageRequest::send(tensor, peer, tag),
            Operation::Recv { tensor, peer: Some(peer), tag } => {
                MessageRequest::receive(tensor, Some(peer), tag)
            }
            Operation::Recv { peer: None, .. }
            | Operation::Collective(_)
            | Operation::Exchange(_)
            | Operation::Permutation { .. }
            | Operation::Managed(..)
            | Operation::Neighbors(..)
            | Operation::Window(..)
            | Operation::Plain(..) => {
                let message = "only messages to and from ranks that are named go together";
                return Err(Error::InvalidArgument { message: message.to_owned() });
            }
        }])
    }
}

/// What a resolved call does in `group`. As a method of the group (`is_method`) its ranks are
/// those of the group, else some are global ranks.
pub(super) fn operation(
    resolved: ResolvedCall,
    group: &ProcessGroup,
    is_method: bool,
) -> Result<Operation> {
    group.require_members(resolved.method.name)?;
    if resolved.method.operation().collective.is_none() {
        return message(resolved, group);
    }
    group.check(resolved.request_of(group, is_method)?).map(Operation::Collective)
}

/// What a resolved call on a window does. The memory that it registers must stay where it is.
pub(super) fn on_window(
    window: &Window,
    resolved: ResolvedCall,
    tensors: &Tensors,
) -> Result<Operation> {
    let window = resolved.limit(window)?;
    let call = WindowCall::of(resolved)?;
    if matches!(call, WindowCall::Register(_)) && tensors.has_foreign() {
        let message = "tensor_register: a tensor must lie in memory of polyrank, because that of \
                       other arrays can move: make it with alloc()"
            .to_owned();
        return Err(Error::InvalidArgument { message });
    }
    Ok(Operation::Window(window, Box::new(call)))
}

/// What a resolved call on a topology does. What is given is not here yet.
pub(super) fn on_topology(topology: &Topology, resolved: &ResolvedCall) -> Result<Operation> {
    let (topology, call) = resolved.neighbor_call(topology)?;
    topology.check(&call)?;
    Ok(Operation::Neighbors(topology, Box::new(call)))
}

/// What a resolved call on a manager does.
#[cfg(not(target_family = "wasm"))]
pub(super) fn on_manager(
    manager: &ReplicaManagerObject,
    resolved: ResolvedCall,
) -> Result<Operation> {
    Ok(Operation::Managed(manager.clone(), ManagedReduction::of(resolved)?))
}

/// A send or a receive, by the roles of the parameters.
fn message(mut resolved: ResolvedCall, group: &ProcessGroup) -> Result<Operation> {
    let name = resolved.method.name;
    let (input, output) =
        (resolved.single_tensor(name, Role::In)?, resolved.single_tensor(name, Role::Out)?);
    let (input, output) = match (input, output) {
        (Some(input), Some(output)) if has_pairs(&resolved) => {
            return permutation(resolved, group, input, output);
        }
        (Some(input), Some(output)) => return exchange(resolved, group, input, output),
        one => one,
    };
    let tag = resolved.take_role::<u32>(Role::Tag)?.unwrap_or(0);
    let (global, in_group) =
        (resolved.take_role(Role::GlobalPeer)?, resolved.take_role(Role::Peer)?);
    let other = if output.is_some() { "src" } else { "dst" };
    let peer = rank_of(group, other, global, in_group)?;
    let (role, checked) =
        if output.is_some() { ("source", "recv") } else { ("destination", "send") };
    peer.map_or(Ok(()), |peer| group.check_peer(checked, role, peer))?;
    match (input, output, peer) {
        (Some(tensor), None, Some(peer)) => Ok(Operation::Send { tensor, peer, tag }),
        (Some(_), None, None) => Err(Error::InvalidArgument {
            message: format!("{name}: one of 'dst' and 'group_dst' must be given"),
        }),
        (None, Some(tensor), peer) => Ok(Operation::Recv { tensor, peer, tag }),
        _ => Err(unsupported(format!("{}.{name}", resolved.method.interface))),
    }
}

/// The parameter that says who sends to whom in a permutation.
const PAIRS: &str = "pairs";

fn has_pairs(resolved: &ResolvedCall) -> bool {
    resolved.parameters().iter().any(|parameter| parameter.name == PAIRS)
}

/// A permutation of the tensors of all ranks.
fn permutation(
    mut resolved: ResolvedCall,
    group: &ProcessGroup,
    input: Tensor,
    output: Tensor,
) -> Result<Operation> {
    let position = resolved.parameters().iter().position(|it| it.name == PAIRS);
    let given: Value = resolved.take(position.unwrap_or_default())?;
    let Value::List(given) = given else { return Err(unsupported(PAIRS.to_owned())) };
    let mut pairs = Vec::with_capacity(given.len());
    for pair in given {
        let pair: Vec<u32> = FromValue::from_value(pair).map_err(not_ranks)?;
        let &[source, destination] = &pair[..] else {
            return Err(not_a_pair(format!("a list of {} ranks", pair.len())));
        };
        pairs.push((source, destination));
    }
    // What is sent is not here yet.
    group.check_permutation(&output, &input, &pairs)?;
    Ok(Operation::Permutation { output, input, pairs })
}

fn not_ranks(what: String) -> Error {
    Error::InvalidArgument { message: format!("'{PAIRS}' must be a list of {what}") }
}

fn not_a_pair(what: String) -> Error {
    let message =
        format!("'{PAIRS}' must be a list of pairs, each a source and a destination, got {what}");
    Error::InvalidArgument { message }
}

/// A send and a receive: what concerns the send comes first among the parameters of each role.
fn exchange(
    mut resolved: ResolvedCall,
    group: &ProcessGroup,
    input: Tensor,
    output: Tensor,
) -> Result<Operation> {
    let tags: Vec<u32> = resolved.take_all(Role::Tag)?;
    let mut ranks: Vec<u32> = resolved.take_all(Role::Peer)?;
    for global in resolved.take_all(Role::GlobalPeer)? {
        ranks.push(group.group_rank(global)?);
    }
    let (&[to, from], &[send_tag, recv_tag]) = (&ranks[..], &tags[..]) else {
        return Err(unsupported(format!("{}.{}", resolved.method.interface, resolved.method.name)));
    };
    let (to, from) = ((to, send_tag), (from, recv_tag));
    let exchange = ExchangeRequest { input, to, output, from };
    group.check_exchange(&exchange)?;
    Ok(Operation::Exchange(exchange))
}

impl ResolvedCall {
    /// Issues the message that it is, in `group`.
    ///
    /// # Errors
    /// Wrong ranks and tensors; those of the backend; [`Error::Unsupported`] if it is none.
    pub fn issue_message(self, group: &ProcessGroup, waiting: WaitIntent) -> Result<Work> {
        message(self, group)?.issue(group, waiting)
    }

    /// Prepares the collective or the message that it is, in `group`, to be started often.
    ///
    /// # Errors
    /// Wrong arguments; [`Error::InvalidGroup`] if the group was destroyed.
    pub fn prepare(self, group: &ProcessGroup) -> Result<PreparedOperation> {
        let name = self.method.name;
        if self.method.operation().collective.is_some() {
            return group.prepare_collective(|| self.request_of(group, true));
        }
        group.unless_left()?;
        match message(self, group)? {
            Operation::Send { tensor, peer, tag } => {
                group.prepare_message(MessageRequest::send(tensor, peer, tag))
            }
            Operation::Recv { tensor, peer, tag } => {
                group.prepare_message(MessageRequest::receive(tensor, peer, tag))
            }
            _ => Err(unsupported(name.to_owned())),
        }
    }

    /// Positions of the tensors of parameters of these roles, each once, in the order of the call.
    pub(super) fn positions(&self, tensors: &Tensors, wanted: impl Fn(Role) -> bool) -> Vec<usize> {
        let mut positions = Vec::new();
        for (parameter, value) in self.parameters().iter().zip(&self.values) {
            if wanted(parameter.role) {
                value.for_each_tensor(&mut |it| positions.extend(tensors.position(it)));
            }
        }
        let mut seen = SortedMap::new();
        positions.retain(|position| seen.insert(*position, ()).is_none());
        positions
    }

    /// The tensor of the parameter of this role; none if there is no such parameter.
    fn single_tensor(&self, name: &str, role: Role) -> Result<Option<Tensor>> {
        self.value_of(role).map(|value| single_tensor(name, value.tensors())).transpose()
    }

    /// Takes the values of all parameters of this role.
    fn take_all<T: FromValue>(&mut self, role: Role) -> Result<Vec<T>> {
        let parameters = self.parameters().iter().enumerate();
        let positions: Vec<usize> =
            parameters.filter(|(_, it)| it.role == role).map(|(position, _)| position).collect();
        positions.into_iter().map(|position| self.take(position)).collect()
    }

    /// Takes the value of the parameter of this role; none if there is no such parameter.
    pub(super) fn take_role<T: FromValue>(&mut self, role: Role) -> Result<Option<T>> {
        let position = self.parameters().iter().position(|parameter| parameter.role == role);
        match position {
            Some(position) => self.take(position),
            None => Ok(None),
        }
    }
}
