//! The published cell on arc-swap. No other file names that crate.

use std::ops::Deref;
pub(crate) use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

/// The cell: a handle to the last published value. Clones share the cell.
pub(crate) struct Published<T>(Arc<Cell<T>>);

struct Cell<T> {
    current: ArcSwap<T>,
    /// Values that readers still held when the writer was dropped. They wait here for the last handle, so
    /// that no reader frees one by dropping its guard.
    leftover: Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(Arc::new(Cell { current: ArcSwap::new(value), leftover: Mutex::default() }))
    }

    /// The current value, for one piece of work. Changes no reference count while the value stays current.
    #[inline]
    pub(crate) fn load(&self) -> Guard<T> {
        self.0.current.load()
    }

    /// The current value, to keep.
    #[inline]
    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.current.load_full()
    }

    /// Publishes `value` and returns the replaced one. On return, every reader that still uses the old value
    /// is counted in its reference count, and no reader can reach it any more: [`is_sole_owner`] relies on
    /// that.
    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        self.0.current.swap(value)
    }

    /// A handle that caches the last value.
    pub(crate) fn cached(&self) -> Cached<T> {
        arc_swap::Cache::new(self.clone())
    }

    /// Keeps `values` until the last handle to this cell is dropped.
    pub(crate) fn leave_behind(&self, values: impl IntoIterator<Item = Arc<T>>) {
        self.0.leftover.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(values);
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Required by `arc_swap::Cache`.
impl<T> Deref for Published<T> {
    type Target = ArcSwap<T>;

    fn deref(&self) -> &ArcSwap<T> {
        &self.0.current
    }
}

/// A borrowed value of a [`Published`] cell.
pub(crate) type Guard<T> = arc_swap::Guard<Arc<T>>;

/// A handle for one thread: while nothing new is published, an access costs one relaxed load.
pub(crate) type Cached<T> = arc_swap::Cache<Published<T>, Arc<T>>;

/// Whether there is no other reference to `value`, now or later: [`Published::swap`] has returned it, and it
/// has no `Weak`.
pub(crate) fn is_sole_owner<T>(value: &mut Arc<T>) -> bool {
    // The count is a cheap first check without an order. `get_mut` synchronises with the last reader's release, so
    // that its reads come before what the caller frees.
    Arc::strong_count(value) == 1 && Arc::get_mut(value).is_some()
}
