//! The short form of broadcast has no default root.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.broadcast_one(&mut tensor, ());
}

fn main() {
    let _ = call;
}
