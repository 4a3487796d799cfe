//! Arguments keep the order of the overload.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.reduce(&mut tensor, (polyrank::ReduceOp::Max, 0));
}

fn main() {
    let _ = call;
}
