//! One place for each object, which whoever follows the object has to himself: no watch of an object begins while another
//! one of it is still about to end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::key::ObjectKey;

/// Held for as long as the object is followed.
pub(super) type Place = Arc<tokio::sync::Mutex<()>>;

/// The places of all objects that are followed, or about to be followed no more.
#[derive(Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: HashMap<ObjectKey, Weak<tokio::sync::Mutex<()>>>,
    /// So many places are looked through next for those that nobody needs any more.
    crowded: usize,
}

impl Places {
    /// The place of this object: the same one for all who have it or wait for it.
    pub(super) fn of(&self, key: &ObjectKey) -> Place {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known.places.get(key).and_then(Weak::upgrade) {
            return place;
        }
        // Each time twice as many as were left the last time: a few steps for each place, taken over all.
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
    fn a_place_is_shared_while_anybody_has_it_and_forgotten_some_time_after() {
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
