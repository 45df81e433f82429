//! FNV-1a, a hash that is the same on every machine and in every version. It detects accidental changes only:
//! it is not safe against forgery and must not be used for secrets.

/// 128 bits. The kubelet uses this hash too.
pub(crate) struct Fnv128a(u128);

impl Fnv128a {
    pub(crate) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub(crate) fn digest(&self) -> u128 {
        self.0
    }
}

/// 64 bits.
pub(crate) fn fnv1a_64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::Fnv128a;

    /// The published vectors of `draft-eastlake-fnv`, which Go's `hash/fnv` tests also use.
    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, digest) in [
            ("", "6c62272e07bb014262b821756295c58d"),
            ("a", "d228cb696f1a8caf78912b704e4a8964"),
            ("ab", "08809544bbab1be95aa0733055b69a62"),
            ("abc", "a68d622cec8b5822836dbc7977af7f3b"),
        ] {
            let mut hasher = Fnv128a::new();
            hasher.update(text.as_bytes());
            assert_eq!(format!("{:032x}", hasher.digest()), digest, "{text}");
        }
    }
}
