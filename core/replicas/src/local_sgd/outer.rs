//! What changes the parameters that replicas share, once in many steps.

use super::real::Real;
use crate::error::ManagerError;
use crate::state::StateError;

/// Changes shared parameters by the average of what replicas changed in theirs.
///
/// All replicas must do the same to the last bit: what they share is the same, and is not compared.
pub trait OuterOptimizer<T>: Send {
    /// Changes `parameters`, those from place `first` on of all.
    fn step(&mut self, first: usize, parameters: &mut [T], gradient: &[T]);

    /// What is remembered, for replicas that are new.
    fn save(&self) -> Vec<u8>;

    /// Becomes what `save` of another replica gave.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn load(&mut self, bytes: &[u8]) -> Result<(), StateError>;
}

/// Gradient descent with momentum, of Nesterov unless told otherwise. The defaults are those of the
/// DiLoCo paper: a rate of 0.7 and a momentum of 0.9.
#[derive(Clone, Debug)]
pub struct OuterSgd<T> {
    rate: f64,
    momentum: f64,
    is_nesterov: bool,
    /// Of all parameters up to the last that has had a step.
    velocities: Vec<T>,
}

impl<T> Default for OuterSgd<T> {
    fn default() -> OuterSgd<T> {
        OuterSgd { rate: 0.7, momentum: 0.9, is_nesterov: true, velocities: Vec::new() }
    }
}

impl<T> OuterSgd<T> {
    /// With this rate and momentum.
    ///
    /// # Errors
    /// [`ManagerError::Option`] for a rate of less than 0, or a momentum that is not from 0 to less
    /// than 1.
    pub fn new(rate: f64, momentum: f64) -> Result<OuterSgd<T>, ManagerError> {
        if rate < 0.0 || rate.is_nan() || !(0.0..1.0).contains(&momentum) {
            return Err(ManagerError::Option(format!(
                "OuterSgd: the rate must be 0 or more, and the momentum from 0 to less than 1, not \
                 {rate} and {momentum}"
            )));
        }
        Ok(OuterSgd { rate, momentum, ..OuterSgd::default() })
    }

    /// Whether the momentum is Nesterov's.
    #[must_use]
    pub fn nesterov(mut self, is_nesterov: bool) -> OuterSgd<T> {
        self.is_nesterov = is_nesterov;
        self
    }
}

impl<T: Real> OuterOptimizer<T> for OuterSgd<T> {
    fn step(&mut self, first: usize, parameters: &mut [T], gradient: &[T]) {
        let (rate, momentum) = (T::from_f64(self.rate), T::from_f64(self.momentum));
        let end = first + parameters.len();
        if self.velocities.len() < end {
            self.velocities.resize(end, T::default());
        }
        let velocities = &mut self.velocities[first..end];
        for ((parameter, velocity), slope) in parameters.iter_mut().zip(velocities).zip(gradient) {
            // Each operation is rounded by itself, so that all processors have the same bits.
            *velocity = *velocity * momentum + *slope;
            let step = match self.is_nesterov {
                true => *slope + *velocity * momentum,
                false => *velocity,
            };
            *parameter = *parameter - step * rate;
        }
    }

    fn save(&self) -> Vec<u8> {
        T::to_bytes(&self.velocities)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        self.velocities = T::from_bytes(bytes)?;
        Ok(())
    }
}
