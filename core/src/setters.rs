//! The methods that set one option each, as the generated options have them. Knows no options.

/// Writes, for each field of an options struct, the method of the field's name that sets it: what
/// it takes, and what is stored.
macro_rules! setters {
    ($options:ident { $($field:ident: $taken:ty => $stored:expr,)+ }) => {
        impl $options {
            $(
                #[doc = concat!("Sets [`", stringify!($options), "::", stringify!($field), "`].")]
                pub fn $field(mut self, $field: $taken) -> Self {
                    self.$field = $stored;
                    self
                }
            )+
        }
    };
}
