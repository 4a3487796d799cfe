//! The lines of Rust that stand on pages of the site by themselves, with what they take as given.

use polyrank::device_mesh::{MeshOptions, init_device_mesh};
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{ProcessGroup, Tensor, nan_check};

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
    work_off(&group)?;
    if group.size() == 8 {
        reduce_in_columns()?;
    }
    destroy_process_group(None)
}

/// Does the tasks that no other rank does.
fn work_off(group: &ProcessGroup) -> polyrank::Result<()> {
    let window = group.new_window()?;
    window.tensor_register(vec![0_i64])?;
    let (mut task, mut done) = ([0_i64], 0);
    loop {
        window.fetch_and_add(&[1_i64], &mut task, 0, 0)?;
        if task[0] >= 100 {
            break;
        }
        done += 1;
    }
    window.tensor_deregister()?;
    println!("rank {} has done {done} tasks", group.rank());
    Ok(())
}

/// Sums up what the ranks of one column have.
fn reduce_in_columns() -> polyrank::Result<()> {
    let mesh = init_device_mesh("cpu", &[2, 4], MeshOptions::default().names(["dp", "tp"]))?;
    let mut gradients = [1.0f32; 4];
    mesh.group("dp")?.allreduce(&mut gradients, ())?;
    println!("rank {} stands at {:?}", mesh.rank()?, mesh.coordinate());
    Ok(())
}
