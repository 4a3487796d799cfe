//! The three binary interfaces that MPI libraries have: how wide a handle is, which constants stand
//! for what, where a status has the sender. Knows no function.
//!
//! Sources: MPI 5.0, chapter 20 (the standard ABI); `mpi.h` of MPICH 4.0 and 5.0; `mpi.h` of
//! Open MPI 4.1 and 5.0.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use libloading::os::unix::Library;

/// Which binary interface a library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abi {
    /// That of the MPI 5 standard: handles are pointers, constants small numbers.
    Standard,
    /// MPICH's since 2014: handles are of type `int`.
    Mpich,
    /// Open MPI's: handles are pointers, constants are addresses of variables.
    OpenMpi,
}

/// A handle as the library has it: an `int` or a pointer.
pub(super) trait Handle: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static {
    /// The handle of these bits.
    fn from_bits(bits: usize) -> Self;
}

impl Handle for c_int {
    fn from_bits(bits: usize) -> c_int {
        // The constants are given as `unsigned`; the bits count.
        bits as u32 as c_int
    }
}

impl Handle for usize {
    fn from_bits(bits: usize) -> usize {
        bits
    }
}

/// Bytes that are enough for the `MPI_Status` of any of the three, aligned as the widest.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct Status([c_int; 10]);

impl Status {
    /// Where a function writes it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    /// The sender's rank.
    pub(super) fn source(&self, abi: Abi) -> c_int {
        match abi {
            // { MPI_SOURCE, MPI_TAG, MPI_ERROR, … }
            Abi::Standard | Abi::OpenMpi => self.0[0],
            // { count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR }
            Abi::Mpich => self.0[2],
        }
    }
}

