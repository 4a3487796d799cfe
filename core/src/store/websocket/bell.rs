//! Wakes the thread that waits for a pipe which another thread moves. Knows nothing of pipes.
//! Where there are no descriptors to wait for, nobody waits, and there is nothing to wake.

use crate::transport::Interest;

#[cfg(feature = "tcp")]
pub(super) use self::descriptor::Bell;
#[cfg(not(feature = "tcp"))]
pub(super) use self::silent::Bell;

/// The bells of all pipes that one session moves.
#[derive(Debug, Default)]
pub(super) struct Bells(Vec<Bell>);

impl Bells {
    /// A new one; `None` if the process has no descriptor left.
    pub(super) fn hang(&mut self) -> Option<Bell> {
        let bell = Bell::new()?;
        self.0.push(bell.clone());
        Some(bell)
    }

    /// Forgets one.
    pub(super) fn take_down(&mut self, bell: &Bell) {
        self.0.retain(|known| !known.is(bell));
    }

    /// Rings all of them.
    pub(super) fn ring(&self) {
        self.0.iter().for_each(Bell::ring);
    }
}

#[cfg(feature = "tcp")]
mod descriptor {
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use rustix::event::{EventfdFlags, eventfd};

    use super::Interest;

    /// A descriptor that can be read from when it was rung until it was heard.
    #[derive(Clone, Debug)]
    pub(in super::super) struct Bell(Arc<Ringing>);

    #[derive(Debug)]
    struct Ringing {
        fd: Arc<OwnedFd>,
        /// Whether it was rung and not heard, which is when the descriptor can be read: only the
        /// first ring costs a system call.
        rung: Mutex<bool>,
    }

    impl Bell {
        pub(super) fn new() -> Option<Bell> {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            Some(Bell(Arc::new(Ringing { fd: Arc::new(fd), rung: Mutex::new(false) })))
        }

        pub(super) fn is(&self, other: &Bell) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }

        pub(super) fn ring(&self) {
            let mut rung = self.lock();
            if !std::mem::replace(&mut *rung, true) {
                // Nothing was written since it was read, so that there is room.
                let _ = rustix::io::write(&*self.0.fd, &1u64.to_ne_bytes());
            }
        }

        /// Silences it; whether it was rung. Look only afterwards at what it was rung for.
        pub(in super::super) fn heard(&self) -> bool {
            let mut rung = self.lock();
            if *rung {
                let _ = rustix::io::read(&*self.0.fd, &mut [0_u8; 8]);
            }
            std::mem::take(&mut *rung)
        }

        fn lock(&self) -> MutexGuard<'_, bool> {
            // It is right between any two statements here.
            self.0.rung.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(in super::super) fn interest(&self) -> Option<Interest> {
            Some(Interest { fd: self.0.fd.clone(), writable: false })
        }
    }
}

#[cfg(not(feature = "tcp"))]
mod silent {
    use super::Interest;

    /// Nothing.
    #[derive(Clone, Debug)]
    pub(in super::super) struct Bell;

    impl Bell {
        pub(super) fn new() -> Option<Bell> {
            Some(Bell)
        }

        pub(super) fn is(&self, _: &Bell) -> bool {
            true
        }

        pub(super) fn ring(&self) {}

        pub(in super::super) fn heard(&self) -> bool {
            false
        }

        pub(in super::super) fn interest(&self) -> Option<Interest> {
            None
        }
    }
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::transport::wait::wait;

    fn is_rung(bell: &Bell) -> bool {
        wait(&[bell.interest().unwrap()], Some(Duration::ZERO))
    }

    #[test]
    fn a_bell_is_heard_once_and_can_be_rung_again() {
        let mut bells = Bells::default();
        let (bell, other) = (bells.hang().unwrap(), bells.hang().unwrap());
        for _ in 0..3 {
            assert!(!is_rung(&bell) && !bell.heard());
            bells.ring();
            bells.ring();
            assert!(is_rung(&bell) && is_rung(&other));
            assert!(bell.heard() && other.heard());
        }
        bells.take_down(&other);
        bells.ring();
        assert!(is_rung(&bell) && !is_rung(&other));
    }
}
