//! A map is not a tensor.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = std::collections::HashMap::<String, f32>::new();
    let _ = group.allreduce(&mut tensor, ());
}

fn main() {
    let _ = call;
}
