//! A tensor that the scope borrows outlives the scope.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let _ = group.scope(|scope| {
        let mut tensor = vec![1f32; 4];
        let _work = scope.allreduce(&mut tensor, ());
    });
}

fn main() {
    let _ = call;
}
