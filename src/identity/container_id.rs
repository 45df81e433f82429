//! Container IDs, in every spelling that occurs in events.

use std::fmt;
use std::str::FromStr;

use super::error::ParseIdentityError;
use crate::id::{Form, Packed, unhex_64};

/// Number of hex digits of a container ID.
const DIGITS: usize = 64;
/// Prefixes of systemd scopes that hold a container, before its ID: containerd's, CRI-O's, Docker's.
/// `crio-conmon-…` holds the container's monitor process.
const SCOPES: [&str; 3] = ["cri-containerd-", "crio-", "docker-"];

/// The ID of a container or of a pod's sandbox: 64 lower-case hex digits, stored as 32 bytes. Its order is not that of
/// the text.
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId([u64; 4]);

impl ContainerId {
    fn digits(self) -> [u8; DIGITS] {
        let [a, b, c, d] = self.0;
        let mut digits = [0; DIGITS];
        let packed = |first, second| Packed { first, second, form: Form::Hex };
        let halves = [packed(a, b), packed(c, d)];
        for (half, packed) in digits.as_chunks_mut::<{ DIGITS / 2 }>().0.iter_mut().zip(halves) {
            half.copy_from_slice(packed.spell(&mut [0; 36]).as_bytes());
        }
        digits
    }

    // Lookups by text inline the parser, so that the ID stays in registers.
    /// Any spelling: only the digits, `runtime://digits` as in statuses, or the name of a systemd scope.
    #[inline]
    pub(crate) fn parse(text: &str) -> Option<Self> {
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
        Some(Self(unhex_64(digits.as_bytes().try_into().ok()?)?))
    }

    /// The ID as four words.
    #[inline]
    pub(crate) fn words(self) -> [u64; 4] {
        self.0
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

impl FromStr for ContainerId {
    type Err = ParseIdentityError;

    #[inline]
    fn from_str(text: &str) -> Result<Self, ParseIdentityError> {
        Self::parse(text).ok_or(ParseIdentityError::ContainerId)
    }
}

/// The digits.
impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only ASCII was written.
        f.pad(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerId({self})")
    }
}
