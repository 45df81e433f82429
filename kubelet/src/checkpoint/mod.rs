//! Pod checkpoints on disk: an agent has its pods right after a restart, before any source responds.
//!
//! For nodes that may start without their API server. This module decides which pods are written to which
//! files, and how long the restored ones stay. Only the latter, `Unclaimed`, knows the roles of sources.
//!
//! # How
//! ```text
//! open ──> Restored ──> Writer ──> Reader ──> a thread of its own ──> Pod_<UID>.yaml, one file a pod
//!            │  the pods of the last run, marked               └────> acknowledged: generation g is on disk
//!            └─ unclaimed: pods that their source, once read, did not report; `Unclaimed` knows when
//! ```
//! A pod is kept if it is annotated [`node.kubernetes.io/bootstrap-checkpoint`](CHECKPOINT_ANNOTATION)`:
//! "true"`; with [`Which::All`], every pod is kept. The thread compares snapshots, so it never blocks the
//! writer, and it writes only the latest state after a slow disk operation.
//!
//! # Guarantees
//! * **Acknowledged pods are durable.** Once [`Checkpointing::wait_for`] reports that a generation is on
//!   disk, no kill, crash or power loss loses any of its pods or restores a removed one. Exception:
//!   unreadable files, below. A file is written under a temporary name, synced and renamed, and the directory
//!   is synced. Only then is the generation acknowledged.
//! * **An edited static pod always has a file.** It gets another UID, and so another file. The old one stays until the new one
//!   is on disk, however long the disk is full or fails. If the pod is deleted meanwhile, the old file goes.
//! * **A file is complete or unused.** Its checksum is verified when it is read.
//! * **A bad file does not affect others.** A damaged file, a foreign one, one written by a newer version, and
//!   anything else that is named like a checkpoint is renamed to `….unusable` and reported by name. Files not named
//!   like checkpoints are never touched.
//! * **A file that cannot be read is kept.** It is reported, left in place, and read again at the next
//!   start. Until then its pod is missing from the index. Once a source has reported the pod, the file is
//!   replaced or removed like any other. If the pod ended unnoticed, the next start restores it, marked,
//!   until its source has been read.
//! * **A start reads at most 10,000 files**, the newest, so that a directory full of damaged files cannot delay it. Of the
//!   others, the thread sets the unusable ones aside. The rest counts as files that cannot be read.
//! * **A bad pod does not affect others.** Any UID has a file name.
//! * **One process at a time.** The directory is locked while it is in use. The lock ends with the process.
//! * Failed disk operations are retried forever. The index is unaffected.
//!
//! # When a restored pod is removed
//! Each restored pod has a source: the one that the annotation `kubernetes.io/config.source` names. Once that source has been read
//! completely and does not report the pod, the program removes it ([`Restored::unclaimed`]), even if other sources have not
//! answered yet. A pod whose source is no longer configured goes once all sources have been read. Any goes at once when a source
//! reports another pod of its name, because no two exist at a time. There is one exception: the static pod of a manifest stays with
//! the kubelet's UID until a source has answered that knows these UIDs. With the feature `sources`, `Unclaimed` has all of these rules,
//! for a program that merges its sources.
//!
//! A read is complete if it had no error. It is incomplete if the manifest directory is missing or unreadable, if it
//! holds an unusable file, or if the URL answers with an error. Until the first complete read, the pod stays
//! and keeps its mark. (Missing file events do not make a read incomplete. An empty directory that is yet to
//! be mounted looks like one without manifests: start the agent after the mount, with systemd by
//! `RequiresMountsFor=`.)
//!
//! # The files
//! `Pod_<UID>.yaml`, readable by the owner only. If the UID has bytes that are unsafe in a file name, the
//! name holds hex digits: `Pod_%<digits>.yaml`. If it has more than 110 bytes, the name holds its FNV-1a hash
//! of 128 bits: `Pod_%%<digits>.yaml`. The first line is `# pod-index checkpoint 1` and the FNV-1a hash of
//! the second line, which is the pod as JSON. So the whole file is a manifest in YAML. The kubelet's own
//! checkpoints (until 1.19) have another format and count as foreign.
//!
//! Kubelet: `pkg/kubelet/checkpoint/checkpoint.go` (1.9 to 1.19).

mod disk;
mod error;
mod format;
mod keep;
mod list;
mod load;
mod status;
mod thread;
#[cfg(feature = "sources")]
mod unclaimed;

/// These tests need the private disk.
#[cfg(test)]
#[path = "../../tests/checkpoint_internal/mod.rs"]
mod disks;

use pod_index::PodMeta;

pub use error::{CheckpointError, CheckpointErrorKind};
pub use list::{read_list, write_list};
pub use load::{Checkpoints, Restored};
pub use status::CheckpointStatus;
pub use thread::Checkpointing;
#[cfg(feature = "sources")]
pub use unclaimed::Unclaimed;

/// Requests a checkpoint if it is `"true"`.
///
/// The kubelet's `BootstrapCheckpointAnnotationKey` (`pkg/apis/core/annotation_key_constants.go`).
pub const CHECKPOINT_ANNOTATION: &str = "node.kubernetes.io/bootstrap-checkpoint";

/// Marks a pod that was read from a checkpoint and that no source has sent yet. Never written to disk. The sources of this
/// package and the merge remove it, and every other mark, from the pods that they read.
pub const RESTORED_ANNOTATION: &str = crate::marks::RESTORED;

/// Which pods are kept on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Which {
    /// Pods that request it with [`CHECKPOINT_ANNOTATION`].
    #[default]
    Annotated,
    /// All pods.
    All,
}

impl Which {
    fn keeps(self, pod: &impl PodMeta) -> bool {
        self == Self::All || pod.annotation(CHECKPOINT_ANNOTATION) == Some("true")
    }
}

/// Whether the pod comes from a checkpoint and no source has sent it yet. True for any pod with
/// [`RESTORED_ANNOTATION`]: a source of your own, without a merge, has to remove it from pods that others may have written.
#[must_use]
pub fn is_restored<P: PodMeta + ?Sized>(pod: &P) -> bool {
    pod.annotation(RESTORED_ANNOTATION).is_some()
}
