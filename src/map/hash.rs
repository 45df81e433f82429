//! Hashing of keys: seeded, so that chosen names or UIDs cannot cause collisions.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

/// The seeds of one index. All snapshots of an index share them.
#[derive(Clone)]
pub(crate) struct Hashing {
    text: RandomState,
    /// For sixteen-byte keys: one multiplication mixes them well enough and is several times faster.
    words: (u64, u64),
}

impl Hashing {
    pub(crate) fn new() -> Self {
        // loom repeats runs, so a run must not depend on random values.
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

    /// The hash of a key of 32 bytes. The first half seeds the second, so that chosen halves cannot cancel
    /// out.
    #[inline]
    pub(crate) fn four_words(&self, key: [u64; 4]) -> u64 {
        let first = self.words((key[0], key[1]));
        self.words((key[2] ^ first, key[3] ^ first.rotate_left(32)))
    }

    /// The hash of a pair of texts.
    #[inline]
    pub(crate) fn pair(&self, first: impl AsRef<[u8]>, second: impl AsRef<[u8]>) -> u64 {
        let mut hasher = self.text.build_hasher();
        hasher.write(first.as_ref());
        hasher.write(second.as_ref());
        hasher.finish()
    }

    /// Sixteen bytes that represent a string without a sixteen-byte form of its own. Equal strings have equal
    /// fingerprints; unequal ones almost never do, so the strings must still be compared.
    pub(crate) fn fingerprint(&self, text: &str) -> (u64, u64) {
        (self.pair(text, ""), self.pair("", text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Hashing;

    /// Arrays use the highest bits of a hash and tags the lowest, so both ends must distinguish UIDs, even
    /// those that share a word. Of 65,536 random draws, 41,000 are expected to be different.
    #[test]
    fn uids_spread_over_both_ends_of_the_hash() {
        // Random digits, as in a UUID.
        let digits = |n: u64| n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ n;
        let alike: [&dyn Fn(u64) -> (u64, u64); 3] =
            [&|n| (digits(n), digits(!n)), &|n| (digits(n), 0), &|n| (0, digits(n))];
        for key in alike {
            let hashing = Hashing::new();
            let hashes = || (0..1 << 16).map(|n| hashing.words(key(n)));
            let ends = [
                hashes().map(|hash| hash >> 48).collect::<HashSet<_>>().len(),
                hashes().map(|hash| hash & 0xffff).collect::<HashSet<_>>().len(),
            ];
            assert!(ends.iter().all(|different| *different > 20_000), "{ends:?}");
        }
    }

    /// Halves that are equal, or differ only in a few bits, as an attacker would choose them.
    #[test]
    fn keys_of_four_words_spread_over_both_ends_of_the_hash() {
        let alike: [&dyn Fn(u64) -> [u64; 4]; 4] =
            [&|n| [n, 7, n, 7], &|n| [n, n, n, n], &|n| [n, 0, 0, 0], &|n| [0, 0, 0, n]];
        for key in alike {
            let hashing = Hashing::new();
            let hashes =
                || (1..=1 << 16).map(|n: u64| hashing.four_words(key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
            let ends = [
                hashes().map(|hash| hash >> 48).collect::<HashSet<_>>().len(),
                hashes().map(|hash| hash & 0xffff).collect::<HashSet<_>>().len(),
            ];
            assert!(ends.iter().all(|different| *different > 20_000), "{ends:?}");
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn two_indices_hash_one_key_differently() {
        let (one, other) = (Hashing::new(), Hashing::new());
        assert_ne!(one.words((1, 2)), other.words((1, 2)));
        assert_ne!(one.pair("web", "default"), other.pair("web", "default"));
        assert_ne!(one.fingerprint("uid"), other.fingerprint("uid"));
    }

    #[test]
    fn the_two_words_of_a_fingerprint_are_two_hashes() {
        let hashing = Hashing::new();
        let (first, second) = hashing.fingerprint("uid");
        assert_ne!(first, second);
        assert_eq!(hashing.fingerprint("uid"), (first, second));
    }
}
