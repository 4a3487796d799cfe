//! Resolved calls of collectives as [`Request`]s, by the roles of their parameters.

use std::time::Duration;

use super::resolve::{Resolved, unsupported};
use super::types::{Parameter, RecordType, Role};
use super::value::{Foreign, Value};
use crate::request::Request;
use crate::{Blocks, Collective, Error, ReduceOp, Result, Tensor};

impl Resolved {
    /// The group that a free function was given; none is the default group.
    pub fn group(&self) -> Option<&Foreign> {
        self.value_of(Role::Group).and_then(|value| match value {
            Value::Foreign(foreign) => Some(foreign),
            _ => None,
        })
    }

    /// Whether the caller of a free function wants a handle.
    pub fn async_op(&self) -> bool {
        matches!(self.value_of(Role::AsyncOp), Some(Value::Bool(true)))
    }

    /// The request of a call of a method of a group of `size` ranks.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a tensor cannot be cut, or a rank is negative.
    /// - [`Error::Unsupported`] if the method is no collective, or uses what is not built.
    pub fn request(self, size: u32) -> Result<Request> {
        self.request_in(size, Ok)
    }

    /// The request of a call of a free function, for a group of `size` ranks in which
    /// `rank_in_group` gives the rank of a global rank.
    ///
    /// # Errors
    /// As [`Resolved::request`], and those of `rank_in_group`.
    pub fn request_in(
        self,
        size: u32,
        rank_in_group: impl Fn(u32) -> Result<u32>,
    ) -> Result<Request> {
        let method = self.method;
        let Some(collective) = method.collective else {
            return Err(unsupported(format!("{}.{}", method.interface, method.name)));
        };
        let mut given = Given::default();
        for (parameter, value) in self.parameters().iter().zip(self.values) {
            given.add(parameter, value).map_err(|what| invalid(method.name, what))?;
        }
        if let Some(name) = given.unbuilt {
            return Err(unsupported(format!("argument '{name}' of {}", method.name)));
        }
        let root = given.root(collective, rank_in_group)?;
        let (inputs, outputs) =
            given.buffers(collective, size as usize).map_err(|what| invalid(method.name, what))?;
        Ok(Request {
            collective,
            inputs,
            outputs,
            reduce_op: given.reduce_op,
            root,
            root_tensor: given.root_tensor,
            timeout: given.timeout,
            coalesced: method.coalesced,
            name: method.name,
        })
    }

    pub(super) fn value_of(&self, role: Role) -> Option<&Value> {
        let position = self.parameters().iter().position(|parameter| parameter.role == role)?;
        self.values.get(position)
    }
}

pub(super) fn invalid(method: &str, what: String) -> Error {
    Error::InvalidArgument { message: format!("{method}(): {what}") }
}

/// Tensors of one parameter, as they came.
#[derive(Clone, Default)]
pub(super) enum Buffers {
    /// The parameter was left out, or is no tensor.
    #[default]
    Absent,
    One(Tensor),
    List(Vec<Tensor>),
    Lists(Vec<Vec<Tensor>>),
}

/// What the parameters of a call say, by role.
#[derive(Default)]
pub(super) struct Given {
    pub(super) input: Buffers,
    pub(super) output: Buffers,
    /// Whether the output is the input too.
    pub(super) in_place: bool,
    pub(super) input_is_flat: bool,
    pub(super) output_is_flat: bool,
    pub(super) input_splits: Vec<usize>,
    pub(super) output_splits: Vec<usize>,
    pub(super) reduce_op: ReduceOp,
    pub(super) root: Option<u32>,
    pub(super) global_root: Option<u32>,
    pub(super) root_tensor: u32,
    pub(super) timeout: Option<Duration>,
    /// The name of something that is not built, but was given.
    pub(super) unbuilt: Option<&'static str>,
}

