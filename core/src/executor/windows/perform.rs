//! What an access does where this process reaches the memory: in its own, or in what it has mapped.
//! Knows neither frames nor who asks.
//!
//! Memory of this process is changed while nobody else of it reads or writes it, by the rules of
//! [`Region`]; other processes of the host may still change what they have mapped.

use super::AccessAction;
use crate::generated::dtype::DType;
use crate::kernels::reducer;
use crate::tensor::{Region, SharedBytes};

/// Where an access goes.
pub struct AccessTarget<'a> {
    /// The memory.
    pub shared: &'a SharedBytes,
    /// The same, if it is a tensor of this process.
    pub own: Option<&'a Region>,
    /// Where it begins there, bytes.
    pub at: usize,
    /// The element type.
    pub dtype: DType,
}

impl AccessAction {
    /// Does it. What is given may lie where it goes to: it counts as it was before.
    pub fn perform(&self, target: &AccessTarget<'_>, memory: &Region) {
        let &AccessTarget { shared, at, dtype, .. } = target;
        match self {
            AccessAction::Put if target.is_apart(memory) => {
                memory.read(|from| shared.write(at, from));
            }
            AccessAction::Put => {
                let given = copy_of(memory);
                target.exclusively(|| shared.write(at, &given));
            }
            AccessAction::Get if target.is_apart(memory) => {
                memory.write(|into| shared.read(at, into));
            }
            AccessAction::Get => {
                let mut found = vec![0; memory.len()];
                target.exclusively(|| shared.read(at, &mut found));
                memory.write(|into| into.copy_from_slice(&found));
            }
            AccessAction::Accumulate(op) => {
                let given = copy_of(memory);
                target.exclusively(|| {
                    shared.update(at, dtype, &given, reducer(*op, dtype), None);
                });
            }
            AccessAction::FetchAndUpdate(op, result) => {
                let (given, mut old) = (copy_of(memory), vec![0; memory.len()]);
                target.exclusively(|| {
                    shared.update(at, dtype, &given, reducer(*op, dtype), Some(&mut old));
                });
                result.write(|into| into.copy_from_slice(&old));
            }
            AccessAction::CompareAndSwap(compare, result) => {
                let (given, mut old) = (copy_of(memory), vec![0; memory.len()]);
                let compare = copy_of(compare);
                target.exclusively(|| {
                    shared.compare_and_swap(at, dtype, &compare, &given, &mut old);
                });
                result.write(|into| into.copy_from_slice(&old));
            }
        }
    }
}

impl AccessTarget<'_> {
    /// Writes `from`, which may lie in the same memory.
    #[inline]
    pub fn put(&self, from: &[u8]) {
        if self.shared.overlaps(from.as_ptr() as usize, from.len()) {
            let given = from.to_vec();
            return self.exclusively(|| self.shared.write(self.at, &given));
        }
        self.exclusively(|| self.shared.write(self.at, from));
    }

    /// Reads to `into`, which may lie in the same memory.
    #[inline]
    pub fn get(&self, into: &mut [u8]) {
        if self.shared.overlaps(into.as_ptr() as usize, into.len()) {
            let mut found = vec![0; into.len()];
            self.exclusively(|| self.shared.read(self.at, &mut found));
            return into.copy_from_slice(&found);
        }
        self.exclusively(|| self.shared.read(self.at, into));
    }

    /// Whether copies between it and `memory` need no care: it is not of this process, so that
    /// nobody here waits for it, and they have no byte in common.
    fn is_apart(&self, memory: &Region) -> bool {
        self.own.is_none() && !self.shared.overlaps(memory.address(), memory.len())
    }

    /// Runs `change` while nobody else of this process reads or writes the memory.
    pub fn exclusively<R>(&self, change: impl FnOnce() -> R) -> R {
        match self.own {
            Some(region) => region.exclude(change),
            None => change(),
        }
    }
}

fn copy_of(memory: &Region) -> Vec<u8> {
    memory.read(<[u8]>::to_vec)
}
