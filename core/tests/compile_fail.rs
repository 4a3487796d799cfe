//! Misuse does not compile, and the compiler says so in words that help.
//!
//! Each file under `compile_fail/` has one mistake and the compiler's text beside it.
//! `TRYBUILD=overwrite cargo test -p polyrank --test compile_fail` writes the texts anew: they are
//! those of the toolchain that `rust-toolchain.toml` names.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
