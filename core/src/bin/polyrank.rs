//! The polyrank command.
fn main() {}
