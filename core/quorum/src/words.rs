//! Lists in messages.

/// Most of a list that are named.
const NAMED: usize = 8;

/// The first of them, and how many more there are.
pub(crate) fn names<T: AsRef<str>>(all: &[T]) -> String {
    let (named, others) = all.split_at(all.len().min(NAMED));
    let named = named.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if others.is_empty() { named } else { format!("{named} and {} more", others.len()) }
}
