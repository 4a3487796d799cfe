//! What all ranks have registered in a window: which elements, and whether this process can map
//! them. Knows no accesses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Result, Window, invalid, outside};
use crate::backend::{AccessTarget, Backend};
use crate::generated::dtype::DType;
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::tensor::shared::{ExportedMemory, MappedMemory, condemn};
use crate::tensor::{MAX_ATOMIC_BYTES, Region, SharedBytes, Tensor};
use crate::work::Work;

/// Bytes of what a rank tells of its tensor: ten numbers.
const RECORD_BYTES: usize = 10 * size_of::<u64>();

/// A tensor that is registered, and what the others said of theirs.
pub(super) struct Registration {
    tensor: Tensor,
    /// Where it lies in memory, for accesses of this rank.
    own: SharedBytes,
    rank: u32,
    /// Says which process a rank is.
    backend: Arc<dyn Backend>,
    /// Whether ranks of this host may have mapped it.
    is_exported: bool,
    /// Whether all ranks have agreed that nobody accesses it any more.
    is_over: AtomicBool,
    /// Gathers what the ranks say.
    work: Option<Work>,
    gathered: Region,
    /// What is equal on ranks that may map one another's memory.
    sharing: Option<u64>,
    targets: OnceLock<Vec<Target>>,
}

/// What a rank has registered.
pub(super) struct Target {
    pub(super) elements: usize,
    pub(super) dtype: DType,
    /// Its memory in this process, once it was looked for; none if it cannot be mapped.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    mapped: OnceLock<Option<MappedMemory>>,
    /// Where its rank says that it lies.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    exported: Option<ExportedMemory>,
}

/// Memory of a window that this process reads and writes itself.
#[derive(Clone, Copy)]
pub(super) struct Reached<'a> {
    pub(super) shared: &'a SharedBytes,
    /// The same, if it is this rank's own.
    pub(super) own: Option<&'a Region>,
}

impl<'a> Reached<'a> {
    /// Elements of this type, from byte `at` on.
    pub(super) fn target(self, at: usize, dtype: DType) -> AccessTarget<'a> {
        AccessTarget { shared: self.shared, own: self.own, at, dtype }
    }
}

/// What a rank tells the others.
#[derive(Default)]
struct Record {
    elements: u64,
    dtype: u64,
    /// Whether the rest says where its memory can be found.
    is_exported: u64,
    sharing: u64,
    place: [u64; 6],
}

/// Whether a tensor can be registered.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(tensor: &Tensor) -> Result<()> {
    let region = tensor.region();
    let size = tensor.dtype().size_bytes().min(MAX_ATOMIC_BYTES);
    let what = if region.device().is_some() {
        "a tensor must lie in memory of the host"
    } else if !tensor.is_contiguous() {
        "a tensor must be contiguous: others see its memory, not a copy"
    } else if tensor.is_read_only() {
        "a tensor must be writable"
    } else if region.is_on_loan() {
        "a tensor must lie in memory that stays: make it by this package"
    } else if !region.is_empty() && !region.address().is_multiple_of(size) {
        "a tensor must be aligned for its elements"
    } else {
        return Ok(());
    };
    Err(invalid("tensor_register", what))
}

impl Registration {
    /// Begins to tell the others of `tensor`, and to hear of theirs; the work is done when all
    /// have.
    pub(super) fn begin(
        window: &Window,
        tensor: Tensor,
        sharing: Option<u64>,
    ) -> Result<(Registration, Work)> {
        let record = Record::of(&tensor, sharing);
        let is_exported = record.is_exported != 0;
        let mut registration = Registration {
            own: SharedBytes::of(tensor.region()),
            tensor,
            rank: window.inner.rank,
            backend: window.inner.backend.clone(),
            is_exported,
            is_over: AtomicBool::new(false),
            work: None,
            gathered: Region::zeroed(0),
            sharing,
            targets: OnceLock::new(),
        };
        let (gathered, work) = window.gather("tensor_register", record.encode())?;
        (registration.gathered, registration.work) = (gathered, Some(work.clone()));
        Ok((registration, work))
    }

    /// All ranks have agreed that nobody accesses it any more.
    pub(super) fn note_agreed_end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Detaches what is mapped of the others' memory: what they do with it is their own affair, as
    /// soon as they hear that this rank accesses it no longer.
    pub(super) fn detach(&mut self) {
        self.targets = OnceLock::new();
    }

    /// What `rank` has registered; its memory, if this process can reach that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if not all ranks have registered
    /// yet; the failure of that.
    #[inline]
    pub(super) fn target(&self, name: &str, rank: u32) -> Result<(&Target, Option<Reached<'_>>)> {
        let targets = match self.targets.get() {
            Some(targets) => targets,
            None => self.learn(name)?,
        };
        let size = targets.len() as u32;
        let target = targets.get(rank as usize).ok_or_else(|| outside(name, rank, size))?;
        let memory = match rank == self.rank {
            true => Some(Reached { shared: &self.own, own: Some(self.tensor.region()) }),
            false => target.memory(rank, &self.backend),
        };
        Ok((target, memory))
    }

