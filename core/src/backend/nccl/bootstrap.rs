//! How the ranks of a group form a communicator through the store: the device of each, and the
//! id under which the library meets. Knows no operation.

use std::sync::Arc;
use std::time::Duration;

use super::NcclOptions;
use super::abort_watch::WaitLimit;
use super::communicator::{Communicator, new_id};
use super::library::LoadedLibrary;
use crate::clock::Instant;
use crate::env::variable;
use crate::generated::error::{Error, Result};
use crate::rendezvous::timed_out;
use crate::store::Store;
use crate::tensor::cuda::Gpu;
use crate::transport::host;

/// How long the store is waited for before it is asked whether the group broke.
const SLICE: Duration = Duration::from_millis(200);

/// One rank on its way to the others.
pub(super) struct Arrival<'a> {
    pub(super) found: &'static LoadedLibrary,
    /// A connection of its own: the user's may be waiting.
    pub(super) store: &'a dyn Store,
    pub(super) ranks: (u32, u32),
    pub(super) limit: WaitLimit<'a>,
}

impl Arrival<'_> {
    /// Meets the other ranks, each on a device of its own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if two ranks have one device; [`Error::RendezvousTimeout`] if not
    /// all come; that the group broke; those of the library.
    pub(super) fn meet(&self, gpu: &Arc<Gpu>, options: &NcclOptions) -> Result<Communicator> {
        self.publish_device(gpu)?;
        let id = self.exchange_id()?;
        Communicator::join(self.found, gpu, &id, self.ranks, options, self.limit)
    }

    /// Tells the others which device this rank has, and learns of theirs: NCCL hangs, or fails
    /// without saying why, where two ranks have one.
    fn publish_device(&self, gpu: &Gpu) -> Result<()> {
        let (rank, size) = self.ranks;
        // The library tells hosts apart by the same variable.
        let host = variable::NCCL_HOSTID.text().unwrap_or_else(host::identity);
        let ours = format!("{} {host}", gpu.bus_id()?);
        let key = |rank: u32| format!("nccl/device/{rank}");
        self.store.set(&key(rank), ours.as_bytes())?;
        let keys: Vec<String> = (0..size).map(key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.wait(&keys).map_err(|error| {
            if !matches!(error, Error::StoreTimeout { .. }) {
                return error;
            }
            let came = |key: &&str| self.store.check(&[*key]).unwrap_or(false);
            let missing = (0..size).filter(|&rank| !came(&keys[rank as usize]));
            let missing: Vec<u32> = missing.collect();
            match missing.is_empty() {
                true => error,
                false => {
                    let message = format!(
                        "ranks {missing:?} did not come to the NCCL communicator: every rank of \
                         the group takes part in its first call on CUDA tensors"
                    );
                    timed_out(rank, missing, message)
                }
            }
        })?;
        self.each_has_its_own(&self.store.multi_get(&keys)?)
    }

    fn each_has_its_own(&self, devices: &[Vec<u8>]) -> Result<()> {
        for (one, device) in (0..).zip(devices) {
            let same = (one + 1..).zip(&devices[one as usize + 1..]).find(|it| it.1 == device);
            let Some((other, _)): Option<(u32, _)> = same else { continue };
            let device = String::from_utf8_lossy(device);
            let bus = device.split(' ').next().unwrap_or_default();
            return Err(Error::InvalidArgument {
                message: format!(
                    "ranks {one} and {other} both use the CUDA device at {bus} of one host: over \
                     NCCL, each rank needs a device of its own. Choose it by the local rank \
                     (LOCAL_RANK)"
                ),
            });
        }
        Ok(())
    }

    fn exchange_id(&self) -> Result<Vec<u8>> {
        const KEY: &str = "nccl/id";
        if self.ranks.0 == 0 {
            let id = new_id(self.found)?;
            self.store.set(KEY, &id)?;
            return Ok(id);
        }
        self.wait(&[KEY])?;
        self.store.get(KEY)
    }

    /// Waits until all of `keys` are there.
    ///
    /// # Errors
    /// [`Error::StoreTimeout`]; that the group broke before they were.
    fn wait(&self, keys: &[&str]) -> Result<()> {
        let WaitLimit { until, watch } = self.limit;
        let since = Instant::now();
        loop {
            // Zero would be no limit.
            let left = until.saturating_duration_since(Instant::now());
            let slice = left.clamp(Duration::from_millis(1), SLICE);
            match self.store.wait(keys, Some(slice)) {
                Err(Error::StoreTimeout { .. }) if Instant::now() < until => {}
                other => return other,
            }
            let Err(broke) = watch.check(since.elapsed()) else { continue };
            // A rank that has them may have broken the group over what they say. Then this one sees
            // it as well.
            if !self.store.check(keys)? {
                return Err(broke);
            }
            drop(watch.take_reason());
            return Ok(());
        }
    }
}
