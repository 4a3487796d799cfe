//! Resolved calls of collectives as [`Request`]s, by the roles of their parameters.

use super::resolve::{ResolvedCall, unsupported};
use super::value::{Foreign, Language, Value};
use crate::generated::collective::Collective;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::request::{CallArguments, Parameter, Request, Role, TensorArgument, invalid};
use crate::tensor::Tensor;

impl ResolvedCall {
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

    /// The request of the call in `group`. As a method of the group (`is_method`) its ranks are
    /// those of the group, else some are global ranks.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a tensor cannot be cut, or a rank is negative.
    /// - [`Error::Unsupported`] if the method is not a collective, or uses what is not built.
    /// - [`Error::RankNotInGroup`] for a global rank that is none of it.
    /// - [`Error::Reconfigured`] if the members of the group were replaced meanwhile.
    pub fn request_of(self, group: &ProcessGroup, is_method: bool) -> Result<Request> {
        let rank_in_group = |rank| if is_method { Ok(rank) } else { group.group_rank(rank) };
        let name = self.method.operation().name;
        group.request_among(name, |_, size| self.request_in(size, rank_in_group))
    }

    /// As [`ResolvedCall::request_of`], for a group of `size` ranks in which `rank_in_group`
    /// returns the group rank of a global rank.
    ///
    /// # Errors
    /// As [`ResolvedCall::request_of`], and those of `rank_in_group`.
    pub(super) fn request_in(
        self,
        size: u32,
        rank_in_group: impl Fn(u32) -> Result<u32>,
    ) -> Result<Request> {
        let (method, language) = (self.method, self.language);
        let refuse = |what: String| invalid(&language.callee(method), what);
        let operation = method.operation();
        let Some(collective) = operation.collective else {
            return Err(unsupported(format!("{}.{}", method.interface, method.name)));
        };
        if size == 0 {
            // The group has no members yet, and refuses it for that, whatever is given.
            return Ok(Request { name: operation.name, ..Request::new(collective) });
        }
        let (mut arguments, parameters) = (CallArguments::default(), self.parameters());
        for (parameter, value) in parameters.iter().zip(self.values) {
            arguments.add(parameter, value, language).map_err(refuse)?;
        }
        if let Some(name) = arguments.unbuilt {
            return Err(unsupported(format!("argument '{name}' of {}", method.name)));
        }
        let root = arguments.root(collective, parameters, rank_in_group)?;
        if method.coalesced {
            arguments.group_by_input(collective, size as usize).map_err(refuse)?;
        }
        let (inputs, outputs) = arguments.buffers(collective, size as usize).map_err(refuse)?;
        Ok(Request {
            collective,
            inputs,
            outputs,
            uncut_inputs: arguments.uncut_inputs,
            uncut_outputs: arguments.uncut_outputs,
            reduce_op: arguments.reduce_op,
            root,
            root_tensor: arguments.root_tensor,
            timeout: arguments.timeout,
            coalesced: method.coalesced,
            compression: arguments.compression,
            takes_hints: !arguments.is_uncompressed,
            hinted: None,
            exchange: None,
            epoch: None,
            name: operation.name,
        })
    }

    pub(super) fn value_of(&self, role: Role) -> Option<&Value> {
        let position = self.parameters().iter().position(|parameter| parameter.role == role)?;
        self.values.get(position)
    }
}

impl CallArguments {
    fn add(
        &mut self,
        parameter: &'static Parameter,
        value: Value,
        language: Language,
    ) -> Result<(), String> {
        let name = parameter.name;
        let wrong = |what: String| format!("argument '{}' {what}", language.name(name));
        match (parameter.role, value) {
            (role @ (Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut), value) => {
                self.add_tensors(role, tensors_of(value))
            }
            (_, Value::None) => {}
            (Role::InSplits, value) => self.input_splits = splits(value).map_err(wrong)?,
            (Role::OutSplits, value) => self.output_splits = splits(value).map_err(wrong)?,
            (Role::Op, Value::ReduceOp(reduce_op)) => self.reduce_op = reduce_op,
            (Role::Root, value) => self.root = Some(rank(&value).map_err(wrong)?),
            (Role::GlobalRoot, value) => self.global_root = Some(rank(&value).map_err(wrong)?),
            (Role::RootTensor, value) => self.root_tensor = rank(&value).map_err(wrong)?,
            (Role::Timeout, Value::Duration(timeout)) => self.timeout = Some(timeout),
            (Role::Compression, Value::Str(name)) => self.compress(&name).map_err(wrong)?,
            (Role::Unbuilt, _) => self.unbuilt = Some(name),
            (Role::Options, Value::Record(record, values)) => {
                let mut members = record.members.iter().zip(values);
                members.try_for_each(|(member, value)| self.add(member, value, language))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The root as a rank in the group.
    fn root(
        &self,
        collective: Collective,
        parameters: &[Parameter],
        rank_in_group: impl Fn(u32) -> Result<u32>,
    ) -> Result<u32> {
        let names = || {
            let roles = [Role::GlobalRoot, Role::Root].map(|role| {
                let found = parameters.iter().find(|parameter| parameter.role == role);
                found.map(|parameter| parameter.name)
            });
            roles.into_iter().flatten()
        };
        let wrong = |message: String| Err(Error::InvalidArgument { message });
        match (self.root, self.global_root) {
            (Some(_), Some(_)) => {
                let names = names().collect::<Vec<_>>().join(" and ");
                wrong(format!("Can't specify both {names}"))
            }
            (Some(root), None) => Ok(root),
            (None, Some(root)) => rank_in_group(root),
            (None, None) => match collective {
                Collective::Gather | Collective::Scatter => rank_in_group(0),
                _ if collective.facts().rooted => {
                    let names = names().collect::<Vec<_>>().join(" or ");
                    wrong(format!("Must specify {names}"))
                }
                _ => Ok(0),
            },
        }
    }
}

/// The tensors of an argument.
fn tensors_of(value: Value) -> TensorArgument {
    match value {
        Value::Tensor(tensor) => TensorArgument::One(tensor),
        Value::List(values) if values.iter().any(|value| matches!(value, Value::List(_))) => {
            let lists = values.into_iter().map(|value| match value {
                Value::List(values) => tensors(values),
                _ => Vec::new(),
            });
            TensorArgument::Lists(lists.collect())
        }
        Value::List(values) => TensorArgument::List(tensors(values)),
        _ => TensorArgument::Absent,
    }
}

fn tensors(values: Vec<Value>) -> Vec<Tensor> {
    let tensors = values.into_iter().filter_map(|value| match value {
        Value::Tensor(tensor) => Some(tensor),
        _ => None,
    });
    tensors.collect()
}

fn splits(value: Value) -> Result<Vec<usize>, String> {
    let Value::List(values) = value else {
        return Ok(Vec::new());
    };
    let rows = values.into_iter().map(|value| match value {
        Value::Int(rows) => {
            usize::try_from(rows).map_err(|_| format!("has {rows} rows: rows cannot be negative"))
        }
        // The resolver lets nothing else through.
        _ => Err("must be a list of integers".to_owned()),
    });
    rows.collect()
}

fn rank(value: &Value) -> Result<u32, String> {
    match value {
        Value::Int(number @ ..0) => Err(format!("must not be negative, not {number}")),
        Value::Int(number) => u32::try_from(*number)
            .map_err(|_| format!("must be a rank, not {number}: no group has so many")),
        // The resolver lets nothing else through.
        _ => Err("must be an integer".to_owned()),
    }
}
