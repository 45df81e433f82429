//! The kubelet's pod manager as an embeddable, lock-free index: *which pod is this?*
#![forbid(unsafe_code)]

mod error;
mod id;
mod pod;
#[cfg(feature = "sources")]
pub mod sources;

pub use error::{Error, ErrorKind};
pub use id::{FullName, MirrorPodUid, ParseFullNameError, PodUid, ResolvedPodUid, UidRef};
pub use pod::{
    API_SERVER_SOURCE, CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION, PodMeta, is_mirror_pod, is_mirror_pod_of, is_static_pod,
};
