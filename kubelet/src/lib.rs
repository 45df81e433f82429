//! Pod sources and what follows them, for [`pod_index`]. Each part behaves like its counterpart in the
//! kubelet.
//!
//! | module | feature | what it holds |
//! |---|---|---|
//! | [`sources`] | see below | manifests from a directory or a URL, pods from the kubelet or the API server, and the merge of all of them |
//! | `api_client` | `api-server` | the API server client: few connections, and a timeout for every silence |
//! | `mirror` | `api-server` | mirror pods: creates and deletes them so that they match the static pods |
//! | `owners` | `api-server` | the owners of pods, such as `ReplicaSets`, requested from the API server as seldom as possible |
//! | `references` | `api-server` | the Secrets and `ConfigMaps` that pods name, kept current by watches |
//! | [`records`] | `records` | pods joined with their Namespace, workload and Node, and the attributes for telemetry |
//! | [`checkpoint`] | `checkpoint` | pods on disk, so that they survive a restart |
//! | `process` | `process` | finds the pod of a process ID or a cgroup ID (Linux) |
//! | `watcher` | `watcher` | writes for an index from the events of kube's own watcher |
//! | [`memory`] | `memory` | what an object takes in memory, and what is left out of one that takes too much |
//! | [`protobuf`] | `protobuf` | pods in Kubernetes' protobuf, decoded and encoded by a table |
//!
//! # Features
//! Everything is on by default, except `watcher`. A program that needs a part of it names its features, and builds only the
//! crates that those use: an agent that finds the pods of processes and reads pods from the kubelet's socket says
//! `default-features = false, features = ["kubelet-socket", "process"]`.
//!
//! | feature | what it adds | with it come |
//! |---|---|---|
//! | `sources` | [`sources`] without any source: the merge, and what a source of your own needs | – |
//! | `file` | `sources::file`: pods from a path with manifests (Unix) | `manifest` |
//! | `http` | `sources::http`: pods from a URL with manifests | `manifest` |
//! | `kubelet` | `sources::kubelet`: pods from a kubelet's port | `memory`, `sources` |
//! | `kubelet-socket` | `sources::kubelet_socket`: pods over a kubelet's socket (Unix) | `protobuf`, `sources` |
//! | `api-server` | `sources::api_server`, `api_client`, `mirror`, `owners` and `references` | `protobuf`, `records` |
//! | `manifest` | `sources::manifest`: the decoder of manifests | `memory`, `sources` |
//! | `records` | [`records`] | `sources` |
//! | `checkpoint` | [`checkpoint`] (Unix) | `memory` |
//! | `process` | `process` (Linux) | – |
//! | `watcher` | `watcher`, and kube's `runtime` | – |
//! | `protobuf` | [`protobuf`] | `memory` |
//! | `memory` | [`memory`] | – |
//!
//! No feature picks a Kubernetes version. The application does that with a feature of `k8s-openapi`.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]
// With a part of the features, some helpers have no user. With all of them, each must have one.
#![cfg_attr(
    not(all(
        feature = "api-server",
        feature = "checkpoint",
        feature = "file",
        feature = "http",
        feature = "kubelet",
        feature = "kubelet-socket",
        feature = "process",
        feature = "watcher",
        unix
    )),
    allow(dead_code, unused_imports, unused_macros)
)]

// First: its macros are used below.
#[macro_use]
#[doc(hidden)]
pub mod text;

#[cfg(feature = "api-server")]
pub mod api_client;
#[doc(hidden)]
pub mod backoff;
#[cfg(feature = "sources")]
mod blocking;
#[cfg(all(unix, feature = "checkpoint"))]
pub mod checkpoint;
#[cfg(any(feature = "api-server", feature = "http-client"))]
#[doc(hidden)]
pub mod dns;
mod fnv;
mod has_pod;
#[cfg(any(feature = "api-server", feature = "http-client"))]
#[doc(hidden)]
pub mod https;
mod marks;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "api-server")]
pub mod mirror;
#[doc(hidden)]
pub mod names;
#[cfg(feature = "api-server")]
pub mod owners;
#[cfg(all(target_os = "linux", feature = "process"))]
pub mod process;
#[cfg(feature = "protobuf")]
pub mod protobuf;
#[cfg(feature = "records")]
pub mod records;
#[cfg(feature = "api-server")]
pub mod references;
#[cfg(feature = "api-server")]
mod reflector;
#[cfg(feature = "sources")]
pub mod sources;
#[cfg(feature = "watcher")]
pub mod watcher;

pub use backoff::Pauses;
pub use has_pod::HasPod;

/// Tests the README's example.
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Tests the example of the repository's first page.
#[cfg(all(doctest, feature = "watcher"))]
#[doc = include_str!("../../README.md")]
struct FirstPage;

/// Tests the examples of the guide.
#[cfg(all(
    doctest,
    feature = "api-server",
    feature = "file",
    feature = "http",
    feature = "kubelet",
    feature = "kubelet-socket",
    feature = "process",
    feature = "watcher",
    target_os = "linux"
))]
#[doc = include_str!("../../docs/sources.md")]
struct Guide;
