//! An operation that continues after the call owns its tensors.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.allreduce_async(&mut tensor, ());
}

fn main() {
    let _ = call;
}
