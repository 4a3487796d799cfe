//! What all ranks have registered in a window: which elements, and whether this process can map
//! them. Knows no accesses.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ProcessGroup, Result, invalid};
use crate::generated::dtype::DType;
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::tensor::shared::ExportedMemory;
use crate::tensor::{MAX_ATOMIC_BYTES, Region, SharedBytes, Tensor};
use crate::work::Work;

/// Bytes of what a rank tells of its tensor: ten numbers.
const RECORD_BYTES: usize = 10 * size_of::<u64>();

/// A tensor that is registered, and what the others said of theirs.
pub(super) struct Registration {
    tensor: Tensor,
    /// Where it lies in memory, for accesses of this rank.
    own: SharedBytes,
    rank: usize,
    /// Whether ranks of this host may have mapped it.
    is_exported: bool,
    /// Whether all ranks have agreed that nobody accesses it any more.
    is_over: AtomicBool,
    /// Gathers what the ranks say.
    work: Work,
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
    mapped: OnceLock<Option<SharedBytes>>,
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    exported: Option<ExportedMemory>,
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
        group: &ProcessGroup,
        tensor: Tensor,
        sharing: Option<u64>,
    ) -> Result<(Registration, Work)> {
        let record = Record::of(&tensor, sharing);
        let is_exported = record.is_exported != 0;
        let (gathered, work) = group.gather_bytes(record.encode())?;
        let registration = Registration {
            own: SharedBytes::of(tensor.region()),
            tensor,
            rank: group.rank() as usize,
            is_exported,
            is_over: AtomicBool::new(false),
            work: work.clone(),
            gathered,
            sharing,
            targets: OnceLock::new(),
        };
        Ok((registration, work))
    }

    /// All ranks have agreed that nobody accesses it any more.
    pub(super) fn note_agreed_end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// What `rank` has registered; its memory, if this process can reach that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if not all ranks have registered yet; the failure of that.
    #[inline]
    pub(super) fn target(&self, name: &str, rank: u32) -> Result<(&Target, Option<&SharedBytes>)> {
        let targets = match self.targets.get() {
            Some(targets) => targets,
            None => self.learn(name)?,
        };
        let rank = rank as usize;
        let size = targets.len();
        let target = targets
            .get(rank)
            .ok_or_else(|| invalid(name, &format!("expected a rank in 0..{size}, got {rank}")))?;
        let memory = match rank == self.rank {
            true => Some(&self.own),
            false => target.memory(),
        };
        Ok((target, memory))
    }

    /// The length of each dimension of this rank's tensor.
    pub(super) fn own_shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    #[cold]
    fn learn(&self, name: &str) -> Result<&Vec<Target>> {
        match self.work.error() {
            Some(error) => return Err(error),
            None if !self.work.is_completed() => {
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
    #[inline]
    fn memory(&self) -> Option<&SharedBytes> {
        match self.mapped.get() {
            Some(known) => known.as_ref(),
            None => self.mapped.get_or_init(|| self.map()).as_ref(),
        }
    }

    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn map(&self) -> Option<SharedBytes> {
        let bytes = self.elements.checked_mul(self.dtype.size_bytes())?;
        self.exported.filter(|exported| exported.bytes == bytes as u64)?.map()
    }

    #[cfg(not(all(feature = "tcp", target_os = "linux")))]
    fn map(&self) -> Option<SharedBytes> {
        None
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
    /// A rank that has not heard that the group broke, or was left, may still write to the memory
    /// that it has mapped: without its consent, nothing else may ever lie there.
    fn drop(&mut self) {
        if self.is_exported && !self.is_over.load(Ordering::Acquire) {
            std::mem::forget(self.tensor.region().clone());
        }
    }
}
