//! The place of `known` where nothing is kept, as in a browser: nothing is known, and a page need
//! not load what would look for it.

use super::Price;

/// Prices by name, of which there are none.
#[derive(Clone, Debug, Default)]
pub struct KnownPrices {}

impl KnownPrices {
    /// There are none.
    pub fn get<const WAYS: usize>(&self, _name: &str) -> Option<[Price; WAYS]> {
        None
    }

    /// Nothing is kept.
    pub fn insert(&mut self, _name: String, _prices: &[Price]) {}

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// What another rank knows is nothing here.
    ///
    /// # Errors
    /// Always.
    pub fn decode(_text: &str) -> Result<(&str, KnownPrices), &'static str> {
        Err("nothing is kept here")
    }
}

/// Prices have no names.
pub(crate) fn size_name(_bytes: usize) -> String {
    String::new()
}
