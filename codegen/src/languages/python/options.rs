//! The classes of options records: one property for each member, in snake_case and camelCase.

use askama::Template;

use super::spelling::{camel_member, lines, record_table, rust_doc};
use crate::languages::stamp;
use crate::model::{Api, Dictionary, Member};

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

/// The dictionaries that calls take, bases first.
pub(super) fn records(api: &Api) -> impl Iterator<Item = &Dictionary> {
    let is_base = |known: &Dictionary| {
        let mut others = api.dictionaries.iter().filter(|other| other.is_argument);
        others.any(|other| other.inherits.as_ref() == Some(&known.name))
    };
    let taken = move |known: &&Dictionary| known.is_argument || is_base(known);
    api.dictionaries.iter().filter(taken)
}

/// The members that the base does not have, with their positions among all.
pub(super) fn own_members<'a>(
    api: &'a Api,
    record: &'a Dictionary,
) -> impl Iterator<Item = (usize, &'a Member)> {
    let base = record.inherits.as_ref();
    let base = base.and_then(|base| api.dictionaries.iter().find(|known| known.name == *base));
    let inherited = base.map_or(0, |base| base.members.len());
    record.members.iter().enumerate().skip(inherited)
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
