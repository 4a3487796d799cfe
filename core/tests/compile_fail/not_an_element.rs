//! Strings are not tensor elements.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![String::new()];
    let _ = group.allreduce(&mut tensor, ());
}

fn main() {
    let _ = call;
}
