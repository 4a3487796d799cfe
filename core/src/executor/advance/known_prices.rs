//! What copies cost in an earlier group of such ranks, and in this one, for the next. Knows no
//! operations.

use std::sync::Arc;

use super::super::exchange_choice::ExchangeChoice;
use super::super::stores_choice::StoresChoice;
use super::Executor;
use crate::price::KnownPrices;

impl Executor {
    /// Begins with what copies cost in an earlier group. All ranks begin with the same, before
    /// their first operation and after [`Executor::with_board`].
    #[must_use]
    pub fn with_known_prices(mut self, known: &Arc<KnownPrices>) -> Executor {
        if !known.is_empty() {
            self.state.stores = StoresChoice::of_known(known);
            let exchange = self.state.exchange.as_mut();
            if let Some(choice) = exchange.and_then(|it| it.choice.as_deref_mut()) {
                *choice = ExchangeChoice::of_known(known);
            }
        }
        self
    }

    /// What copies cost, as far as this rank knows.
    pub fn known_prices(&self) -> KnownPrices {
        let mut known = KnownPrices::default();
        self.transport.add_prices(&mut known);
        self.state.stores.add_prices(&mut known);
        let exchange = self.state.exchange.as_ref();
        if let Some(choice) = exchange.and_then(|it| it.choice.as_deref()) {
            choice.add_prices(&mut known);
        }
        known
    }
}
