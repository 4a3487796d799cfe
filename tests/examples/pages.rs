//! The lines of Rust that stand on pages of the site by themselves, with what they take as given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyrank::backend::{
    Backend, BackendContext, Call, Capabilities, IssueOptions, IssuedOperation, Leaving, Transfer,
    register_backend,
};
use polyrank::device_mesh::{MeshOptions, init_device_mesh};
use polyrank::distributed::{
    BreakpointOptions, InitOptions, breakpoint, destroy_process_group, init_process_group,
};
use polyrank::options::AllreduceOptions;
use polyrank::store::Store;
use polyrank::{
    Collective, CustomReduction, Error, GroupHints, ProcessGroup, Result, Tensor, nan_check,
};

fn backward(batch: f32, gradients: &Tensor) {
    println!("{batch} of shape {:?}", gradients.shape());
}

fn main() -> polyrank::Result<()> {
    register_backend("mine", &[], OverStore::make)?;
    let group = init_process_group(InitOptions::default())?;
    group.register_pre_hook(0, nan_check())?;
    group.register_completion_hook(0, |ended| {
        println!("{} #{}: {:?}", ended.name, ended.op_id, ended.duration);
    })?;
    let batches = [1.0, 2.0];
    let gradients = polyrank::Tensor::zeros(polyrank::DType::F32, &[1024, 1024])?;
    let prepared = group.prepare_allreduce(gradients, ())?;
    for batch in batches {
        backward(batch, prepared.tensor());
        prepared.run()?;
    }
    for _step in 0..3 {
        breakpoint(BreakpointOptions::default().rank(2).skip(100))?;
    }
    work_off(&group)?;
    farthest_from_zero(&group, vec![-2.0, 1.0])?;
    travel_compressed(&group, vec![0.1; 1024])?;
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

/// Reduces by a function: whichever element is farthest from zero.
fn farthest_from_zero(group: &ProcessGroup, mut tensor: Vec<f32>) -> polyrank::Result<()> {
    let farthest = CustomReduction::new(|lower: &[f32], upper: &mut [f32]| {
        for (upper, lower) in upper.iter_mut().zip(lower) {
            if lower.abs() >= upper.abs() {
                *upper = *lower;
            }
        }
    });
    group.allreduce(&mut tensor, farthest.op())?;
    Ok(())
}

/// Reduces what travels in half the bytes.
fn travel_compressed(group: &ProcessGroup, gradient: Vec<f32>) -> polyrank::Result<()> {
    let options = AllreduceOptions::default().compress("f16");
    let work = group.allreduce_async(gradient, options)?;
    work.wait(None)?;
    let lost = work.compression_error();
    group.set_hints(GroupHints::default().compress("bf16"))?;
    println!("rank {} lost {lost:?}", group.rank());
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

/// A backend that runs over the store of its group.
struct OverStore {
    store: Arc<dyn Store>,
    rank: u32,
    size: u32,
    calls: AtomicU64,
}

impl OverStore {
    fn make(context: BackendContext) -> Result<Arc<dyn Backend>> {
        let BackendContext { store, rank, size, .. } = context;
        Ok(Arc::new(OverStore { store, rank, size, calls: AtomicU64::new(0) }))
    }
}

impl Backend for OverStore {
    fn collective(&self, call: Call, _: IssueOptions) -> Result<IssuedOperation> {
        match call.collective {
            Collective::Allreduce => Ok(IssuedOperation::ended(self.reduce(&call))),
            other => self.lacks(other.facts().name),
        }
    }

    fn send(&self, _: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        self.lacks("send")
    }

    fn recv(&self, _: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        self.lacks("recv")
    }

    fn name(&self) -> &str {
        "mine"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn abort(&self, _why: &str) {}

    fn shutdown(&self, _: Leaving) -> Result<()> {
        Ok(())
    }
}

impl OverStore {
    /// Reduces over the store in which the ranks of the group meet.
    fn reduce(&self, call: &Call) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let key = |rank| format!("{number}/{rank}");
        let output = &call.output[0];
        self.store.set(&key(self.rank), &output.read(<[u8]>::to_vec))?;
        let mut sum = self.store.get(&key(0))?;
        for rank in 1..self.size {
            call.reduce(&mut sum, &self.store.get(&key(rank))?);
        }
        output.write(|bytes| bytes.copy_from_slice(&sum));
        Ok(())
    }

    fn lacks<T>(&self, operation: &str) -> Result<T> {
        Err(Error::Unsupported { who: "mine".into(), operation: operation.into() })
    }
}
