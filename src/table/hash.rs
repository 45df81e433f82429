//! Hashing of keys: seeded, so that chosen names or UIDs cannot cause collisions.

use ahash::RandomState;

use super::{Words, ends};

/// The seeds of one index. All snapshots of an index share them.
#[derive(Clone)]
pub(crate) struct Hashing {
    /// For long texts.
    texts: RandomState,
    /// For keys of a few words: one multiplication for two of them mixes them well enough and is several times faster.
    words: WordSeeds,
}

/// A seed for each of two words.
#[derive(Clone)]
struct WordSeeds {
    first: u64,
    second: u64,
}

impl Hashing {
    pub(crate) fn new() -> Self {
        // loom repeats runs, so a run must not depend on random values.
        let texts =
            if cfg!(pod_index_loom) { RandomState::with_seeds(1, 2, 3, 4) } else { RandomState::new() };
        let words = WordSeeds { first: texts.hash_one(0u64), second: texts.hash_one(1u64) };
        Self { texts, words }
    }

    /// The hash of a sixteen-byte key.
    #[inline]
    pub(crate) fn words(&self, Words(first, second): Words) -> u64 {
        let product = u128::from(first ^ self.words.first) * u128::from(second ^ self.words.second);
        let (low, high) = halves(product);
        low ^ high
    }

    /// The hash of a key of 32 bytes. The first half seeds the second, so that chosen halves cannot cancel
    /// out.
    #[inline]
    pub(crate) fn four_words(&self, key: [u64; 4]) -> u64 {
        let [a, b, c, d] = key;
        let first = self.words(Words(a, b));
        self.words(Words(c ^ first, d ^ first.rotate_left(32)))
    }

    /// The hash of a pair of texts.
    #[inline]
    pub(crate) fn pair(&self, first: impl AsRef<[u8]>, second: impl AsRef<[u8]>) -> u64 {
        self.words(Words(self.text(first.as_ref()), self.text(second.as_ref())))
    }

    /// The hash of a text. Names are short: the two ends of up to 32 bytes cover every byte, and take one or two
    /// multiplications.
    #[inline]
    fn text(&self, text: &[u8]) -> u64 {
        // Texts of different lengths can have the same ends.
        #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits count")]
        let seed = self.words.first ^ self.words.first.rotate_left(text.len() as u32);
        if text.len() > 32 {
            self.texts.hash_one(text)
        } else if let Some((first, last)) = ends::<16>(text) {
            let (a, b) = halves(u128::from_ne_bytes(first));
            let (c, d) = halves(u128::from_ne_bytes(last));
            self.four_words([a ^ seed, b, c, d])
        } else if let Some((first, last)) = ends::<8>(text) {
            self.words(Words(u64::from_ne_bytes(first) ^ seed, u64::from_ne_bytes(last)))
        } else if let Some((first, last)) = ends::<4>(text) {
            self.words(Words(u64::from(u32::from_ne_bytes(first)) ^ seed, u32::from_ne_bytes(last).into()))
        } else if let Some((first, last)) = ends::<2>(text) {
            self.words(Words(u64::from(u16::from_ne_bytes(first)) ^ seed, u16::from_ne_bytes(last).into()))
        } else {
            self.words(Words(seed, text.first().copied().unwrap_or_default().into()))
        }
    }

    /// Sixteen bytes that represent a string without a sixteen-byte form of its own. Equal strings have equal
    /// fingerprints; unequal ones almost never do, so the strings must still be compared.
    pub(crate) fn fingerprint(&self, text: &str) -> Words {
        Words(self.text(text.as_bytes()), self.texts.hash_one(text))
    }
}

/// The low and the high half of a number.
#[expect(clippy::cast_possible_truncation, reason = "both halves are returned")]
fn halves(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Hashing, Words};

    /// Arrays use the highest bits of a hash and tags the lowest, so both ends must distinguish UIDs, even
    /// those that share a word. Of 65,536 random draws, 41,000 are expected to be different.
    #[test]
    fn uids_spread_over_both_ends_of_the_hash() {
        // Random digits, as in a UUID.
        let digits = |n: u64| n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ n;
        let alike: [&dyn Fn(u64) -> Words; 3] =
            [&|n| Words(digits(n), digits(!n)), &|n| Words(digits(n), 0), &|n| Words(0, digits(n))];
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

    /// Names count, in front or at the end, in short and in long texts.
    #[test]
    fn texts_spread_over_both_ends_of_the_hash() {
        let alike: [&dyn Fn(u64) -> [String; 2]; 6] = [
            &|n| [format!("web-{n}"), "default".into()],
            &|n| [format!("{n}-web"), "shop".into()],
            &|n| [format!("web-7d9c5b6f4-{n:05x}"), "default".into()],
            &|n| [format!("{n:04x}"), String::new()],
            &|n| ["workload".into(), format!("shop/ReplicaSet/web-with-a-long-name-{n}")],
            // Halves that are equal.
            &|n| [format!("{n:08x}").repeat(4), format!("{n:08x}").repeat(4)],
        ];
        for key in alike {
            let hashing = Hashing::new();
            let hashes = || (0..1 << 16).map(key).map(|[first, second]| hashing.pair(first, second));
            let ends = [
                hashes().map(|hash| hash >> 48).collect::<HashSet<_>>().len(),
                hashes().map(|hash| hash & 0xffff).collect::<HashSet<_>>().len(),
            ];
            assert!(ends.iter().all(|different| *different > 40_000), "{:?}: {ends:?}", key(1));
        }
    }

    #[test]
    fn texts_of_one_letter_that_differ_in_a_letter_or_in_length_have_different_hashes() {
        let hashing = Hashing::new();
        let mut hashes = HashSet::new();
        for length in 0..70 {
            let text = "x".repeat(length);
            assert!(hashes.insert(hashing.pair(&text, "")), "{length}");
            for at in 0..length {
                let mut other = text.clone().into_bytes();
                other[at] = b'y';
                assert!(hashes.insert(hashing.pair(&other, "")), "{at} of {length}");
            }
        }
    }

    #[cfg(not(pod_index_loom))]
    #[test]
    fn two_indices_hash_one_key_differently() {
        let one = Hashing::new();
        let other = Hashing::new();
        assert_ne!(one.words(Words(1, 2)), other.words(Words(1, 2)));
        assert_ne!(one.pair("web", "default"), other.pair("web", "default"));
        assert!(one.fingerprint("uid") != other.fingerprint("uid"));
    }

    #[test]
    fn the_two_words_of_a_fingerprint_are_two_hashes() {
        let hashing = Hashing::new();
        let Words(first, second) = hashing.fingerprint("uid");
        assert_ne!(first, second);
        assert!(hashing.fingerprint("uid") == Words(first, second));
    }
}
