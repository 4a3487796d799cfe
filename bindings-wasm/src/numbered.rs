//! What JavaScript has numbers of. Knows nothing of what that is.

/// Things by their numbers, which are given one after the other.
pub(crate) struct Numbered<T> {
    last: u32,
    /// By rising numbers.
    entries: Vec<(u32, T)>,
}

impl<T> Numbered<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Numbered<T> {
        Numbered { last: 0, entries: Vec::new() }
    }

    /// A number that nothing has.
    pub(crate) fn next(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// Stores `entry` under this number.
    pub(crate) fn insert(&mut self, number: u32, entry: T) {
        let at = self.entries.partition_point(|(known, _)| *known < number);
        self.entries.insert(at, (number, entry));
    }

    /// Stores `entry` under a new number, which it returns.
    pub(crate) fn add(&mut self, entry: T) -> u32 {
        let number = self.next();
        self.insert(number, entry);
        number
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |(known, _)| *known).ok()
    }

    /// What has this number.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.place(number).map(|at| &self.entries[at].1)
    }

    /// What has this number, to be changed.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.place(number).map(|at| &mut self.entries[at].1)
    }

    /// What has this number, which is not found by it any more.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.place(number).map(|at| self.entries.remove(at).1)
    }
}
