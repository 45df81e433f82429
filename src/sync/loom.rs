//! The published cell on loom's atomics, for the models in `loom-tests`.
//!
//! What is published is told by one atomic number: which of the values published so far is the current one. The values
//! are kept in plain std memory that loom does not see, so nothing but that number orders a reader after the writer.

use std::ops::Deref;

pub(crate) use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::Arc;

pub(crate) struct Published<T>(Arc<Shared<T>>);

struct Shared<T> {
    current: AtomicUsize,
    values: std::sync::Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(Arc::new(Shared { current: AtomicUsize::new(0), values: std::sync::Mutex::new(vec![value]) }))
    }

    pub(crate) fn load(&self) -> Guard<T> {
        Guard(self.load_full())
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        let current = self.0.current.load(Ordering::Acquire);
        Arc::clone(&self.values()[current])
    }

    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        self.values().push(value);
        let next = self.values().len() - 1;
        let previous = self.0.current.swap(next, Ordering::AcqRel);
        Arc::clone(&self.values()[previous])
    }

    pub(crate) fn cached(&self) -> Cached<T> {
        Cached { published: self.clone(), value: self.load_full() }
    }

    pub(crate) fn leave_behind(&self, _values: impl IntoIterator<Item = Arc<T>>) {}

    fn values(&self) -> std::sync::MutexGuard<'_, Vec<Arc<T>>> {
        self.0.values.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

pub(crate) struct Guard<T>(Arc<T>);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

pub(crate) struct Cached<T> {
    published: Published<T>,
    value: Arc<T>,
}

impl<T> Cached<T> {
    pub(crate) fn load(&mut self) -> &Arc<T> {
        self.value = self.published.load_full();
        &self.value
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { published: self.published.clone(), value: Arc::clone(&self.value) }
    }
}

pub(crate) fn is_sole_owner<T>(value: &Arc<T>) -> bool {
    Arc::strong_count(value) == 1
}