/// The constants of one library.
#[derive(Clone, Debug)]
pub(super) struct Constants<H> {
    pub(super) comm_world: H,
    pub(super) comm_self: H,
    pub(super) request_null: H,
    pub(super) errors_return: H,
    pub(super) types: Types<H>,
    pub(super) ops: Ops<H>,
    /// `MPI_IN_PLACE`.
    pub(super) in_place: usize,
    /// `MPI_STATUS_IGNORE`.
    pub(super) status_ignore: usize,
    pub(super) any_source: c_int,
    pub(super) tag_ub: c_int,
    pub(super) thread_multiple: c_int,
    /// The other thread levels, for messages.
    pub(super) thread_levels: [(c_int, &'static str); 3],
}

/// Element types that have one form everywhere.
#[derive(Clone, Debug)]
pub(super) struct Types<H> {
    pub(super) byte: H,
    pub(super) i8: H,
    pub(super) i16: H,
    pub(super) i32: H,
    pub(super) i64: H,
    pub(super) u8: H,
    pub(super) u16: H,
    pub(super) u32: H,
    pub(super) u64: H,
    pub(super) f32: H,
    pub(super) f64: H,
}

/// The predefined operators that are used.
#[derive(Clone, Debug)]
pub(super) struct Ops<H> {
    pub(super) sum: H,
    pub(super) prod: H,
    pub(super) min: H,
    pub(super) max: H,
    pub(super) band: H,
    pub(super) bor: H,
    pub(super) bxor: H,
    pub(super) land: H,
    pub(super) lor: H,
    pub(super) lxor: H,
}

/// Those of the MPI 5 standard ABI.
pub(super) fn standard() -> Constants<usize> {
    Constants {
        comm_world: 0x101,
        comm_self: 0x102,
        request_null: 0x180,
        errors_return: 0x143,
        types: Types {
            byte: 0x247,
            i8: 0x240,
            i16: 0x248,
            i32: 0x250,
            i64: 0x258,
            u8: 0x241,
            u16: 0x249,
            u32: 0x251,
            u64: 0x259,
            f32: 0x210,
            f64: 0x214,
        },
        ops: Ops {
            sum: 0x21,
            min: 0x22,
            max: 0x23,
            prod: 0x24,
            band: 0x28,
            bor: 0x29,
            bxor: 0x2a,
            land: 0x30,
            lor: 0x31,
            lxor: 0x32,
        },
        in_place: 1,
        status_ignore: 0,
        any_source: -1,
        tag_ub: 501,
        thread_multiple: 4096,
        thread_levels: levels([0, 1024, 2048]),
    }
}

/// Those of MPICH's own ABI.
pub(super) fn mpich() -> Constants<c_int> {
    let handle = |bits: u32| bits as c_int;
    Constants {
        comm_world: handle(0x4400_0000),
        comm_self: handle(0x4400_0001),
        request_null: handle(0x2c00_0000),
        errors_return: handle(0x5400_0001),
        types: Types {
            byte: handle(0x4c00_010d),
            i8: handle(0x4c00_0137),
            i16: handle(0x4c00_0238),
            i32: handle(0x4c00_0439),
            i64: handle(0x4c00_083a),
            u8: handle(0x4c00_013b),
            u16: handle(0x4c00_023c),
            u32: handle(0x4c00_043d),
            u64: handle(0x4c00_083e),
            f32: handle(0x4c00_040a),
            f64: handle(0x4c00_080b),
        },
        ops: Ops {
            max: handle(0x5800_0001),
            min: handle(0x5800_0002),
            sum: handle(0x5800_0003),
            prod: handle(0x5800_0004),
            band: handle(0x5800_0006),
            bor: handle(0x5800_0008),
            bxor: handle(0x5800_000a),
            land: handle(0x5800_0005),
            lor: handle(0x5800_0007),
            lxor: handle(0x5800_0009),
        },
        in_place: usize::MAX,
        status_ignore: 1,
        any_source: -2,
        tag_ub: 0x6440_0001,
        thread_multiple: 3,
        thread_levels: levels([0, 1, 2]),
    }
}

/// Those of Open MPI: addresses of its variables.
///
/// # Errors
/// The name of a variable that the library lacks.
pub(super) fn open_mpi(library: &Library) -> Result<Constants<usize>, String> {
    let address = |name: &str| {
        // SAFETY: only the address of the symbol is taken; nothing is read or called through it.
        let symbol = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
        symbol.map(|symbol| symbol.into_raw() as usize).map_err(|_| format!("it lacks {name}"))
    };
    let of_type = |name: &str| address(&format!("ompi_mpi_{name}"));
    let op = |name: &str| address(&format!("ompi_mpi_op_{name}"));
    Ok(Constants {
        comm_world: address("ompi_mpi_comm_world")?,
        comm_self: address("ompi_mpi_comm_self")?,
        request_null: address("ompi_request_null")?,
        errors_return: address("ompi_mpi_errors_return")?,
        types: Types {
            byte: of_type("byte")?,
            i8: of_type("int8_t")?,
            i16: of_type("int16_t")?,
            i32: of_type("int32_t")?,
            i64: of_type("int64_t")?,
            u8: of_type("uint8_t")?,
            u16: of_type("uint16_t")?,
            u32: of_type("uint32_t")?,
            u64: of_type("uint64_t")?,
            f32: of_type("float")?,
            f64: of_type("double")?,
        },
        ops: Ops {
            sum: op("sum")?,
            prod: op("prod")?,
            min: op("min")?,
            max: op("max")?,
            band: op("band")?,
            bor: op("bor")?,
            bxor: op("bxor")?,
            land: op("land")?,
            lor: op("lor")?,
            lxor: op("lxor")?,
        },
        in_place: 1,
        status_ignore: 0,
        any_source: -1,
        tag_ub: 0,
        thread_multiple: 3,
        thread_levels: levels([0, 1, 2]),
    })
}

fn levels([single, funneled, serialized]: [c_int; 3]) -> [(c_int, &'static str); 3] {
    [
        (single, "MPI_THREAD_SINGLE"),
        (funneled, "MPI_THREAD_FUNNELED"),
        (serialized, "MPI_THREAD_SERIALIZED"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_large_enough_for_all_three() {
        // Standard 32 bytes, MPICH 20, Open MPI 24.
        assert!(size_of::<Status>() >= 32);
        let status = Status([7, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(status.source(Abi::OpenMpi), 7);
        assert_eq!(status.source(Abi::Standard), 7);
        assert_eq!(status.source(Abi::Mpich), 9);
    }

    #[test]
    fn handles_of_mpich_are_the_bits_of_its_header() {
        assert_eq!(mpich().comm_world as u32, 0x4400_0000);
        assert_eq!(c_int::from_bits(0xffff_ffff), -1);
        assert_eq!(usize::from_bits(0x101), standard().comm_world);
    }
}
