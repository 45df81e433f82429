//! Container IDs, in every spelling that occurs in events.

use std::fmt;
use std::str::FromStr;

use super::error::ParseIdentityError;

/// Number of hex digits of a container ID.
const DIGITS: usize = 64;
/// Number of digits that are parsed at once.
const LANES: usize = 16;
/// Prefixes of systemd scopes that hold a container, before its ID: containerd's, CRI-O's, Docker's.
/// `crio-conmon-…` holds the container's monitor process.
const SCOPES: [&str; 3] = ["cri-containerd-", "crio-", "docker-"];

/// The ID of a container or of a pod's sandbox: 64 lower-case hex digits, stored as 32 bytes.
///
/// A prefix of an ID, such as the 12 digits that some tools print, is not an ID: two containers may share it.
///
/// # Complexity
/// Parsing reads each character once. Nothing allocates. Copying, comparing and hashing take 32 bytes.
///
/// # Examples
/// ```
/// use pod_index::identity::ContainerId;
///
/// let digits = "3e5f0b1c".repeat(8);
/// let id: ContainerId = digits.parse()?;
/// assert_eq!(format!("containerd://{digits}").parse(), Ok(id));
/// assert_eq!(format!("cri-containerd-{digits}.scope").parse(), Ok(id));
/// assert!("3e5f0b1c3e5f".parse::<ContainerId>().is_err());
/// # Ok::<(), pod_index::identity::ParseIdentityError>(())
/// ```
///
/// Kubelet: `ContainerID` (`pkg/kubelet/container/runtime.go`), of which this is the ID without the runtime's name.
// Aligned like the words that lookups compare: the bytes of an unaligned `Option` would be copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(align(8))]
pub struct ContainerId([u8; DIGITS / 2]);

impl ContainerId {
    /// The ID as bytes, two digits each, the first digit in the upper half.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; DIGITS / 2] {
        &self.0
    }

    // Lookups by text inline the parser, so that the ID stays in registers.
    /// Any spelling: only the digits, `runtime://digits` as in statuses, or the name of a systemd scope.
    #[inline]
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() <= DIGITS {
            return Self::bare(text);
        }
        let (prefix, digits) = text.split_at_checked(text.len() - DIGITS)?;
        if let Some(runtime) = prefix.strip_suffix("://") {
            return if is_runtime(runtime) { Self::bare(digits) } else { None };
        }
        Self::scope(text)
    }

    /// Only the digits.
    #[inline]
    pub(super) fn bare(digits: &str) -> Option<Self> {
        let digits: &[u8; DIGITS] = digits.as_bytes().try_into().ok()?;
        // No branch before the end, and pairs of digits as 16-bit numbers, so that the compiler vectorizes both loops.
        let (mut values, mut wrong) = ([0; DIGITS], [0; LANES]);
        for (values, digits) in
            values.as_chunks_mut::<LANES>().0.iter_mut().zip(digits.as_chunks::<LANES>().0)
        {
            for at in 0..LANES {
                let is_wrong;
                (values[at], is_wrong) = value(digits[at]);
                wrong[at] |= is_wrong;
            }
        }
        let mut bytes = [0; DIGITS / 2];
        for (byte, pair) in bytes.iter_mut().zip(values.as_chunks::<2>().0) {
            let pair = u16::from_le_bytes(*pair);
            [*byte, _] = (pair << 4 | pair >> 8).to_le_bytes();
        }
        (u128::from_ne_bytes(wrong) == 0).then_some(Self(bytes))
    }

    /// The ID as four words.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 4] {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    }

    /// The name of a systemd scope, such as `cri-containerd-<ID>.scope`.
    pub(super) fn scope(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".scope")?;
        SCOPES.iter().find_map(|prefix| Self::bare(name.strip_prefix(prefix)?))
    }
}

/// Whether this can be the name of a container runtime.
#[inline]
fn is_runtime(name: &str) -> bool {
    #[cold]
    fn is_other_name(name: &str) -> bool {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !name.is_empty() && name.bytes().all(is_name)
    }
    // The usual names at once, any other one byte by byte.
    matches!(name, "containerd" | "cri-o" | "docker") || is_other_name(name)
}

/// The value of a lower-case hex digit. The second value is not 0 for any other character.
#[inline]
fn value(digit: u8) -> (u8, u8) {
    let decimal = digit.wrapping_sub(b'0');
    let letter = digit.wrapping_sub(b'a');
    // The wrong one of the two values exceeds 15, so the minimum is the right one.
    let value = decimal.min(letter.wrapping_add(10));
    (value & 15, decimal.saturating_sub(9).min(letter.saturating_sub(5)))
}

impl FromStr for ContainerId {
    type Err = ParseIdentityError;

    #[inline]
    fn from_str(text: &str) -> Result<Self, ParseIdentityError> {
        Self::parse(text).ok_or(ParseIdentityError::ContainerId)
    }
}

impl TryFrom<&str> for ContainerId {
    type Error = ParseIdentityError;

    #[inline]
    fn try_from(text: &str) -> Result<Self, ParseIdentityError> {
        text.parse()
    }
}

impl TryFrom<&String> for ContainerId {
    type Error = ParseIdentityError;

    #[inline]
    fn try_from(text: &String) -> Result<Self, ParseIdentityError> {
        text.parse()
    }
}

impl From<&Self> for ContainerId {
    #[inline]
    fn from(id: &Self) -> Self {
        *id
    }
}

/// The digits.
impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        // Only ASCII was written.
        f.pad(str::from_utf8(&digits).unwrap_or_default())
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerId({self})")
    }
}
