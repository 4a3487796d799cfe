//! Ranks in messages. Knows nothing of what is said of them.

/// Most ranks that a message names.
const NAMED_RANKS: usize = 16;

/// "ranks 2, 3", the first of `listed`; "ranks 2, 3 and 4 more" where there are so many beside.
pub(crate) fn rank_names(listed: &[u32], others: u32) -> String {
    let (named, rest) = listed.split_at(listed.len().min(NAMED_RANKS));
    let others = others + rest.len() as u32;
    let names: Vec<_> = named.iter().map(u32::to_string).collect();
    let names = names.join(", ");
    match (named.len(), others) {
        (0, 1) => "1 rank".to_owned(),
        (0, others) => format!("{others} ranks"),
        (1, 0) => format!("rank {names}"),
        (_, 0) => format!("ranks {names}"),
        (_, others) => format!("ranks {names} and {others} more"),
    }
}
