//! Records: what a log line, a span or a flow is tagged with, found by one lookup.
//!
//! An event names a pod by an IP, a container ID or a cgroup. What it should carry is more: the Namespace, the workload,
//! the Node, chosen labels and annotations. A [`Record`] has all of that, joined when the pod is *written*, so that a
//! reader finds it with one lookup, and everything in it is of one moment.
//!
//! ```text
//! pods ───────────────────┐
//! Namespaces, Nodes ──────┼─> Join ─> operations of one batch ─> Writer<Record> ─> Snapshot<Record>
//! owners (ReplicaSets …) ─┘
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | [`Join`] | keeps what sources told, and turns a change into the writes of one publication |
//! | [`Record`] | a pod, what was joined to it, and its attributes, ready to attach |
//! | [`Rules`] | which attributes: the `extract` block of OpenTelemetry's `k8sattributes` processor |
//! | [`Associations`] | by which attributes of an event its pod is found: the processor's `pod_association` |
//!
//! # Examples
//! A pod, and then its Namespace:
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use pod_index::Operation;
//! use pod_index_kubelet::records::{Change, Join, Record, Rules};
//! use pod_index_kubelet::sources::SourceUpdate;
//!
//! let rules = Rules::parse(
//!     "extract:
//!        metadata: [k8s.pod.name, k8s.namespace.name]
//!        labels: [{ key: team, from: namespace, tag_name: team }]",
//! )?;
//! let (mut writer, reader) = pod_index::new::<Record>();
//! let mut join = Join::new(rules.extract);
//! # let pod: Pod = serde_json::from_str(r#"{"metadata":{"uid":"u1","namespace":"shop","name":"web-0"}}"#).unwrap();
//! # let namespace: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
//! #     serde_json::from_str(r#"{"uid":"n1","name":"shop","labels":{"team":"checkout"}}"#).unwrap();
//! let applied = join.write(&mut writer, [Change::Pod(Operation::Upsert(pod.into()))]);
//! assert!(applied.refused.is_empty());
//! let _ = join.write(&mut writer, [Change::Namespaces(SourceUpdate::Set(vec![namespace.into()]))]);
//!
//! let snapshot = reader.load();
//! let record = snapshot.pod_by_uid("u1").expect("it was written");
//! let tags: Vec<_> = record.attributes().map(|attribute| attribute.to_string()).collect();
//! assert_eq!(tags, ["k8s.pod.name=web-0", "k8s.namespace.name=shop", "team=checkout"]);
//! # Ok::<(), pod_index_kubelet::records::RulesError>(())
//! ```
//!
//! # Consistency
//! A record shows the inputs of one moment: if a Namespace's labels change, all its pods are written again in one
//! publication. No reader sees some pods with the old labels and others with the new ones, nor one label without the other.
//!
//! # What is never extracted
//! Values of environment variables, commands and arguments: no rule can name them. The annotation
//! `kubectl.kubernetes.io/last-applied-configuration`, which repeats the whole object, passwords included: a rule that
//! names it is an error, and a `key_regex` does not match it.

mod associate;
mod attributes;
mod extract;
mod image;
mod join;
mod record;

pub use associate::{Associated, Associations, Resource, Tally};
pub use attributes::{Attribute, Value};
pub use extract::{Conventions, Extract, Rules, RulesError};
pub use image::Image;
pub use join::{Change, FromRecord, Join};
pub use record::{Attributes, Container, Record, Run, Workload};

/// `kubectl apply` stores the whole object in it.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
