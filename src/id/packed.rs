//! The two usual spellings of a UID, packed into sixteen bytes: comparing two words is cheaper than following
//! a pointer.
//!
//! The API server writes UIDs as lower-case hyphenated UUIDs, the kubelet writes those of static pods as 32
//! lower-case hex digits. Nothing else is packed: an upper-case spelling is another UID, so two spellings
//! must stay two UIDs.

/// A UID in one of the two usual spellings, as two words with four bits per digit.
///
/// Words, not bytes, so that it stays in registers between parsing and comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Packed {
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) form: Form,
}

/// What was to be 32 lower-case hex digits, as two words.
struct Unhexed {
    first: u64,
    second: u64,
    /// Not 0 if there is any other character.
    wrong: u128,
}

/// One of the two usual spellings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Form {
    /// `8-4-4-4-12` lower-case hex digits.
    Uuid,
    /// 32 lower-case hex digits.
    Hex,
}

/// Positions of the hyphens of a UUID. All differ modulo four, which `unhex_uuid` uses.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Packed {
    /// The packed form of `text`, if it is in one of the two spellings.
    #[expect(
        clippy::inline_always,
        reason = "a call would pass the words through memory and cost more than the parse"
    )]
    #[inline(always)]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if let Ok(text) = <&[u8; 36]>::try_from(text) {
            return unhex_uuid(text).packed(Form::Uuid);
        }
        let ([first, second], []) = text.as_chunks() else { return None };
        unhex(*first, *second).packed(Form::Hex)
    }

    /// The first eight digits, which are the same characters in both spellings, as a number in their order.
    pub(crate) fn first_digits(self) -> u64 {
        // They are in the lower halves of the first eight bytes.
        (self.first & 0x0f0f_0f0f_0f0f_0f0f).swap_bytes()
    }

    /// Writes the UID in its spelling and returns it. `buffer` is long enough for both spellings.
    pub(crate) fn spell(self, buffer: &mut [u8; 36]) -> &str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = (u128::from(self.second) << 64 | u128::from(self.first)).to_le_bytes();
        let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
        for (at, byte) in bytes.into_iter().enumerate() {
            buffer[at] = digit(byte);
            buffer[at + 16] = digit(byte >> 4);
        }
        let length = match self.form {
            Form::Hex => 32,
            Form::Uuid => {
                // See `unhex_uuid`.
                for at in HYPHENS {
                    buffer[32 + at % 4] = buffer[at];
                    buffer[at] = b'-';
                }
                36
            }
        };
        // Only ASCII was written.
        str::from_utf8(&buffer[..length]).unwrap_or_default()
    }
}

impl Unhexed {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn packed(self, form: Form) -> Option<Packed> {
        let Self { first, second, wrong } = self;
        if wrong != 0 {
            unusual();
            return None;
        }
        Some(Packed { first, second, form })
    }
}

/// Tells the compiler that a UID in neither usual spelling is rare. Then it branches, and a lookup goes on with the words while they
/// are checked. Otherwise it makes the `Option` without a branch, and a lookup by a UID's text takes a fifth longer.
#[cold]
fn unusual() {}

/// Packs 32 lower-case hex digits into sixteen bytes.
///
/// The first sixteen digits go into the low halves of the bytes, the others into the high halves: any
/// reversible order will do, and this one is the cheapest. Every lookup by string parses a UID, so this is
/// straight-line vector code without a branch before the end.
#[inline]
fn unhex(first: [u8; 16], second: [u8; 16]) -> Unhexed {
    let mut bytes = [0u8; 16];
    let mut wrong = [0u8; 16];
    for at in 0..16 {
        let (low, low_wrong) = nibble(first[at]);
        let (high, high_wrong) = nibble(second[at]);
        bytes[at] = join(low, high);
        wrong[at] = low_wrong | high_wrong;
    }
    let both = u128::from_le_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let [first, second] = [both as u64, (both >> 64) as u64];
    Unhexed { first, second, wrong: u128::from_ne_bytes(wrong) }
}

/// Packs 64 lower-case hex digits into four words, in the same order as two times 32.
#[inline]
pub(crate) fn unhex_64(digits: &[u8; 64]) -> Option<[u64; 4]> {
    let [a, b, c, d] = digits.as_chunks().0 else { return None };
    let one = unhex(*a, *b);
    let other = unhex(*c, *d);
    let is_right = one.wrong | other.wrong == 0;
    is_right.then_some([one.first, one.second, other.first, other.second])
}

/// The same for a UUID. The first 32 characters keep their positions. Each hyphen is replaced by one of the
/// last four digits: the digit at that position if those four are repeated. So nothing has to be shifted.
#[inline]
fn unhex_uuid(text: &[u8; 36]) -> Unhexed {
    let mut first = [0; 16];
    let mut second = [0; 16];
    let mut last = [[0; 4]; 4];
    first.copy_from_slice(&text[..16]);
    second.copy_from_slice(&text[16..32]);
    last[0].copy_from_slice(&text[32..]);
    last = [last[0]; 4];
    let last = last.as_flattened();
    let mut no_hyphen = [0; 16];
    for at in 0..16 {
        let [hyphens, more_hyphens] = [IS_HYPHEN[0][at], IS_HYPHEN[1][at]];
        no_hyphen[at] = (first[at] ^ b'-') & hyphens | (second[at] ^ b'-') & more_hyphens;
        first[at] = first[at] & !hyphens | last[at] & hyphens;
        second[at] = second[at] & !more_hyphens | last[at] & more_hyphens;
    }
    let unhexed = unhex(first, second);
    Unhexed { wrong: unhexed.wrong | u128::from_ne_bytes(no_hyphen), ..unhexed }
}

/// All bits set at the hyphens among the first sixteen characters of a UUID, and among the next.
const IS_HYPHEN: [[u8; 16]; 2] = {
    let mut is_hyphen = [[0; 16]; 2];
    let mut number = 0;
    while number < HYPHENS.len() {
        is_hyphen[HYPHENS[number] / 16][HYPHENS[number] % 16] = 0xff;
        number += 1;
    }
    is_hyphen
};

/// Two digits in a byte.
#[inline]
fn join(low: u8, high: u8) -> u8 {
    low | high << 4
}

/// The value of a lower-case hex digit, and something that is not 0 if it is not one.
#[inline]
fn nibble(digit: u8) -> (u8, u8) {
    let decimal = digit.wrapping_sub(b'0');
    let letter = digit.wrapping_sub(b'a');
    // The wrong one of the two values exceeds 15, so the minimum is the right one.
    let value = decimal.min(letter.wrapping_add(10));
    let wrong = decimal.saturating_sub(9).min(letter.saturating_sub(5));
    (value, wrong)
}

#[cfg(test)]
mod tests {
    use super::Packed;

    /// Every byte at every position of both spellings is packed only if unpacking gives the same text.
    #[test]
    fn only_lower_case_digits_and_hyphens_in_their_places_are_packed() {
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

    /// Each of the last four digits is used in four positions; the same error is planted beside it.
    #[test]
    fn a_wrong_last_digit_is_not_cancelled_out_by_others() {
        for last in 0..4 {
            let mut text = b"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".to_vec();
            text[32 + last] = b'g';
            for at in (last..16).step_by(4) {
                let beside = if text[at] == b'-' { at + 16 } else { at };
                text[beside] = b'g';
            }
            let text = String::from_utf8(text).expect("ASCII");
            assert_eq!(Packed::parse(&text), None, "{text}");
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
