//! An output is borrowed exclusively.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let (output, input) = (vec![0f32; 8], vec![1f32; 4]);
    let _ = group.all_gather_single(&output, &input, ());
}

fn main() {
    let _ = call;
}
