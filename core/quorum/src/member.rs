//! What a replica may say of itself, checked before any of it is kept.

use crate::proto::QuorumMember;

/// Most bytes of a request: the largest member, and what the encoding adds.
pub(crate) const MAX_REQUEST: usize = 80 << 10;
/// Most bytes of a replica's id.
pub(crate) const MAX_ID: usize = 256;
/// Most bytes of an address.
const MAX_ADDRESS: usize = 1024;
/// Most bytes that members tell one another.
const MAX_DATA: usize = 64 << 10;

/// Whether this may be the id of a replica.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    if id.is_empty() {
        return Err("replica_id is empty".to_owned());
    }
    if id.chars().any(char::is_control) {
        return Err(format!("replica_id has control characters: {:?}", shortened(id)));
    }
    at_most("replica_id", id, MAX_ID)
}

/// Whether a replica may say this.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(member: &QuorumMember) -> Result<(), String> {
    check_id(&member.replica_id)?;
    at_most("address", &member.address, MAX_ADDRESS)?;
    at_most("store_address", &member.store_address, MAX_ADDRESS)?;
    at_most("data", &member.data, MAX_DATA)
}

fn at_most(what: &str, text: &str, limit: usize) -> Result<(), String> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(format!("{what} has {} bytes, of at most {limit}", text.len()))
}

fn shortened(id: &str) -> String {
    id.chars().take(40).collect()
}
