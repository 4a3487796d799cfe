//! Member keys: which part of a store belongs to whom, so that it goes when they are gone.
//! Knows nothing of what the members are.
//!
//! A key `<scope>/\x01member/<token>` says that the client that made it uses the keys under
//! `<scope>/`. It is an ordinary key on the wire: made by ADD, removed by DELETE_KEY, looked for by
//! CHECK. Our own stores do more with it. When the last member key of a scope is removed, so is
//! everything under the scope; and a server removes the member keys that a client made when it
//! loses that client. Other servers (PyTorch's) keep such keys until somebody deletes them.

/// What a member key ends with, in front of its token. A byte that no text begins with keeps these
/// keys apart from others.
const MARKER: &[u8] = b"\x01member/";

/// Characters of a token.
pub(crate) const TOKEN_BYTES: usize = 32;

/// The member key of `token`, which has [`TOKEN_BYTES`] characters, in `scope`.
pub(crate) fn member_key(scope: &str, token: &str) -> String {
    debug_assert_eq!(token.len(), TOKEN_BYTES);
    format!("{scope}/\u{1}member/{token}")
}

/// What begins every key of the scope that `key` is a member key of, if it is one.
pub(crate) fn scope_of(key: &[u8]) -> Option<&[u8]> {
    let (front, _token) = key.split_at_checked(key.len().checked_sub(TOKEN_BYTES)?)?;
    front.strip_suffix(MARKER).filter(|scope| scope.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_key_names_its_scope_behind_any_prefix() {
        let key = member_key("a/0", &"f".repeat(TOKEN_BYTES));
        assert_eq!(scope_of(key.as_bytes()), Some(&b"a/0/"[..]));
        let prefixed = format!("/room/x/{key}");
        assert_eq!(scope_of(prefixed.as_bytes()), Some(&b"/room/x/a/0/"[..]));
        for other in ["", "a", "a/0/member/ffffffffffffffffffffffffffffffff", &key[1..][..20]] {
            assert_eq!(scope_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(scope_of(&key.as_bytes()[4..]), None, "a scope has a name");
    }
}
