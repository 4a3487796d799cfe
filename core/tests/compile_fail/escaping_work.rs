//! The handle of a borrowed operation stays in its scope.

use polyrank::ProcessGroup;

fn call(group: &ProcessGroup) {
    let mut tensor = vec![1f32; 4];
    let work = group.scope(|scope| scope.allreduce(&mut tensor, ()));
    drop(tensor);
    let _ = work.unwrap().unwrap().wait();
}

fn main() {
    let _ = call;
}
