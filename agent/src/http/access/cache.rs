//! Caches answers for a limited time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of cached answers: more clients than a node has. If a hostile client fills the cache, it is cleared.
const LARGEST: usize = 512;

/// Cached answers, by question.
#[derive(Debug)]
pub(super) struct Cache<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The cached answer, unless it has expired.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(_, until)| Instant::now() < *until).map(|(value, _)| value.clone())
    }

    /// Caches an answer for `good_for`.
    pub(super) fn put(&self, key: K, value: V, good_for: Duration) {
        let now = Instant::now();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= LARGEST {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= LARGEST {
            entries.clear();
        }
        entries.insert(key, (value, now + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cached_answer_expires_after_its_time() {
        let cache = Cache::new();
        cache.put("short", 1, Duration::from_secs(30));
        cache.put("long", 2, Duration::from_secs(300));
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert_eq!((cache.get(&"short"), cache.get(&"long"), cache.get(&"none")), (Some(1), Some(2), None));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((cache.get(&"short"), cache.get(&"long")), (None, Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_stays_small_and_keeps_the_last_answer() {
        let cache = Cache::new();
        for number in 0..10_000 {
            cache.put(number, (), Duration::from_secs(30));
            assert!(cache.get(&number).is_some());
        }
        assert!(cache.0.lock().unwrap().len() <= LARGEST);
    }
}
