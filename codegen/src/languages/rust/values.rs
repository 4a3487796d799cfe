//! Views of what has numbers: dtypes, reduction operators, collectives.

use askama::Template;

use super::doc_comment;
use crate::languages::stamp;
use crate::model::{self, Api};

#[derive(Template)]
#[template(path = "rust/dtype.rs.jinja", escape = "none")]
pub(super) struct DTypes {
    stamp: String,
    doc: String,
    dtypes: Vec<model::DType>,
    sizes: Vec<Size>,
}

struct Size {
    pattern: String,
    bytes: u32,
}

#[derive(Template)]
#[template(path = "rust/reduce_op.rs.jinja", escape = "none")]
pub(super) struct ReduceOps {
    stamp: String,
    doc: String,
    reduce_ops: Vec<ReduceOp>,
    /// Variants without a factor.
    plain: Vec<String>,
    /// Variants whose operands are pairs of elements.
    pairs: Vec<String>,
    supported: Vec<SupportRule>,
}

struct ReduceOp {
    name: String,
    doc: String,
    number: u32,
    declaration: String,
    pattern: String,
}

/// Operators that reduce the same dtypes.
struct SupportRule {
    pattern: String,
    condition: String,
}

#[derive(Template)]
#[template(path = "rust/collective.rs.jinja", escape = "none")]
pub(super) struct Collectives {
    stamp: String,
    collectives: Vec<model::Collective>,
}

#[derive(Template)]
#[template(path = "rust/schedules.rs.jinja", escape = "none")]
pub(super) struct Schedules {
    stamp: String,
    collectives: Vec<model::Collective>,
}

pub(super) fn dtypes(api: &Api) -> DTypes {
    let mut bytes: Vec<u32> = api.dtypes.iter().map(|dtype| dtype.size_bytes).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let size = |bytes: u32| {
        let same = api.dtypes.iter().filter(|dtype| dtype.size_bytes == bytes);
        let variants: Vec<String> = same.map(|dtype| format!("DType::{}", dtype.variant)).collect();
        Size { pattern: variants.join(" | "), bytes }
    };
    let documented =
        |dtype: &model::DType| model::DType { doc: doc_comment(&dtype.doc), ..dtype.clone() };
    DTypes {
        stamp: stamp(&api.dtype_source.file),
        doc: doc_comment(&api.dtype_doc),
        dtypes: api.dtypes.iter().map(documented).collect(),
        sizes: bytes.into_iter().map(size).collect(),
    }
}

pub(super) fn reduce_ops(api: &Api) -> ReduceOps {
    let view = |reduce_op: &model::ReduceOp| {
        let mut declaration = reduce_op.variant.clone();
        if reduce_op.factor {
            declaration.push_str("(f64)");
        }
        if reduce_op.custom {
            declaration.push_str("(CustomOp)");
        }
        if reduce_op.number == 0 {
            declaration.insert_str(0, "#[default]\n");
        }
        ReduceOp {
            name: reduce_op.name.clone(),
            doc: doc_comment(&reduce_op.doc),
            number: reduce_op.number,
            declaration,
            pattern: pattern(reduce_op),
        }
    };
    let plain = api.reduce_ops.iter().filter(|it| !it.factor && !it.custom);
    ReduceOps {
        stamp: stamp(&api.reduce_op_source.file),
        doc: doc_comment(&api.reduce_op_doc),
        reduce_ops: api.reduce_ops.iter().map(view).collect(),
        plain: plain.map(|reduce_op| reduce_op.variant.clone()).collect(),
        pairs: api.reduce_ops.iter().filter(|it| it.pairs).map(pattern).collect(),
        supported: supported(api),
    }
}

pub(super) fn collectives(api: &Api) -> Collectives {
    let mut collectives = api.collectives.clone();
    for collective in &mut collectives {
        collective.doc = doc_comment(&collective.doc);
    }
    Collectives { stamp: stamp(&source(api)), collectives }
}

pub(super) fn schedules(api: &Api) -> Schedules {
    let mut collectives = api.collectives.clone();
    collectives.sort_by(|left, right| left.name.cmp(&right.name));
    Schedules { stamp: stamp(&source(api)), collectives }
}

/// The files in which collectives have their facts.
pub(super) fn source(api: &Api) -> String {
    let mut files: Vec<&str> =
        api.collectives.iter().map(|collective| collective.source.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    files.join(", ")
}

fn supported(api: &Api) -> Vec<SupportRule> {
    let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for reduce_op in &api.reduce_ops {
        let variants = dtype_variants(api, |name| reduce_op.dtypes.contains(name));
        match rows.iter_mut().find(|(_, dtypes)| *dtypes == variants) {
            Some((patterns, _)) => patterns.push(pattern(reduce_op)),
            None => rows.push((vec![pattern(reduce_op)], variants)),
        }
    }
    let row = |(patterns, dtypes): (Vec<String>, Vec<String>)| {
        let others = dtype_variants(api, |name| {
            !api.dtypes.iter().any(|it| it.name == *name && dtypes.contains(&it.variant))
        });
        let condition = match (dtypes.len(), others.len()) {
            (_, 0) => "true".to_owned(),
            (0, _) => "false".to_owned(),
            (some, rest) if rest < some => format!("!matches!(dtype, {})", others.join(" | ")),
            _ => format!("matches!(dtype, {})", dtypes.join(" | ")),
        };
        SupportRule { pattern: patterns.join(" | "), condition }
    };
    rows.into_iter().map(row).collect()
}

fn dtype_variants(api: &Api, chosen: impl Fn(&String) -> bool) -> Vec<String> {
    let dtypes = api.dtypes.iter().filter(|dtype| chosen(&dtype.name));
    dtypes.map(|dtype| dtype.variant.clone()).collect()
}

fn pattern(reduce_op: &model::ReduceOp) -> String {
    let any = if reduce_op.factor || reduce_op.custom { "(_)" } else { "" };
    format!("ReduceOp::{}{any}", reduce_op.variant)
}