impl Given {
    fn add(&mut self, parameter: &'static Parameter, value: Value) -> Result<(), String> {
        let name = parameter.name;
        match (parameter.role, value) {
            (role @ (Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut), value) => {
                self.add_tensors(role, Buffers::of(value))
            }
            (_, Value::None) => {}
            (Role::InSplits, value) => self.input_splits = splits(name, value)?,
            (Role::OutSplits, value) => self.output_splits = splits(name, value)?,
            (Role::Op, Value::ReduceOp(reduce_op)) => self.reduce_op = reduce_op,
            (Role::Root, value) => self.root = Some(rank(name, &value)?),
            (Role::GlobalRoot, value) => self.global_root = Some(rank(name, &value)?),
            (Role::RootTensor, value) => self.root_tensor = rank(name, &value)?,
            (Role::Timeout, Value::Duration(timeout)) => self.timeout = Some(timeout),
            (Role::Unbuilt, _) => self.unbuilt = Some(name),
            (Role::Options, Value::Record(record, values)) => self.add_all(record, values)?,
            _ => {}
        }
        Ok(())
    }

    /// Adds the tensors of a parameter of this role.
    pub(super) fn add_tensors(&mut self, role: Role, tensors: Buffers) {
        let reads = matches!(role, Role::In | Role::FlatIn);
        *(if reads { &mut self.input } else { &mut self.output }) = tensors;
        self.in_place |= role == Role::InOut;
        self.input_is_flat |= role == Role::FlatIn;
        self.output_is_flat |= role == Role::FlatOut;
    }

    fn add_all(&mut self, record: &'static RecordType, values: Vec<Value>) -> Result<(), String> {
        let mut members = record.members.iter().zip(values);
        members.try_for_each(|(member, value)| self.add(member, value))
    }

    /// The root as a rank in the group.
    fn root(
        &self,
        collective: Collective,
        rank_in_group: impl Fn(u32) -> Result<u32>,
    ) -> Result<u32> {
        let wrong = |message: &str| Err(Error::InvalidArgument { message: message.to_owned() });
        match (self.root, self.global_root) {
            (Some(_), Some(_)) => wrong("Can't specify both group_rank and global_rank"),
            (Some(root), None) => Ok(root),
            (None, Some(root)) => rank_in_group(root),
            (None, None) => match collective {
                Collective::Gather | Collective::Scatter => rank_in_group(0),
                _ if collective.facts().rooted => wrong("Must specify global_rank or group_rank"),
                _ => Ok(0),
            },
        }
    }

    /// Inputs and outputs: for each entry of the list that was given, the blocks.
    pub(super) fn buffers(&mut self, collective: Collective, size: usize) -> Result<Lists, String> {
        let facts = collective.facts();
        let input_splits = if self.input_is_flat { Some(&*self.input_splits) } else { None };
        let output_splits = if self.output_is_flat { Some(&*self.output_splits) } else { None };
        let output = std::mem::take(&mut self.output);
        let input = if self.in_place && facts.input != Blocks::None {
            output.clone()
        } else {
            std::mem::take(&mut self.input)
        };
        let mut inputs = blocks(facts.input, input, input_splits, size)?;
        let mut outputs = blocks(facts.output, output, output_splits, size)?;
        // Ranks that are not the root may give an empty list for all their entries.
        fill(&mut inputs, facts.input, outputs.len());
        fill(&mut outputs, facts.output, inputs.len());
        let both = facts.input != Blocks::None && facts.output != Blocks::None;
        if both && inputs.len() != outputs.len() {
            return Err(format!(
                "{} inputs for {} outputs: there must be as many of both",
                inputs.len(),
                outputs.len()
            ));
        }
        if facts.output != Blocks::None && outputs.is_empty() {
            return Err("the list of tensors is empty".to_owned());
        }
        Ok((inputs, outputs))
    }
}

type Lists = (Vec<Vec<Tensor>>, Vec<Vec<Tensor>>);

