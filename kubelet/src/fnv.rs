//! FNV-1a, a hash that is the same on every machine and in every version. It detects accidental changes only:
//! it is not safe against forgery and must not be used for secrets.

/// 128 bits of the parts, as if they were one text. The kubelet uses this hash too.
pub(crate) fn fnv1a_128(parts: &[&[u8]]) -> u128 {
    let step = |hash: u128, byte: &u8| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    };
    parts.iter().copied().flatten().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
}

/// 64 bits.
pub(crate) fn fnv1a_64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::fnv1a_128;

    /// The published vectors of `draft-eastlake-fnv`, which Go's `hash/fnv` tests also use.
    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, digest) in [
            ("", "6c62272e07bb014262b821756295c58d"),
            ("a", "d228cb696f1a8caf78912b704e4a8964"),
            ("ab", "08809544bbab1be95aa0733055b69a62"),
            ("abc", "a68d622cec8b5822836dbc7977af7f3b"),
        ] {
            let (one, other) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(format!("{:032x}", fnv1a_128(&[one, other])), digest, "{text}");
        }
    }
}
