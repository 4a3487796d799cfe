//! The reduction operators, as attributes of the class that is written by hand.

use askama::Template;

use crate::languages::stamp;
use crate::model::{Api, ReduceOp};

/// `reduce_ops.rs`.
#[derive(Template)]
#[template(path = "python/reduce_ops.rs.jinja", escape = "none")]
pub(super) struct ReduceOps {
    stamp: String,
    plain: Vec<ReduceOp>,
    /// Those that must be given a factor.
    with_factor: Vec<ReduceOp>,
    /// Those that must be given a function.
    custom: Vec<ReduceOp>,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> ReduceOps {
    let (custom, others): (Vec<_>, Vec<_>) =
        api.reduce_ops.iter().cloned().partition(|op| op.custom);
    let (with_factor, plain) = others.into_iter().partition(|op| op.factor);
    ReduceOps { stamp: stamp(&api.reduce_op_source.file), plain, with_factor, custom }
}
