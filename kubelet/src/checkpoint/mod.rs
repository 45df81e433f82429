//! Pods on disk: what lets an agent know its pods again after a restart, before any source has told of them.
//!
//! For nodes that may start without their API server. This module knows files, and which pods are to be in them. It must not
//! know where pods come from.
//!
//! # How
//! ```text
//! open ──> Restored ──> Writer ──> Reader ──> a thread of its own ──> Pod_<UID>.yaml, one file a pod
//!            │  the pods of the last run, marked               └────> acknowledged: generation g is on disk
//!            └─ unclaimed_from: once their source was heard, those that it did not name
//! ```
//! A pod is kept if it is annotated [`node.kubernetes.io/bootstrap-checkpoint`](CHECKPOINT_ANNOTATION)`: "true"`, or each
//! one is ([`Which::All`]). The thread compares snapshots: it never keeps the writer waiting, and while the disk is slow,
//! changes add up to one difference.
//!
//! # What is promised
//! * **What is acknowledged is not lost.** Once [`Checkpointing::wait_for`] says that a generation is on disk, no kill,
//!   crash or loss of power takes any of its pods away or brings a removed one back (but for what could not be read,
//!   below). A file is written under another name, synced, renamed, and the directory is synced; only then is anything
//!   acknowledged.
//! * **A file is whole or not there.** Its checksum is looked at when it is read.
//! * **One bad file costs no other.** A torn, a foreign or a newer file is set aside (renamed to
//!   `….unusable`) and told of by name. What is not named like a checkpoint is never touched; what is, and is
//!   no regular file, is left alone until its pod has a checkpoint to take its place.
//! * **What cannot be read is not bad.** It is read several times within a second, as a process may be short of
//!   descriptors for a moment; then it is told of, left in place, and read again at the next start. Until then its pod is
//!   missing, and the file goes only if something is heard of that. If it went meanwhile and nobody said so, it is back,
//!   marked, until its source was heard.
//! * **One bad pod costs no other.** Any UID has a file name. A pod larger than 32 MiB has no checkpoint, which is told,
//!   and keeps no generation from being acknowledged.
//! * **One at a time.** The directory is locked while it is in use; the lock goes with the process, however it ends.
//! * A disk that fails is tried again and again; the index does not notice.
//!
//! # When a restored pod goes
//! When its source (annotation `kubernetes.io/config.source`) was heard and did not name it; the other sources have no
//! say in it ([`Restored::unclaimed_from`]). A source was heard after its first look that nothing was wrong with. A
//! manifest directory that is not mounted yet, that cannot be read or holds a file that cannot be used, a URL that
//! answers with an error, are no such look: what they do not name may be there all the same, so it stays, marked, for as
//! long as that lasts. (That there are no file events hides nothing. An empty directory on which something is yet to be
//! mounted looks like one without manifests: start the agent after the mount, with systemd by `RequiresMountsFor=`.) Pods
//! whose source is not configured any more go once all sources were heard ([`Restored::unclaimed`]).
//!
//! # The files
//! `Pod_<UID>.yaml`, for the owner's eyes only. A UID with bytes that do not belong in a file name is in hex digits:
//! `Pod_%<digits>.yaml`; of one of more than 110 bytes there is a hash, FNV-1a of 128 bits: `Pod_%%<digits>.yaml`.
//! The first line is `# pod-index checkpoint 1` and the FNV-1a hash of the second, which is the pod as JSON; so the whole
//! is a manifest in YAML. The kubelet's own checkpoints (until 1.19) are another format, and foreign here.
//!
//! Kubelet: `pkg/kubelet/checkpoint/checkpoint.go` (1.9 to 1.19).

mod disk;
mod error;
mod format;
mod keep;
mod load;
mod thread;

/// They need the private disk.
#[cfg(test)]
#[path = "../../tests/checkpoint_internal/mod.rs"]
mod disks;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use pod_index::PodMeta;

pub use error::{CheckpointError, CheckpointErrorKind};
pub use load::{Checkpoints, Restored};
pub use thread::{CheckpointStatus, Checkpointing, NotAcknowledged};

/// Asks for a checkpoint, if it is `"true"`.
///
/// The kubelet's `BootstrapCheckpointAnnotationKey` (`pkg/apis/core/annotation_key_constants.go`).
pub const CHECKPOINT_ANNOTATION: &str = "node.kubernetes.io/bootstrap-checkpoint";

/// Marks a pod that was read from a checkpoint, until a source tells of it. It is not written to disk.
///
/// Anybody could write it into a manifest, or into a pod of the API server: take it off what comes from a source by
/// [`unmark`] before the index has it.
pub const RESTORED_ANNOTATION: &str = crate::RESTORED;

/// The most bytes of a checkpoint. etcd takes no pod beyond 1.5 MiB, and a manifest may have ten.
const LARGEST: usize = 32 << 20;

/// Which pods are kept on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Which {
    /// Those that ask for it by [`CHECKPOINT_ANNOTATION`].
    #[default]
    Annotated,
    /// All of them.
    All,
}

impl Which {
    fn keeps(self, pod: &impl PodMeta) -> bool {
        match self {
            Self::Annotated => pod.annotation(CHECKPOINT_ANNOTATION) == Some("true"),
            Self::All => true,
        }
    }
}

/// Whether all that is known of the pod is its checkpoint. True of any pod that bears [`RESTORED_ANNOTATION`]; that no
/// other pod does is up to whoever feeds the index.
#[must_use]
pub fn is_restored<P: PodMeta + ?Sized>(pod: &P) -> bool {
    pod.annotation(RESTORED_ANNOTATION).is_some()
}

/// Takes [`RESTORED_ANNOTATION`] off a pod that comes from a source. One without it is not copied.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index_kubelet::checkpoint::{RESTORED_ANNOTATION, is_restored, unmark};
///
/// let mut pod = Pod::default();
/// pod.metadata.annotations = Some([(RESTORED_ANNOTATION.to_owned(), "true".to_owned())].into());
/// let mut pod = Arc::new(pod);
/// unmark(&mut pod);
/// assert!(!is_restored(&*pod));
/// ```
pub fn unmark(pod: &mut Arc<Pod>) {
    if is_restored(&**pod)
        && let Some(annotations) = &mut Arc::make_mut(pod).metadata.annotations
    {
        annotations.remove(RESTORED_ANNOTATION);
    }
}
