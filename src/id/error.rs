//! Why a string is no UID or full name.

use std::fmt;

/// Why a string is no UID or full name.
///
/// # Examples
/// ```
/// use pod_index::{FullName, ParseIdError, PodUid};
///
/// assert_eq!("".parse::<PodUid>(), Err(ParseIdError::EmptyUid));
/// let error = "web".parse::<FullName>().unwrap_err();
/// assert_eq!(error, ParseIdError::FullName("web".into()));
/// assert!(error.to_string().contains("want a name and a namespace around exactly one `_`"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseIdError {
    /// A UID is empty. Any other string is a UID.
    EmptyUid,
    /// This is not a pod's full name. A very long one is cut.
    FullName(String),
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyUid => f.write_str("failed to parse the pod UID: it is empty"),
            Self::FullName(text) => write!(
                f,
                "failed to parse the pod full name {text:?}: want a name and a namespace around exactly one `_`"
            ),
        }
    }
}

impl std::error::Error for ParseIdError {}
