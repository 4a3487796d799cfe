//! A handle that nobody waits for is a warning.

#![deny(unused_must_use)]

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) -> polyrank::Result<()> {
    group.allreduce_async(vec![1f32; 4], ())?;
    Ok(())
}

fn main() {
    let _ = call;
}
