//! Rust types that are tensor elements.

use crate::generated::dtype::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are tensor elements. Sealed: the table of dtypes is in the IDL.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor element type",
    label = "not an element type",
    note = "elements are bool, u8..u64, i8..i64, half::f16, half::bf16, f32, f64 and pairs \
            `[f32; 2]`, `[f64; 2]` (complex64, complex128)"
)]
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The dtype of these elements.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    bool => Bool, u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32,
    u64 => U64, i64 => I64, half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
    [f32; 2] => Complex64, [f64; 2] => Complex128,
}
