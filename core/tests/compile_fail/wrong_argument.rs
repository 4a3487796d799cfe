//! A string is not a reduction operator.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.allreduce(&mut tensor, "sum");
}

fn main() {
    let _ = call;
}
