//! The lines of Rust that stand on pages of the site by themselves, with what they take as given.

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{Tensor, nan_check};

fn backward(batch: f32, gradients: &Tensor) {
    println!("{batch} of shape {:?}", gradients.shape());
}

fn main() -> polyrank::Result<()> {
    let group = init_process_group(InitOptions::default())?;
    group.register_pre_hook(0, nan_check());
    group.register_completion_hook(0, |ended| {
        println!("{} #{}: {:?}", ended.name, ended.op_id, ended.duration);
    });
    let batches = [1.0, 2.0];
    let gradients = polyrank::Tensor::zeros(polyrank::DType::F32, &[1024, 1024])?;
    let prepared = group.prepare_allreduce(gradients, ())?;
    for batch in batches {
        backward(batch, prepared.tensor());
        prepared.run()?;
    }
    destroy_process_group(None)
}
