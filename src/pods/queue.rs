//! What is kept for a time: the oldest item is dropped first, and when there are too many.

use std::time::Instant;

use crate::options::KeepRemoved;
use crate::table::OrdMap;

/// Items by number. A clone shares them.
#[derive(Clone)]
pub(crate) struct Queue<T> {
    pub(crate) limits: KeepRemoved,
    items: OrdMap<u64, Queued<T>>,
    next: u64,
}

/// An item, and when its time began.
#[derive(Clone)]
struct Queued<T> {
    at: Instant,
    item: T,
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

    /// Adds an item with a number of its own. A time before that of the last item counts as that one, so that the items are
    /// dropped in their order.
    pub(crate) fn insert(&mut self, number: u64, at: Instant, item: T) -> Instant {
        let last = self.items.get_max().map(|(_, last)| last.at);
        let at = last.map_or(at, |last| last.max(at));
        self.items.insert(number, Queued { at, item });
        at
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.items.remove(&number);
    }

    pub(crate) fn first(&self) -> Option<(u64, T)> {
        self.items.get_min().map(|(number, queued)| (*number, queued.item.clone()))
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &T> {
        self.items.values().rev().map(|queued| &queued.item)
    }

    /// The largest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.items.get_max().map(|(number, _)| *number)
    }

    /// When the first item must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.items.get_min()?.1.at.checked_add(self.limits.max_age)
    }
}
