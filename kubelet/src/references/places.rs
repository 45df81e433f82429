//! A lock for each object, held by the task that follows it: no watch of an object starts before an earlier
//! one has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::key::ObjectKey;

/// Held while the object is followed.
pub(super) type Place = Arc<tokio::sync::Mutex<()>>;

/// The locks of all objects that are followed or whose watches are ending.
#[derive(Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: HashMap<ObjectKey, Weak<tokio::sync::Mutex<()>>>,
    /// Number of entries at which unused ones are removed.
    crowded: usize,
}

impl Places {
    /// The lock of this object, shared by all who hold it or wait for it.
    pub(super) fn of(&self, key: &ObjectKey) -> Place {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known.places.get(key).and_then(Weak::upgrade) {
            return place;
        }
        // The limit is twice what was left after the last cleanup, so the amortized cost is constant.
        if known.places.len() >= known.crowded {
            known.places.retain(|_, place| place.strong_count() > 0);
            known.crowded = (2 * known.places.len()).max(64);
        }
        let place = Place::default();
        known.places.insert(key.clone(), Arc::downgrade(&place));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::new("ns", &format!("s{number}")).unwrap()
    }

    #[test]
    fn a_lock_is_shared_while_it_is_in_use_and_removed_later() {
        let places = Places::default();
        let held = places.of(&key(0));
        for number in 1..10_000 {
            drop(places.of(&key(number)));
        }
        assert!(Arc::ptr_eq(&held, &places.of(&key(0))));
        assert!(!Arc::ptr_eq(&held, &places.of(&key(1))));
        assert!(places.0.lock().unwrap().places.len() <= 64);
    }
}
