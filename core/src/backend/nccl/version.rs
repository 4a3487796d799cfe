//! Versions of NCCL, as the library counts and as people write them.

/// A version as the library counts: 2.18.1 is 21801.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) i32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Before 2.9 a version was counted otherwise; the same formula is near enough.
        let Version(code) = self;
        write!(f, "{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_written_as_people_know_it() {
        assert_eq!(Version(23203).to_string(), "2.32.3");
        assert_eq!(Version(2_18_01).to_string(), "2.18.1");
    }
}
