//! What JavaScript has numbers of, which are given again when they are free. Knows nothing of what
//! that is.

use std::rc::Rc;

use wasm_bindgen::throw_str;

/// Things by their numbers.
pub(crate) struct Slots<T> {
    entries: Vec<Option<Rc<T>>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new() }
    }

    /// Stores `entry`; its number, which nothing else has until it is taken out.
    pub(crate) fn add(&mut self, entry: T) -> u32 {
        let entry = Some(Rc::new(entry));
        match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    /// What has this number. Throws if nothing has: JavaScript's half gives up a number once.
    pub(crate) fn get(&self, number: u32) -> Rc<T> {
        let found = self.entries.get(number as usize).and_then(Option::clone);
        found.unwrap_or_else(|| throw_str("polyrank: the operation was given up"))
    }

    /// Takes out what has this number, which is free then.
    pub(crate) fn take(&mut self, number: u32) -> Option<Rc<T>> {
        let taken = self.entries.get_mut(number as usize).and_then(Option::take);
        if taken.is_some() {
            self.free.push(number);
        }
        taken
    }
}
