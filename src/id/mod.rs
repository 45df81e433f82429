//! Names of pods: UIDs, as separate types for what they identify, and full names. Only their spelling matters
//! here.

mod error;
mod full_name;
mod packed;
#[cfg(feature = "serde")]
mod serde;
mod uid;

pub use error::ParseIdError;
pub use full_name::FullName;
pub(crate) use full_name::{NameParts, SEPARATOR, split};
pub(crate) use packed::{Form, Packed, unhex_64};
pub use uid::{MirrorPodUid, PodUid, ResolvedPodUid, UidRef};
