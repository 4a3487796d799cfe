//! Wakes a thread that waits for transports. Knows nothing of why it is woken. Where there are no
//! descriptors to wait for, no thread waits, and a bell does nothing.

#[cfg(feature = "tcp")]
pub(crate) use self::descriptor::Bell;
#[cfg(not(feature = "tcp"))]
pub(crate) use self::silent::Bell;

#[cfg(feature = "tcp")]
mod descriptor {
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use rustix::event::{EventfdFlags, eventfd};

    use crate::generated::error::{Error, Result};
    use crate::transport::Interest;

    /// A descriptor that is readable from [`Bell::ring`] until [`Bell::heard`].
    #[derive(Clone, Debug)]
    pub(crate) struct Bell(Arc<BellState>);

    #[derive(Debug)]
    struct BellState {
        fd: Arc<OwnedFd>,
        /// Whether it was rung and not heard, which is when the descriptor is readable: only the
        /// first ring costs a system call.
        rung: Mutex<bool>,
    }

    impl Bell {
        /// A bell that has not been rung.
        ///
        /// # Errors
        /// [`Error::Network`] if the process has no descriptor left.
        pub(crate) fn new() -> Result<Bell> {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let fd = fd.map_err(|error| Error::Network {
                message: format!("cannot make an event descriptor: {error}"),
            })?;
            Ok(Bell(Arc::new(BellState { fd: Arc::new(fd), rung: Mutex::new(false) })))
        }

        /// Whether it is the same bell.
        #[cfg(feature = "websocket")]
        pub(crate) fn is(&self, other: &Bell) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }

        /// Makes the descriptor readable.
        pub(crate) fn ring(&self) {
            let mut rung = self.lock();
            if !std::mem::replace(&mut *rung, true) {
                // Nothing was written since it was last read, so there is room.
                let _ = rustix::io::write(&*self.0.fd, &1u64.to_ne_bytes());
            }
        }

        /// Silences it, and returns whether it was rung. Check only afterwards what it was rung
        /// for.
        pub(crate) fn heard(&self) -> bool {
            let mut rung = self.lock();
            if *rung {
                let _ = rustix::io::read(&*self.0.fd, &mut [0_u8; 8]);
            }
            std::mem::take(&mut *rung)
        }

        fn lock(&self) -> MutexGuard<'_, bool> {
            // The flag is valid between any two statements here, even after a panic.
            self.0.rung.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// What a thread has to wait for in order to be woken.
        pub(crate) fn interest(&self) -> Option<Interest> {
            Some(Interest { fd: self.0.fd.clone(), writable: false })
        }
    }
}

#[cfg(not(feature = "tcp"))]
mod silent {
    use crate::generated::error::Result;
    use crate::transport::Interest;

    /// Nothing.
    #[derive(Clone, Debug)]
    pub(crate) struct Bell;

    impl Bell {
        pub(crate) fn new() -> Result<Bell> {
            Ok(Bell)
        }

        pub(crate) fn is(&self, _: &Bell) -> bool {
            true
        }

        pub(crate) fn ring(&self) {}

        pub(crate) fn heard(&self) -> bool {
            false
        }

        pub(crate) fn interest(&self) -> Option<Interest> {
            None
        }
    }
}
