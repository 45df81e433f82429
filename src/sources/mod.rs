//! Where pods come from: a manifest directory, a URL, the API server; and the merge of what they say.
//!
//! This room knows manifests, files, HTTP and the kubelet's rules for them. It must not know of the index's insides
//! or of the agent: each source is usable alone, as a stream of [`SourceUpdate`]s that an embedder drives into a
//! writer of its own.
//!
//! Data flows one way:
//!
//! ```text
//! file ─┐
//! http ─┼─> SourceUpdate ─> merge ─> operations in the kubelet's order ─> Writer
//! api  ─┘
//! ```
//!
//! # What a static pod becomes
//! A manifest is read as the kubelet reads it (`pkg/kubelet/config/common.go`); [`manifest`] lists each default.
//! One thing cannot be the same: a UID that the manifest does not give. The kubelet hashes Go's in-memory form of the
//! pod, which no other program can reproduce, so the UIDs here are as stable and as unique, but not the kubelet's.

#[cfg(feature = "kube")]
pub mod api_server;
mod clock;
pub mod file;
pub mod http;
pub mod manifest;
mod merge;
mod node;
mod pod;
mod problem;
mod status;
mod update;

pub use merge::{Merge, Merged};
pub use node::NodeName;
pub use pod::{Difference, SourcePod};
pub use problem::{Problem, ProblemKind};
pub use status::SourceStatus;
pub use update::{Source, SourceUpdate};
