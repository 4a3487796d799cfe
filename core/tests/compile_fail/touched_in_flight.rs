//! A tensor in flight cannot be touched before the scope ends.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let _ = group.scope(|scope| {
        let _work = scope.allreduce(&mut tensor, ());
        tensor[0] = 2.0;
    });
}

fn main() {
    let _ = call;
}
