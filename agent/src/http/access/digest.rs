//! Keys of caches: hashes that tell nobody what was hashed, so that a core dump or a bug shows no token.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use ring::hmac::{Context, HMAC_SHA256, Key};

/// A keyed hash of a question. Equal digests are equal questions: nobody outside knows the key, and SHA-256 has no known
/// collisions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

/// Computes digests with a key of this process.
pub(super) struct Digests(Key);

impl Digests {
    pub(super) fn new() -> Self {
        // The standard library seeds each of these from the system's source of randomness.
        let seed: [u64; 4] = std::array::from_fn(|number| RandomState::new().hash_one(number));
        let bytes: Vec<u8> = seed.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Self(Key::new(HMAC_SHA256, &bytes))
    }

    pub(super) fn of(&self, question: &impl Hash) -> Digest {
        let mut context = Hashing(Context::with_key(&self.0));
        question.hash(&mut context);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.0.sign().as_ref());
        Digest(digest)
    }
}

struct Hashing(Context);

impl Hasher for Hashing {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Not used: [`Digests::of`] takes all 256 bits.
    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_questions_have_equal_digests_and_others_do_not() {
        let digests = Digests::new();
        let of = |text: &str| digests.of(&text).0;
        assert_eq!(of("token"), of("token"));
        assert_ne!(of("token"), of("toke"));
        assert_ne!(digests.of(&("a", "bc")).0, digests.of(&("ab", "c")).0, "parts keep their bounds");
        assert_ne!(Digests::new().of(&"token").0, of("token"), "another process has another key");
    }
}
