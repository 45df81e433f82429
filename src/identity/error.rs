//! Why a text cannot be parsed as an identity.

use std::fmt;

/// Why a text cannot be parsed as an identity.
///
/// # Examples
/// ```
/// use pod_index::identity::{Identity, ParseIdentityError};
///
/// assert_eq!(Identity::parse(""), Err(ParseIdentityError::Empty));
/// assert_eq!(Identity::parse("/kubepods.slice"), Err(ParseIdentityError::NoPod));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseIdentityError {
    /// It is empty.
    Empty,
    /// It is longer than 64 KiB.
    TooLong,
    /// It contains NUL.
    Nul,
    /// It was parsed as a container ID, but is not one.
    ContainerId,
    /// It is a path or the content of `/proc/PID/cgroup`, and names neither a pod nor a container.
    NoPod,
    /// It has none of the known forms.
    Unknown,
}

impl fmt::Display for ParseIdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "an identity must not be empty",
            Self::TooLong => "an identity must not be longer than 64 KiB",
            Self::Nul => "an identity must not contain NUL",
            Self::ContainerId => {
                "a container ID must be 64 lower-case hex digits, alone, after \"runtime://\" or in the name of a scope"
            }
            Self::NoPod => "the path names no pod and no container",
            Self::Unknown => {
                "not a UID, container ID, cgroup, log path, IP address, process ID, \"namespace/name\" or full name"
            }
        })
    }
}

impl std::error::Error for ParseIdentityError {}
