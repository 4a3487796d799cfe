//! Options belong to their collective.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.broadcast(&mut tensor, polyrank::options::AllreduceOptions::default());
}

fn main() {
    let _ = call;
}
