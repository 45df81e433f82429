//! Pod sources and what follows them, for [`pod_index`]. Each part behaves like its counterpart in the
//! kubelet.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sources`] | manifests from a directory or a URL, pods from the kubelet or the API server, and the merge of all of them |
//! | `api_client` | the API server client: few connections, and a timeout for every silence |
//! | `mirror` | mirror pods: creates and deletes them so that they match the static pods |
//! | `owners` | the owners of pods, such as `ReplicaSets`, requested from the API server as seldom as possible |
//! | [`records`] | pods joined with their Namespace, workload and Node, and the attributes for telemetry |
//! | `references` | the Secrets and `ConfigMaps` that pods name, kept current by watches |
//! | [`memory`] | what an object takes in memory, and what is left out of one that takes too much |
//! | [`checkpoint`] | pods on disk, so that they survive a restart |
//! | [`protobuf`] | pods in Kubernetes' protobuf, decoded and encoded by a table |
//! | `process` | finds the pod of a process ID or a cgroup ID (Linux) |
//! | `watcher` | writes for an index from the events of kube's own watcher |
//!
//! # Features
//! `api-server` and `kubelet-socket` are on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `api-server` | `sources::api_server`, `mirror`, `owners` and `references` |
//! | `kubelet-socket` | `sources::kubelet_socket` (Unix) |
//! | `watcher` | `watcher`, which needs nothing else of this package, and kube's `runtime` |
//!
//! No feature picks a Kubernetes version. The application does that with a feature of `k8s-openapi`.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

// First: its macros are used below.
#[macro_use]
#[doc(hidden)]
pub mod text;

#[cfg(feature = "api-server")]
pub mod api_client;
#[doc(hidden)]
pub mod backoff;
mod blocking;
pub mod checkpoint;
#[doc(hidden)]
pub mod dns;
mod fnv;
mod has_pod;
#[doc(hidden)]
pub mod https;
pub mod memory;
#[cfg(feature = "api-server")]
pub mod mirror;
#[doc(hidden)]
pub mod names;
#[cfg(feature = "api-server")]
pub mod owners;
#[cfg(target_os = "linux")]
pub mod process;
pub mod protobuf;
pub mod records;
#[cfg(feature = "api-server")]
pub mod references;
#[cfg(feature = "api-server")]
mod reflector;
pub mod sources;
#[cfg(feature = "watcher")]
pub mod watcher;

pub use backoff::Pauses;
pub use has_pod::HasPod;

/// Marks a pod that was read from a checkpoint and that no source has sent yet.
const RESTORED: &str = "pod-index/restored";

/// Tests the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Tests the example of the repository's first page.
#[cfg(all(doctest, feature = "watcher"))]
#[doc = include_str!("../../README.md")]
struct FirstPage;

/// Tests the examples of the guide.
#[cfg(all(doctest, feature = "api-server"))]
#[doc = include_str!("../../docs/sources.md")]
struct Guide;
