//! Backends that are written in Rust, outside of this crate. Knows no particular one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{BackendContext, Driver, DriverFactory, DriverFuture};
use crate::backend::{
    Backend, Call, Capabilities, Direction, EndFuture, IssueOptions, IssuedOperation, Leaving,
    Transfer,
};
use crate::blocking::unblock;
use crate::generated::error::Result;

/// What a factory is making.
pub type FactoryFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>>;

/// Makes a backend for each new group. Functions of a [`BackendContext`] are factories.
///
/// It is called on every rank, and may wait for the others, by the store. If it fails on one, the
/// group is made on none, and the others say why.
pub trait BackendFactory: Send + Sync + 'static {
    /// The backend of this rank. May block.
    ///
    /// # Errors
    /// Why there is none.
    fn make(&self, context: BackendContext) -> Result<Arc<dyn Backend>>;

    /// As [`BackendFactory::make`], without blocking: on another thread, where a factory has no
    /// other way.
    fn make_async(self: Arc<Self>, context: BackendContext) -> FactoryFuture {
        Box::pin(unblock(move || self.make(context)))
    }
}

impl<F> BackendFactory for F
where
    F: Fn(BackendContext) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
{
    fn make(&self, context: BackendContext) -> Result<Arc<dyn Backend>> {
        self(context)
    }
}

/// The factory of such backends.
pub(super) struct Factory<F>(pub(super) Arc<F>);

impl<F: BackendFactory> DriverFactory for Factory<F> {
    fn make(&self, context: BackendContext) -> DriverFuture {
        let made = self.0.clone().make_async(context);
        Box::pin(async move {
            let driver: Arc<dyn Driver> = Arc::new(Outside(made.await?));
            Ok(driver)
        })
    }
}

struct Outside(Arc<dyn Backend>);

impl Driver for Outside {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn collective(
        &self,
        _place: &str,
        call: Call,
        options: IssueOptions,
    ) -> Result<IssuedOperation> {
        self.0.collective(call, options)
    }

    fn message(
        &self,
        _place: &str,
        direction: Direction,
        transfer: Transfer,
        options: IssueOptions,
    ) -> Result<IssuedOperation> {
        match direction {
            Direction::Send => self.0.send(transfer, options),
            Direction::Receive => self.0.recv(transfer, options),
        }
    }

    fn abort(&self, why: &str) {
        self.0.abort(why);
    }

    fn leave(&self, leaving: Leaving) -> EndFuture {
        self.0.clone().shutdown_async(leaving)
    }
}
