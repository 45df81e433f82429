//! How pods are named: UIDs, kept apart by what they identify, and full names.
//!
//! This module knows spelling. It must not know of pods, indices or hashing.

mod full_name;
mod packed;
mod uid;

pub use full_name::{FullName, ParseFullNameError};
pub(crate) use full_name::{SEPARATOR, split};
pub(crate) use packed::{Form, Packed};
pub use uid::{MirrorPodUid, ParseUidError, PodUid, ResolvedPodUid, UidRef, UidText};
