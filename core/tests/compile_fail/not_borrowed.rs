//! A blocking call borrows.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.allreduce(tensor, ());
}

fn main() {
    let _ = call;
}
