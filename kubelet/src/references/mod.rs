//! The Secrets and `ConfigMaps` that pods name: counted while a pod names them, and kept at hand.
//!
//! For agents that need what the pods of their node need: image pull secrets, environments, volumes. This module knows
//! which fields name an object, how long an object is named, and how to follow one on the API server. It must not know
//! where pods come from.
//!
//! # How
//! ```text
//! Reader ──> follow ──> changes between two snapshots ──┬─> SecretManager ────┬─> one watch per object ─┐
//!            (a task of its own, never the writer's)    └─> ConfigMapManager ─┘                         v
//!                                       get, cached <── one atomic load ── the object, as it came last ─┘
//! ```
//! [`follow`] compares the current snapshot with the one that it saw last, so publishing never waits for it; what came and
//! went in between is not seen at all. A [`Manager`] registers each pod with the objects that it names, counted by pod
//! UID: a new reference is taken before an old one is let go, so that an object which two versions of a pod name, or a
//! pod that goes and one that comes, is followed without a gap (k/k#36984, k/k#107824). A pod that has ended (phase
//! `Failed` or `Succeeded`) needs nothing and is unregistered.
//!
//! # Cost
//! A read of an object that has come takes no lock and waits for nobody, as one of the index. Unlike that, it writes to what
//! readers share: the object's reference count, and about once a second the time at which it was asked for.
//!
//! A watch is a request that does not end, and kube's client speaks HTTP/1.1: each object that is followed by
//! [`Strategy::Watch`] takes a connection, and with it a descriptor.
//!
//! # The fields
//! | field of the pod | names a |
//! |---|---|
//! | `spec.imagePullSecrets[].name` | Secret |
//! | `spec.{initContainers,containers,ephemeralContainers}[].env[].valueFrom.secretKeyRef.name` | Secret |
//! | `spec.{initContainers,containers,ephemeralContainers}[].env[].valueFrom.configMapKeyRef.name` | `ConfigMap` |
//! | `spec.{initContainers,containers,ephemeralContainers}[].envFrom[].secretRef.name` | Secret |
//! | `spec.{initContainers,containers,ephemeralContainers}[].envFrom[].configMapRef.name` | `ConfigMap` |
//! | `spec.volumes[].secret.secretName` | Secret |
//! | `spec.volumes[].configMap.name` | `ConfigMap` |
//! | `spec.volumes[].projected.sources[].secret.name` | Secret |
//! | `spec.volumes[].projected.sources[].configMap.name` | `ConfigMap` |
//! | `spec.volumes[].azureFile.secretName` | Secret |
//! | `spec.volumes[].cephfs.secretRef.name` | Secret |
//! | `spec.volumes[].cinder.secretRef.name` | Secret |
//! | `spec.volumes[].csi.nodePublishSecretRef.name` | Secret |
//! | `spec.volumes[].flexVolume.secretRef.name` | Secret |
//! | `spec.volumes[].iscsi.secretRef.name` | Secret |
//! | `spec.volumes[].rbd.secretRef.name` | Secret |
//! | `spec.volumes[].scaleIO.secretRef.name` | Secret |
//! | `spec.volumes[].storageos.secretRef.name` | Secret |
//!
//! Those are the kubelet's (`VisitPodSecretNames` and `VisitPodConfigmapNames` in `pkg/api/v1/pod/util.go`). References
//! by way of another object (a claim's volume, a service account) are not followed. Empty names are passed over, and so
//! are, unlike in the kubelet, names that no object can have: nothing that a pod says gets into a request's path.

mod error;
mod fetched;
mod follow;
mod key;
mod kind;
mod manager;
mod names;
mod options;
mod places;
mod reflect;
mod registry;
mod request;
mod slot;
mod watched;

pub use error::{GetError, GetErrorKind};
pub use follow::follow;
pub use kind::{Object, ReferencedKind};
pub use manager::{ConfigMapManager, Manager, ManagerStatus, SecretManager};
pub use names::ReferencingPod;
pub use options::{Options, Strategy, node_ttl};
