//! A value that changes while the agent runs, because a setting has changed.

use std::sync::{Arc, Mutex, PoisonError};

/// A value of a setting that SIGHUP changes at once ([`changes`](super::changes)). All clones have one value: whoever holds one
/// sees what another one was [set](Self::set) to.
#[derive(Debug)]
pub(crate) struct Changing<T>(Arc<Mutex<Arc<T>>>);

/// A changed setting was stored where the running agent looks it up: only [`Changing::set`] makes one. So a function that has to
/// return it cannot do nothing.
#[must_use]
#[derive(Debug)]
pub(crate) struct Stored(());

impl<T> Changing<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// The value of now. Ask for each use, and keep the `Changing`, not the value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, value: T) -> Stored {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
        Stored(())
    }
}

impl<T> Clone for Changing<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_sees_what_another_one_was_set_to() {
        let limit = Changing::new(1);
        let of_the_router = limit.clone();
        let _stored = limit.set(2);
        assert_eq!(*of_the_router.get(), 2);
    }
}