    /// This rank's tensor.
    pub(super) fn own_tensor(&self) -> &Tensor {
        &self.tensor
    }

    #[cold]
    fn learn(&self, name: &str) -> Result<&Vec<Target>> {
        let work = self.work.as_ref();
        match work.and_then(Work::error) {
            Some(error) => return Err(error),
            None if !work.is_some_and(Work::is_completed) => {
                let what = "tensor_register is not complete: wait for its work first";
                return Err(invalid(name, what));
            }
            None => {}
        }
        let records = self.gathered.read(|all| {
            let records = all.chunks_exact(RECORD_BYTES).map(Record::decode);
            records.map(|record| record.target(self.sharing)).collect::<Option<Vec<Target>>>()
        });
        let targets = records
            .ok_or_else(|| invalid(name, "a rank registered what this version does not know"))?;
        Ok(self.targets.get_or_init(|| targets))
    }
}

impl Target {
    /// Its memory, mapped into this process, if that is possible.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    #[inline]
    fn memory(&self, rank: u32, backend: &Arc<dyn Backend>) -> Option<Reached<'_>> {
        let mapped = self.mapped.get_or_init(|| self.map(rank, &**backend)).as_ref()?;
        Some(Reached { shared: mapped.bytes(), own: None })
    }

    /// Nobody's memory is mapped here.
    #[cfg(not(all(feature = "tcp", target_os = "linux")))]
    fn memory(&self, _: u32, _: &Arc<dyn Backend>) -> Option<Reached<'_>> {
        None
    }

    /// What its rank says counts only for the process that the system has named as that rank.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    #[cold]
    fn map(&self, rank: u32, backend: &dyn Backend) -> Option<MappedMemory> {
        let bytes = self.elements.checked_mul(self.dtype.size_bytes())?;
        let exported = self.exported.filter(|exported| exported.bytes == bytes as u64)?;
        let windows = backend.windows()?;
        let mapped = exported.map(windows.process_of(rank)?)?;
        windows.detach_at_end(mapped.mapping());
        Some(mapped)
    }
}

impl Record {
    fn of(tensor: &Tensor, sharing: Option<u64>) -> Record {
        let record = Record {
            elements: tensor.elements() as u64,
            dtype: u64::from(tensor.dtype() as u8),
            ..Record::default()
        };
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        if let Some(sharing) = sharing
            && let Some(exported) = ExportedMemory::of(tensor.region())
        {
            let [device, file] = exported.file;
            let process = u64::from(exported.process) << 32 | u64::from(exported.descriptor);
            let ExportedMemory { pool_bytes, at, bytes, .. } = exported;
            let place = [process, device, file, pool_bytes, at, bytes];
            return Record { is_exported: 1, sharing, place, ..record };
        }
        let _ = sharing;
        record
    }

    fn encode(&self) -> Vec<u8> {
        let Record { elements, dtype, is_exported, sharing, place } = self;
        let numbers = [elements, dtype, is_exported, sharing].into_iter().chain(place);
        numbers.flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Of [`RECORD_BYTES`] bytes.
    fn decode(bytes: &[u8]) -> Record {
        let mut numbers = bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        Record {
            elements: next(),
            dtype: next(),
            is_exported: next(),
            sharing: next(),
            place: std::array::from_fn(|_| next()),
        }
    }

    fn target(&self, sharing: Option<u64>) -> Option<Target> {
        let dtype = DType::from_code(u8::try_from(self.dtype).ok()?)?;
        let elements = usize::try_from(self.elements).ok()?;
        let _ = sharing;
        Some(Target {
            elements,
            dtype,
            #[cfg(all(feature = "tcp", target_os = "linux"))]
            mapped: OnceLock::new(),
            #[cfg(all(feature = "tcp", target_os = "linux"))]
            exported: self.exported().filter(|_| sharing == Some(self.sharing)),
        })
    }

    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn exported(&self) -> Option<ExportedMemory> {
        let [process, device, file, pool_bytes, at, bytes] = self.place;
        (self.is_exported != 0).then_some(ExportedMemory {
            process: (process >> 32) as u32,
            descriptor: process as u32,
            file: [device, file],
            pool_bytes,
            at,
            bytes,
        })
    }
}

impl Drop for Registration {
    /// A rank that has not heard that the group broke, was left, or that the window was closed, may
    /// still write to the memory that it has mapped: without its consent, nothing else may ever lie
    /// there.
    fn drop(&mut self) {
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        if self.is_exported && !self.is_over.load(Ordering::Acquire) {
            condemn(self.tensor.region());
        }
        #[cfg(not(all(feature = "tcp", target_os = "linux")))]
        let _ = (self.is_exported, self.is_over.load(Ordering::Acquire));
    }
}
