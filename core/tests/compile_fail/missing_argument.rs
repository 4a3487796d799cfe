//! What follows the tensors is always written, if only as `()`.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.allreduce(&mut tensor);
}

fn main() {
    let _ = call;
}
