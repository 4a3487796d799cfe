//! What the results say of the program that measured. Knows nothing of what was measured.

use serde::Serialize;

/// The build of polyrank that measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Build {
    pub(super) version: &'static str,
    /// Of git, with "-dirty" after it if sources had changed; none where the build does not know.
    pub(super) commit: Option<&'static str>,
}

impl Build {
    /// This program.
    pub(super) fn here() -> Build {
        let commit = option_env!("POLYRANK_COMMIT").filter(|commit| !commit.is_empty());
        Build { version: env!("CARGO_PKG_VERSION"), commit }
    }

    /// `0.1.0 (commit 1234567)`.
    pub(super) fn in_words(self) -> String {
        match self.commit {
            None => self.version.to_owned(),
            Some(commit) => {
                let dirty = if commit.ends_with("-dirty") { "-dirty" } else { "" };
                let short = commit.get(..12).unwrap_or(commit);
                format!("{} (commit {short}{dirty})", self.version)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_named_if_it_is_known() {
        let mut build = Build { version: "1.2.3", commit: None };
        assert_eq!(build.in_words(), "1.2.3");
        build.commit = Some("0123456789abcdef0123");
        assert_eq!(build.in_words(), "1.2.3 (commit 0123456789ab)");
        build.commit = Some("0123456789abcdef0123-dirty");
        assert_eq!(build.in_words(), "1.2.3 (commit 0123456789ab-dirty)");
    }
}
