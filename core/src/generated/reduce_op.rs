//! Reduction operators, and which of them an element type has.

use super::dtype::DType;

/// How elements of several ranks become one. The numbers are c10d's.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum ReduceOp {
    /// Addition.
    #[default]
    Sum,
    /// Sum divided by the number of ranks; integers truncate toward zero.
    Avg,
    /// Multiplication.
    Product,
    /// The least; NaN propagates.
    Min,
    /// The greatest; NaN propagates.
    Max,
    /// Bitwise and.
    Band,
    /// Bitwise or.
    Bor,
    /// Bitwise exclusive or.
    Bxor,
    /// Each rank's elements times the factor, then the sum.
    PremulSum(f64),
}

impl ReduceOp {
    /// The number that travels.
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Avg => 1,
            ReduceOp::Product => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Band => 5,
            ReduceOp::Bor => 6,
            ReduceOp::Bxor => 7,
            ReduceOp::PremulSum(_) => 8,
        }
    }

    /// The name that every language uses: `SUM`, `PREMUL_SUM`, …
    pub const fn name(self) -> &'static str {
        Self::name_of_code(self.code())
    }

    /// The name of a number that travelled.
    pub const fn name_of_code(code: u8) -> &'static str {
        match code {
            0 => "SUM",
            1 => "AVG",
            2 => "PRODUCT",
            3 => "MIN",
            4 => "MAX",
            5 => "BAND",
            6 => "BOR",
            7 => "BXOR",
            8 => "PREMUL_SUM",
            _ => "an unknown operator",
        }
    }

    /// Whether elements of `dtype` can be reduced by this operator.
    pub const fn supports(self, dtype: DType) -> bool {
        use DType::*;
        match self {
            ReduceOp::Sum => true,
            ReduceOp::Avg => !matches!(dtype, Bool),
            ReduceOp::Product | ReduceOp::Min | ReduceOp::Max => {
                !matches!(dtype, Complex64 | Complex128)
            }
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
                !matches!(dtype, F16 | Bf16 | F32 | F64 | Complex64 | Complex128)
            }
            ReduceOp::PremulSum(_) => {
                matches!(dtype, F16 | Bf16 | F32 | F64 | Complex64 | Complex128)
            }
        }
    }
}
