//! Which tensors a resolved call reads and writes, by the roles of its parameters. The same for all
//! languages. Knows nothing of what calls do.

use super::resolve::ResolvedCall;
use super::value::Value;
use crate::generated::error::{Error, Result};
use crate::request::Role;
use crate::tensor::Tensor;

impl Role {
    /// Whether tensors of this role are read.
    pub fn is_read(self) -> bool {
        matches!(self, Role::In | Role::InOut | Role::FlatIn)
    }

    /// Whether tensors of this role are written.
    pub fn is_written(self) -> bool {
        matches!(self, Role::Out | Role::InOut | Role::FlatOut)
    }
}

impl Value {
    /// Calls `f` with each tensor that the value is or contains, in order.
    pub fn for_each_tensor(&self, f: &mut impl FnMut(&Tensor)) {
        match self {
            Value::Tensor(tensor) => f(tensor),
            Value::List(items) | Value::Tuple(items) => {
                items.iter().for_each(|item| item.for_each_tensor(f));
            }
            _ => {}
        }
    }

    /// The tensors that the value is or contains, in order.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        self.for_each_tensor(&mut |tensor| tensors.push(tensor.clone()));
        tensors
    }
}

impl ResolvedCall {
    /// Refuses a call that writes a tensor whose memory is read-only. Whether it writes one that is
    /// only read on some ranks, as that of a root, is for the group to say, which knows the root.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], naming the argument.
    pub fn refuse_read_only_outputs(&self) -> Result<()> {
        let is_rooted = self.method.collective.is_some_and(|it| it.facts().rooted);
        let is_written =
            |role: Role| role.is_written() && !(is_rooted && matches!(role, Role::InOut));
        let written = self.parameters().iter().zip(&self.values);
        for (parameter, value) in written.filter(|(parameter, _)| is_written(parameter.role)) {
            let mut read_only = false;
            value.for_each_tensor(&mut |tensor| read_only |= tensor.is_read_only());
            if read_only {
                let (callee, language) = (self.language.callee(self.method), self.language);
                let message = format!(
                    "{callee}(): argument '{}': its memory is read-only, but the call writes it; \
                     pass a writable copy",
                    language.name(parameter.name)
                );
                return Err(Error::InvalidArgument { message });
            }
        }
        Ok(())
    }
}
