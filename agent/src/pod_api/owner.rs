//! Owners of pods as resources of the API. Only their metadata is known, so that is all that is served; the spec and the
//! status are there for clients that cannot do without, and say nothing.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use super::resource::{Item, Resource};

/// The kinds that own pods, or own what owns them, and for the latter the index of the kind that they own. Spec and status
/// have the fields that any version of the schema requires, because typed clients such as Python's refuse an object without
/// them, and those that `kubectl describe` reads.
pub(super) static KINDS: [(Resource, Option<usize>); 6] = [
    (owner::<ReplicaSet>(&["rs"], SCALED), None),
    (owner::<Deployment>(&["deploy"], SCALED), Some(0)),
    (owner::<StatefulSet>(&["sts"], NAMED), None),
    (owner::<DaemonSet>(&["ds"], SCHEDULED), None),
    (owner::<Job>(&[], r#","spec":{"selector":{},"template":{}},"status":{}"#), None),
    (owner::<CronJob>(&["cj"], r#","spec":{"schedule":"","jobTemplate":{}},"status":{}"#), Some(4)),
];

const SCALED: &str = r#","spec":{"replicas":0,"selector":{},"template":{}},"status":{"replicas":0}"#;
const NAMED: &str =
    r#","spec":{"replicas":0,"selector":{},"serviceName":"","template":{}},"status":{"replicas":0}"#;
const SCHEDULED: &str = r#","spec":{"selector":{},"template":{}},"status":{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#;

const fn owner<K: k8s_openapi::Resource>(
    short_names: &'static [&'static str],
    empty: &'static str,
) -> Resource {
    Resource { short_names, empty, categories: &["all"], ..Resource::of::<K, Owner>() }
}

/// An owner of any kind.
pub(crate) type Owner = PartialObjectMeta;

impl Item for Owner {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}