impl Buffers {
    fn of(value: Value) -> Buffers {
        match value {
            Value::Tensor(tensor) => Buffers::One(tensor),
            Value::List(values) if values.iter().any(|value| matches!(value, Value::List(_))) => {
                let lists = values.into_iter().map(|value| match value {
                    Value::List(values) => tensors(values),
                    _ => Vec::new(),
                });
                Buffers::Lists(lists.collect())
            }
            Value::List(values) => Buffers::List(tensors(values)),
            _ => Buffers::Absent,
        }
    }
}

fn tensors(values: Vec<Value>) -> Vec<Tensor> {
    let tensors = values.into_iter().filter_map(|value| match value {
        Value::Tensor(tensor) => Some(tensor),
        _ => None,
    });
    tensors.collect()
}

/// The blocks of each entry. `splits` is given where tensors are flat; empty is equal parts.
fn blocks(
    of: Blocks,
    buffers: Buffers,
    splits: Option<&[usize]>,
    size: usize,
) -> Result<Vec<Vec<Tensor>>, String> {
    let has_many = matches!(of, Blocks::All | Blocks::AllAtRoot);
    Ok(match buffers {
        _ if of == Blocks::None => Vec::new(),
        Buffers::Absent => Vec::new(),
        Buffers::One(tensor) => match splits {
            Some(splits) => vec![cut(&tensor, splits, size)?],
            None => vec![vec![tensor]],
        },
        Buffers::List(tensors) => match splits {
            Some(splits) => {
                tensors.iter().map(|tensor| cut(tensor, splits, size)).collect::<Result<_, _>>()?
            }
            None if has_many && tensors.is_empty() => Vec::new(),
            None if has_many => vec![tensors],
            None => tensors.into_iter().map(|tensor| vec![tensor]).collect(),
        },
        Buffers::Lists(lists) => lists,
    })
}

/// `lists` with as many empty entries as there are `entries`, if only the root has such buffers.
fn fill(lists: &mut Vec<Vec<Tensor>>, of: Blocks, entries: usize) {
    if lists.is_empty() && matches!(of, Blocks::OneAtRoot | Blocks::AllAtRoot) {
        lists.resize(entries, Vec::new());
    }
}

/// The blocks of a flat tensor, cut along dimension 0.
fn cut(tensor: &Tensor, splits: &[usize], size: usize) -> Result<Vec<Tensor>, String> {
    let rows = tensor.shape().first().copied().unwrap_or(1);
    if splits.is_empty() {
        if size == 0 || rows % size != 0 {
            return Err(format!(
                "Tensor's dim 0 does not divide equally across group size: {rows} rows, \
                 {size} ranks"
            ));
        }
        let equal = vec![rows / size; size];
        return tensor.split(&equal).map_err(|error| error.to_string());
    }
    if splits.len() != size {
        return Err(format!(
            "Number of tensor splits not equal to group size: {} splits, {size} ranks",
            splits.len()
        ));
    }
    tensor.split(splits).map_err(|error| error.to_string())
}

fn splits(name: &str, value: Value) -> Result<Vec<usize>, String> {
    let Value::List(values) = value else {
        return Ok(Vec::new());
    };
    let rows = values.into_iter().map(|value| match value {
        Value::Int(rows) => usize::try_from(rows)
            .map_err(|_| format!("argument '{name}' has {rows} rows: rows cannot be negative")),
        other => Err(format!("argument '{name}' must be a list of int, not of {other}")),
    });
    rows.collect()
}

fn rank(name: &str, value: &Value) -> Result<u32, String> {
    match value {
        Value::Int(number @ ..0) => {
            Err(format!("argument '{name}' must not be negative, not {number}"))
        }
        Value::Int(number) => u32::try_from(*number).map_err(|_| {
            format!("argument '{name}' must be a rank, not {number}: no group has so many")
        }),
        other => Err(format!("argument '{name}' must be int, not {other}")),
    }
}
