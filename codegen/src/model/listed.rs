//! Enums whose variants can be listed with their documentation: those that core has too.

/// Defines an enum, and its variants as `VARIANTS`: names and documentation.
macro_rules! listed {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[doc = $doc:literal])+ $variant:ident,)+
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// The name and the documentation of each variant, in order.
            pub const VARIANTS: &[(&str, &str)] =
                &[$((stringify!($variant), concat!($($doc),+)),)+];
        }
    };
}

pub(super) use listed;
