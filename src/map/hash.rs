//! How keys are hashed: seeded, so that nobody who chooses names or UIDs can choose collisions.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

/// The seeds of one index. All snapshots of an index share them.
#[derive(Clone)]
pub(crate) struct Hashing {
    text: RandomState,
    /// For sixteen-byte keys, which one multiplication mixes well enough and several times faster.
    words: (u64, u64),
}

impl Hashing {
    pub(crate) fn new() -> Self {
        // loom explores by repeating a run, so a run must not depend on chance.
        let text = if cfg!(loom) { RandomState::with_seeds(1, 2, 3, 4) } else { RandomState::new() };
        let words = (text.hash_one(0u64), text.hash_one(1u64));
        Self { text, words }
    }

    /// The hash of a sixteen-byte key.
    #[inline]
    pub(crate) fn words(&self, key: (u64, u64)) -> u64 {
        let product = u128::from(key.0 ^ self.words.0) * u128::from(key.1 ^ self.words.1);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let folded = product as u64 ^ (product >> 64) as u64;
        folded
    }

    /// The hash of a pair of strings.
    #[inline]
    pub(crate) fn pair(&self, first: &str, second: &str) -> u64 {
        let mut hasher = self.text.build_hasher();
        hasher.write(first.as_bytes());
        hasher.write(second.as_bytes());
        hasher.finish()
    }

    /// Sixteen bytes that stand for a string which has no sixteen-byte form of its own. Equal strings agree; unequal
    /// ones almost never do, so whoever uses this must still compare the strings.
    pub(crate) fn fingerprint(&self, text: &str) -> (u64, u64) {
        (self.pair(text, ""), self.pair("", text))
    }
}
