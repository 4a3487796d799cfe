//! What a backend can do, as data: a group answers with it, the site's table of backends is made of
//! it, and tests compare it with what they saw. Knows no particular backend.

#[cfg(all(unix, any(feature = "mpi", feature = "nccl")))]
use crate::debug_level::DebugLevel;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::request::CustomOp;

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How ranks that call different things find out.
    pub mismatches: Mismatches,
    /// Whether groups of some of the ranks can be made.
    pub split: bool,
    /// Whether a message can be received from any rank that sends one.
    pub any_source: bool,
    /// The highest tag of a message; of a backend that no group has yet, the highest that it takes
    /// everywhere.
    pub highest_tag: u32,
    /// How it runs collectives of tensors on CUDA devices.
    pub cuda: CudaTensors,
    /// Whether it runs collectives whose elements travel compressed.
    pub compression: bool,
    pub(super) collectives: u16,
    /// For each element type, the operators that it has, by their numbers.
    pub(super) reductions: [u16; DType::ALL.len()],
}

/// How collectives of tensors on CUDA devices run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaTensors {
    /// They are refused.
    Refused,
    /// By way of memory of the host, to which they are copied, and back.
    ByHost,
    /// Where they are.
    Directly,
}

/// How ranks find out that they called different things, or the same with different arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatches {
    /// Every operation compares what the ranks called.
    Always,
    /// Where an operation stands still, and when the group is left, the ranks compare what they
    /// called. One that ends all the same has done what the library behind the backend does with
    /// such ranks.
    WhenStalled,
}

impl Mismatches {
    /// Those of a backend whose library compares nothing, at a debug level.
    #[cfg(all(unix, any(feature = "mpi", feature = "nccl")))]
    pub(super) fn at(level: DebugLevel) -> Mismatches {
        match level {
            DebugLevel::Detail => Mismatches::Always,
            DebugLevel::Off | DebugLevel::Info => Mismatches::WhenStalled,
        }
    }
}

impl Capabilities {
    /// Everything that there is, but functions of the program as operators, and compression.
    pub const fn complete() -> Capabilities {
        let mut reductions = [0; DType::ALL.len()];
        let mut place = 0;
        while place < DType::ALL.len() {
            let dtype = DType::ALL[place];
            let scaled = ReduceOp::PremulSum(1.0);
            if scaled.supports(dtype) {
                reductions[dtype as usize] |= 1 << scaled.code();
            }
            let mut op = 0;
            while op < ReduceOp::WITHOUT_FACTOR.len() {
                if ReduceOp::WITHOUT_FACTOR[op].supports(dtype) {
                    reductions[dtype as usize] |= 1 << ReduceOp::WITHOUT_FACTOR[op].code();
                }
                op += 1;
            }
            place += 1;
        }
        Capabilities {
            mismatches: Mismatches::Always,
            split: true,
            any_source: true,
            highest_tag: u32::MAX,
            cuda: if cfg!(feature = "cuda") { CudaTensors::ByHost } else { CudaTensors::Refused },
            compression: false,
            collectives: (1 << Collective::ALL.len()) - 1,
            reductions,
        }
    }

    /// The same without a collective.
    #[must_use]
    pub const fn without(mut self, collective: Collective) -> Capabilities {
        self.collectives &= !(1 << collective as u8);
        self
    }

    /// The same with reductions by functions of the program: all ranks' tensors reach the rank that
    /// needs the result.
    #[must_use]
    pub const fn with_custom_reductions(mut self) -> Capabilities {
        let mut place = 0;
        while place < self.reductions.len() {
            self.reductions[place] |= 1 << ReduceOp::Custom(CustomOp::NONE).code();
            place += 1;
        }
        self
    }

    /// The same with elements that travel compressed.
    #[must_use]
    pub const fn with_compression(mut self) -> Capabilities {
        self.compression = true;
        self
    }

    /// The same without a reduction.
    #[must_use]
    pub const fn without_reduction(mut self, reduce_op: ReduceOp, dtype: DType) -> Capabilities {
        self.reductions[dtype as usize] &= !(1 << reduce_op.code());
        self
    }

    /// Whether it has the collective.
    pub const fn has(&self, collective: Collective) -> bool {
        self.collectives & (1 << collective as u8) != 0
    }

    /// Whether it reduces elements of `dtype` by `reduce_op`, whatever the operator's factor.
    pub const fn reduces(&self, reduce_op: ReduceOp, dtype: DType) -> bool {
        self.reductions[dtype as usize] & (1 << reduce_op.code()) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_has_a_meaning_is_complete_and_can_be_taken_away() {
        let complete = Capabilities::complete();
        for dtype in DType::ALL {
            for op in ReduceOp::WITHOUT_FACTOR.into_iter().chain([ReduceOp::PremulSum(0.5)]) {
                assert_eq!(complete.reduces(op, dtype), op.supports(dtype), "{op:?} {dtype:?}");
            }
        }
        assert!(Collective::ALL.into_iter().all(|collective| complete.has(collective)));
        let less =
            complete.without(Collective::Gather).without_reduction(ReduceOp::Bxor, DType::Bool);
        assert!(!less.has(Collective::Gather) && less.has(Collective::Scatter));
        assert!(!less.reduces(ReduceOp::Bxor, DType::Bool));
        assert!(
            less.reduces(ReduceOp::Bor, DType::Bool) && less.reduces(ReduceOp::Bxor, DType::U8)
        );
    }
}
