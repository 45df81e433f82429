//! The two usual spellings of a UID as sixteen bytes: a comparison of two words instead of a pointer to chase.
//!
//! The API server writes UIDs as lower-case hyphenated UUIDs, the kubelet those of static pods as 32 lower-case hex
//! digits. Nothing else is packed: an upper-case spelling is another UID, and two spellings must stay two UIDs.

/// A UID in one of the two usual spellings, as its sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Packed {
    /// `8-4-4-4-12` lower-case hex digits.
    Uuid([u8; 16]),
    /// 32 lower-case hex digits.
    Hex([u8; 16]),
}

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Packed {
    /// The packed form of `text`, if it is in one of the two spellings.
    #[inline]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if let Ok(text) = <&[u8; 36]>::try_from(text) {
            let mut digits = [0; 32];
            digits[..8].copy_from_slice(&text[..8]);
            digits[8..12].copy_from_slice(&text[9..13]);
            digits[12..16].copy_from_slice(&text[14..18]);
            digits[16..20].copy_from_slice(&text[19..23]);
            digits[20..].copy_from_slice(&text[24..]);
            let hyphens = text[8] == b'-' && text[13] == b'-' && text[18] == b'-' && text[23] == b'-';
            return unhex(&digits).filter(|_| hyphens).map(Self::Uuid);
        }
        unhex(text.try_into().ok()?).map(Self::Hex)
    }

    /// Writes the UID as it was spelled and returns it; `buffer` is long enough for both spellings.
    pub(crate) fn spell(self, buffer: &mut [u8; 36]) -> &str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (bytes, hyphenated) = match self {
            Self::Uuid(bytes) => (bytes, true),
            Self::Hex(bytes) => (bytes, false),
        };
        let mut at = 0;
        for byte in bytes {
            if hyphenated && HYPHENS.contains(&at) {
                buffer[at] = b'-';
                at += 1;
            }
            buffer[at] = DIGITS[usize::from(byte >> 4)];
            buffer[at + 1] = DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        // Only ASCII was written.
        str::from_utf8(&buffer[..at]).unwrap_or_default()
    }
}

/// Sixteen bytes from 32 lower-case hex digits.
///
/// Straight-line on purpose, with one test at the end: the compiler turns it into vector instructions, and a UID is
/// parsed on every look-up by string.
#[inline]
fn unhex(digits: &[u8; 32]) -> Option<[u8; 16]> {
    let mut nibbles = [0u8; 32];
    let mut bad = false;
    for (nibble, &digit) in nibbles.iter_mut().zip(digits) {
        let decimal = digit.wrapping_sub(b'0');
        let letter = digit.wrapping_sub(b'a');
        *nibble = if decimal < 10 { decimal } else { letter.wrapping_add(10) };
        bad |= decimal >= 10 && letter >= 6;
    }
    let mut bytes = [0u8; 16];
    for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    (!bad).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::Packed;

    #[test]
    fn the_two_usual_spellings_survive_the_round_trip() {
        for text in ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"] {
            let packed = Packed::parse(text).expect("a usual spelling");
            assert_eq!(packed.spell(&mut [0; 36]), text);
        }
    }

    #[test]
    fn the_two_spellings_of_the_same_digits_are_two_uids() {
        let uuid = Packed::parse("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
        let hex = Packed::parse("0f1e2d3c4b5a69788796a5b4c3d2e1f0");
        assert_ne!(uuid, hex);
    }

    /// Every byte at every place of both spellings: packed exactly if what it packs to spells the same text.
    #[test]
    fn nothing_but_lower_case_digits_and_hyphens_in_place_is_packed() {
        for good in ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"] {
            for at in 0..good.len() {
                for byte in 0..128u8 {
                    let mut text = good.as_bytes().to_vec();
                    text[at] = byte;
                    let text = String::from_utf8(text).expect("ASCII");
                    let usual = if good.as_bytes()[at] == b'-' {
                        byte == b'-'
                    } else {
                        byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
                    };
                    let packed = Packed::parse(&text);
                    assert_eq!(packed.is_some(), usual, "{text}");
                    if let Some(packed) = packed {
                        assert_eq!(packed.spell(&mut [0; 36]), text);
                    }
                }
            }
        }
    }

    #[test]
    fn other_lengths_are_not_packed() {
        for length in 0..64 {
            assert_eq!(Packed::parse(&"a".repeat(length)).is_some(), length == 32, "{length}");
        }
        assert_eq!(Packed::parse("ä1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"), None);
    }
}
