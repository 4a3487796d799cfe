//! Which dictionaries are records that calls take, and what of each is its own.

use crate::model::{Api, Dictionary, Member};

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
