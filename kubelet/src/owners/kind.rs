//! The kinds of owners that are followed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, GroupVersionKind};

/// A kind that owns pods, or owns what owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "Kubernetes' names")]
pub enum OwnerKind {
    ReplicaSet,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
}

impl OwnerKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::ReplicaSet, Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::Job, Self::CronJob];

    /// The kind of an owner. `None` if such owners are not followed.
    #[must_use]
    pub fn of(owner: &OwnerReference) -> Option<Self> {
        let group = owner.api_version.split('/').next();
        Self::ALL.into_iter().find(|kind| kind.name() == owner.kind && Some(kind.group()) == group)
    }

    /// Its name, such as `ReplicaSet`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplicaSet => "ReplicaSet",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Job | Self::CronJob => "batch",
            _ => "apps",
        }
    }

    /// The kind that its objects own, if those own pods.
    #[must_use]
    pub fn owns(self) -> Option<Self> {
        match self {
            Self::Deployment => Some(Self::ReplicaSet),
            Self::CronJob => Some(Self::Job),
            _ => None,
        }
    }

    /// Whether an object of this kind names the workload, because that may own it. Other owners are named by a pod, or by an
    /// owner of it, so that the object itself adds no name.
    pub(super) fn names_the_workload(self) -> bool {
        Self::ALL.into_iter().any(|other| other.owns() == Some(self))
    }

    /// For requests.
    pub(super) fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group(), "v1", self.name());
        ApiResource::from_gvk(&kind)
    }
}
