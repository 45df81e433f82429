//! The Secrets and `ConfigMaps` that pods name, kept in memory while a pod names them.
//!
//! For agents that need what their node's pods need: image pull secrets, environments, volumes. This module
//! knows which fields name an object, counts references, and follows objects on the API server. It does not
//! depend on the sources.
//!
//! # How
//! ```text
//! Reader ──> follow ──> changes between two snapshots ──┬─> SecretManager ────┬─> one watch per object ─┐
//!            (a task of its own, never the writer's)    └─> ConfigMapManager ─┘                         v
//!                                     get, cached <── one atomic load ── the newest version received ─┘
//! ```
//! [`follow`] compares the current snapshot with the last one it saw, so publishing never waits for it, and
//! it skips intermediate states. A [`Manager`] registers each pod, by its UID, with the objects that
//! it names. An object that is named by two versions
//! of a pod, or by a removed and an added pod, is followed without a gap (k/k#36984, k/k#107824). A pod that
//! has ended (phase `Failed` or `Succeeded`) is unregistered.
//!
//! # Cost
//! A read of an object in memory takes no lock and never waits, like a read of the index. Unlike the latter,
//! it writes to shared memory: the object's reference count.
//!
//! Each object takes a watch, a request that does not end. A client of
//! [`api_client`](crate::api_client) sends 80 watches over one connection if the server speaks HTTP/2. With kube's own
//! client, which speaks HTTP/1.1, each watch takes a connection and a file descriptor.
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
//! This is the kubelet's list (`VisitPodSecretNames` and `VisitPodConfigmapNames` in
//! `pkg/api/v1/pod/util.go`). Indirect references, such as a claim's volume or a service account, are not
//! followed. Empty names are ignored. Unlike in the kubelet, so are names that no object can have: no
//! unchecked text from a pod enters a request's path.

mod error;
mod followed;
mod kind;
mod manager;
mod names;
mod options;
mod watch;

pub use crate::reflector::Times;
pub use error::GetError;
pub use kind::{Object, Referenced, ReferencedKind};
pub use manager::{ConfigMapManager, Manager, ManagerStatus, SecretManager, follow};
pub use names::ReferencingPod;
pub use options::Options;
