//! What is kept for a time: the oldest item is dropped first, and when there are too many.

use std::time::Instant;

use crate::options::KeepRemoved;
use crate::table::OrdMap;

/// Items by number. A clone shares them.
#[derive(Clone)]
pub(crate) struct Queue<T> {
    pub(crate) limits: KeepRemoved,
    items: OrdMap<u64, (Instant, T)>,
    next: u64,
}

impl<T: Clone> Queue<T> {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        Self { limits, items: OrdMap::new(), next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// A number that was not given out before.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn insert(&mut self, number: u64, at: Instant, item: T) {
        self.items.insert(number, (at, item));
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.items.remove(&number);
    }

    pub(crate) fn first(&self) -> Option<(u64, T)> {
        self.items.get_min().map(|(number, (_, item))| (*number, item.clone()))
    }

    /// The largest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.items.get_max().map(|(number, _)| *number)
    }

    /// When the first item must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.items.get_min()?.1.0.checked_add(self.limits.max_age)
    }
}
