//! Where pods come from and what follows them, for [`pod_index`]: each part behaves as the kubelet's does.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sources`] | manifests from a directory or a URL, pods from the kubelet or the API server, and the merge of all of them |
//! | `api_client` | the client of the API server: few connections, and an end to every silence |
//! | `mirror` | mirror pods: creates and deletes them so that they match the static pods |
//! | `references` | the Secrets and `ConfigMaps` that pods name, kept current by watches |
//! | [`checkpoint`] | pods on disk, so that they survive a restart |
//!
//! # Features
//! Both are on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `api-server` | `sources::api_server`, `mirror` and `references` |
//! | `tls` | HTTPS, for the URL that serves manifests and for the API server |
//!
//! No feature picks a version of Kubernetes. The application does, with a feature of `k8s-openapi`.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(feature = "api-server")]
pub mod api_client;
#[doc(hidden)]
pub mod backoff;
pub mod checkpoint;
mod fnv;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub mod https;
#[cfg(feature = "api-server")]
pub mod mirror;
#[cfg(feature = "api-server")]
pub mod references;
pub mod sources;
#[doc(hidden)]
pub mod text;

/// Marks a pod that was read from a checkpoint, until a source sends it.
const RESTORED: &str = "pod-index/restored";

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The chapters for embedders use all three parts, so their examples are tested here.
#[cfg(all(doctest, feature = "api-server"))]
#[doc = include_str!("../../docs/embedders.md")]
struct Embedders;
