//! Pod sources: a manifest directory, a URL, the kubelet, the API server; and the merge of their pods.
//!
//! This module knows manifests, files, HTTP and the kubelet's rules for them. It depends neither on the
//! index's internals nor on the agent: each source is usable alone, as a stream of [`SourceUpdate`]s that an
//! embedder applies to a writer.
//!
//! Data flows one way:
//!
//! ```text
//! file                    ─┐
//! http                    ─┤
//! kubelet, kubelet_socket ─┼─> SourceUpdate ─> merge ─> operations in the kubelet's order ─> Writer
//! api_server              ─┤
//! a source of your own    ─┘
//! ```
//!
//! Each has one of the four roles of [`Source`], by which the merge decides whose version of a pod counts. For a source of your
//! own, see [`StatusWriter`].
//!
//! # From sources to an index
//! ```
//! use futures_util::StreamExt;
//! use futures_util::stream::select;
//! use pod_index_kubelet::sources::http::HttpConfig;
//! use pod_index_kubelet::sources::{Merge, NodeName, Source, file, http};
//!
//! # fn main() -> Result<(), pod_index_kubelet::sources::Problem> {
//! let node = NodeName::new("node-1");
//! let files = file::follow("/etc/kubernetes/manifests", node.clone());
//! let url = http::follow(HttpConfig::new("http://localhost:8000/pods")?, node)?;
//! let mut updates = select(
//!     files.map(|update| (Source::File, update)),
//!     url.map(|update| (Source::Http, update)),
//! );
//!
//! let mut merge = Merge::new([Source::File, Source::Http]);
//! let (mut writer, _reader) = pod_index::new();
//! let follow = async move {
//!     while let Some((source, update)) = updates.next().await {
//!         let merged = merge.update(source, update);
//!         for problem in &merged.problems {
//!             eprintln!("{problem}");
//!         }
//!         let applied = writer.apply(merged.into_operations());
//!         println!("generation {}, ready: {}", applied.generation, merge.all_sources_seen());
//!     }
//! };
//! # drop(follow);
//! # Ok(())
//! # }
//! ```
//!
//! # Static pods from manifests
//! A manifest is read as the kubelet reads it (`pkg/kubelet/config/common.go`); [`manifest`] lists each
//! default. One difference is unavoidable: UIDs that are not given in the manifest. The kubelet hashes Go's
//! in-memory form of the pod, which no other program can reproduce. The UIDs here are equally stable and
//! unique, but not the kubelet's.

#[cfg(feature = "api-server")]
pub mod api_server;
mod completeness;
#[cfg(all(unix, feature = "file"))]
pub mod file;
#[cfg(feature = "http-client")]
pub mod http;
#[cfg(feature = "kubelet")]
pub mod kubelet;
#[cfg(test)]
mod kubelet_restarts;
#[cfg(all(unix, feature = "kubelet-socket"))]
pub mod kubelet_socket;
#[cfg(feature = "manifest")]
pub mod manifest;
mod merge;
mod node;
mod pod;
mod problem;
mod redact;
mod role;
mod skeleton;
pub mod static_pods;
mod status;
mod stream;
mod update;

pub use completeness::INCOMPLETE_FOR;
pub use merge::{Merge, Merged};
pub use node::NodeName;
pub use pod::{API_CONFIG_SEEN_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION, Difference};
pub use problem::{Problem, ProblemKind};
pub use redact::redact_env;
pub use role::Source;
pub use status::{SourceStatus, StatusWriter};
pub use stream::Updates;
pub use update::{Nudge, SourceUpdate};
