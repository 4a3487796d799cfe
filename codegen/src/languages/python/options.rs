//! The classes of options records: one property for each member, in snake_case and camelCase.

use askama::Template;

use super::records::{own_members, records};
use super::spelling::{camel_member, lines, record_table, rust_doc};
use crate::languages::stamp;
use crate::model::{Api, Dictionary};

/// `options.rs`.
#[derive(Template)]
#[template(path = "python/options.rs.jinja", escape = "none")]
pub(super) struct Options {
    stamp: String,
    records: Vec<Record>,
}

struct Record {
    name: String,
    doc: String,
    table: String,
    base: String,
    /// Whether its base is another record, not the root of all.
    derived: bool,
    members: Vec<Property>,
}

struct Property {
    name: String,
    /// The camelCase spelling; empty if it is the same.
    camel: String,
    doc: String,
    position: usize,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> Options {
    let records = records(api).map(|record| view_of(api, record)).collect();
    Options { stamp: stamp("idl/*.webidl"), records }
}

fn view_of(api: &Api, record: &Dictionary) -> Record {
    let doc = |doc: &str, indent| rust_doc(&lines(api, doc), indent);
    let members = own_members(api, record).map(|(position, member)| Property {
        name: member.name.clone(),
        camel: camel_member(&member.name).unwrap_or_default(),
        doc: doc(&member.doc, "    "),
        position,
    });
    Record {
        name: record.name.clone(),
        doc: doc(&record.doc, ""),
        table: record_table(&record.name),
        base: record.inherits.clone().unwrap_or_else(|| "Record".into()),
        derived: record.inherits.is_some(),
        members: members.collect(),
    }
}
