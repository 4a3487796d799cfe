//! Methods that have short calls, by numbers: a language looks a method up once, and names it by
//! its number in each call. Knows no arrays.

use super::short::{ShortCall, ShortMethod, ShortNames};
use crate::calls::entry;
use crate::generated::reduce_op::ReduceOp;

/// The methods that were asked for, by their numbers.
#[derive(Debug, Default)]
pub struct ShortMethods(Vec<ShortMethod>);

impl ShortMethods {
    /// None yet.
    pub const fn new() -> ShortMethods {
        ShortMethods(Vec::new())
    }

    /// The number of `method`, in calls that have so many arrays first, and then an operator and a
    /// rank of these names or positions, where they are given; -1 if those are not short.
    pub fn add(&mut self, method: &str, arrays: usize, names: ShortNames<'_>) -> i32 {
        let found = entry(method).ok().and_then(|entry| ShortMethod::new(entry, arrays, names));
        let Some(found) = found else { return -1 };
        self.0.push(found);
        self.0.len() as i32 - 1
    }

    /// Whether the method with this number receives a message.
    pub fn is_receive(&self, method: usize) -> bool {
        self.0.get(method).is_some_and(|it| it.is_receive())
    }

    /// A call of the method with this number, with the operator of this code and this rank; a
    /// negative one is not given. None if there is no such method or operator.
    pub fn call(&self, method: usize, reduce_op: i32, rank: f64) -> Option<ShortCall> {
        let method = *self.0.get(method)?;
        let mut known = ReduceOp::WITHOUT_FACTOR.into_iter();
        let reduce_op = match reduce_op {
            ..0 => None,
            code => Some(known.find(|it| i32::from(it.code()) == code)?),
        };
        Some(ShortCall { method, reduce_op, rank: (rank >= 0.0).then_some(rank as u32) })
    }
}
