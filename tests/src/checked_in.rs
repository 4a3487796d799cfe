//! Files of the repository that a test writes: what they say is compared with what they should say.

use std::path::Path;

/// Compares the file at `path`, from the repository's root, with `text`; with `POLYRANK_WRITE=1`
/// in the environment it is written first. `test` is the name of the suite that says this.
///
/// # Panics
/// The file is stale; the message is the command that writes it.
pub fn assert_is_current(path: &str, text: &str, test: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("POLYRANK_WRITE").is_some() {
        std::fs::write(&file, text).expect("the repository can be written");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let stale = written.lines().zip(text.lines()).find(|(is, should)| is != should);
    assert!(written == text, "{path} is stale ({stale:?}); write it anew: {}", command(test));
}

/// The command that writes what the suite `test` compares.
pub fn command(test: &str) -> String {
    format!("POLYRANK_WRITE=1 cargo test -p polyrank-tests --test {test}")
}
