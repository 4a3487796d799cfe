//! The bells of those that wait for pipes which another thread moves. Knows nothing of pipes.

use crate::transport::Bell;

/// The bells of all pipes that one session moves.
#[derive(Debug, Default)]
pub(super) struct Bells(Vec<Bell>);

impl Bells {
    /// A new one; `None` if the process has no descriptor left.
    pub(super) fn hang(&mut self) -> Option<Bell> {
        let bell = Bell::new().ok()?;
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
