//! The workload of a pod: the Deployment, `CronJob` or other controller that a person created.

use std::borrow::Borrow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::CustomKeyKind;

/// The kind of the key that k8s-openapi's `Pod` has of its [`Workload`]: its [`key`](Workload::key), as derived from the
/// pod alone.
///
/// # Examples
/// If you read owners, name what they say in a type of your own, and store the pod again when you have read its owner:
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use pod_index::workload::{WORKLOAD, Workload};
/// use pod_index::{PodKeys, PodMeta};
///
/// struct Owned { pod: Pod, replica_set: Option<ObjectMeta> }
///
/// impl PodMeta for Owned {
///     fn uid(&self) -> &str { self.pod.uid() }
///     fn name(&self) -> &str { self.pod.name() }
///     fn namespace(&self) -> &str { self.pod.namespace() }
///     fn annotation(&self, key: &str) -> Option<&str> { self.pod.annotation(key) }
///     fn keys(&self, keys: &mut PodKeys<'_>) {
///         if let Some(workload) = Workload::of(&self.pod.metadata, self.replica_set.as_ref()) {
///             keys.custom_key(WORKLOAD, workload.key(self.namespace()));
///         }
///     }
/// }
/// # let meta = |uid: &str, owner: &str| serde_json::json!({ "name": "web-1-x", "namespace": "shop", "uid": uid,
/// #     "ownerReferences": [{ "apiVersion": "apps/v1", "kind": owner, "name": "web-1", "uid": "r", "controller": true }] });
/// # let pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": meta("p", "ReplicaSet") })).unwrap();
/// # let read: ObjectMeta = serde_json::from_value(meta("r", "Rollout")).unwrap();
/// let (mut writer, reader) = pod_index::new();
/// let count = |key: &[u8]| reader.load().pods_by_custom_key(WORKLOAD, key).count();
/// writer.upsert_pod(Owned { pod: pod.clone(), replica_set: None })?;
/// assert_eq!(count(b"shop/ReplicaSet/web-1"), 1);
/// writer.upsert_pod(Owned { pod, replica_set: Some(read) })?;
/// assert_eq!((count(b"shop/ReplicaSet/web-1"), count(b"shop/Rollout/web-1")), (0, 1));
/// # Ok::<(), pod_index::Error>(())
/// ```
pub const WORKLOAD: CustomKeyKind = CustomKeyKind(u16::MAX);

/// The labels in which a controller of `ReplicaSets` stores the end of their names, and the controller's kind.
const HASHES: [(&str, &str); 2] =
    [("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment")];
/// The digits with which a `CronJob` ends a Job's name: the scheduled time in minutes since 1970.
const MINUTES: usize = 8;
/// August 2016. `CronJobs` are younger, so a smaller number, such as the date 20260101, is another.
const FIRST_MINUTE: u32 = 24_500_000;

/// The workload of a pod. Its namespace is the pod's.
///
/// # Examples
/// See [`Workload::of`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload<'a> {
    /// Such as `Deployment`.
    pub kind: &'a str,
    /// Such as `web`.
    pub name: &'a str,
    /// The pod's controller was not read, and may have a controller of its own: kind and name follow from its name and
    /// from the pod's labels, and may be wrong.
    pub derived: bool,
}

/// The controller of an object.
///
/// # Examples
/// ```
/// # use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// assert_eq!(pod_index::workload::controller(&ObjectMeta::default()), None);
/// ```
#[must_use]
pub fn controller(object: &ObjectMeta) -> Option<&OwnerReference> {
    object.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the controller is of a kind that often has a controller itself: a `ReplicaSet` or a Job.
///
/// # Examples
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
/// use pod_index::workload::is_often_controlled;
///
/// let owner = |api_version: &str, kind: &str| OwnerReference {
///     api_version: api_version.into(),
///     kind: kind.into(),
///     ..OwnerReference::default()
/// };
/// assert!(is_often_controlled(&owner("apps/v1", "ReplicaSet"))); // most belong to a Deployment
/// assert!(!is_often_controlled(&owner("apps/v1", "StatefulSet")));
/// ```
#[must_use]
pub fn is_often_controlled(owner: &OwnerReference) -> bool {
    matches!(
        (owner.api_version.split('/').next(), &*owner.kind),
        (Some("apps" | "extensions"), "ReplicaSet") | (Some("batch"), "Job")
    )
}

impl<'a> Workload<'a> {
    /// The workload of a pod with this metadata. `read` is its controller's metadata, if that is known and
    /// [needed](is_often_controlled). Metadata of an object with another UID counts as unknown.
    ///
    /// `None` for a pod without a controller, and for a static pod or its mirror, which the Node controls.
    ///
    /// # Examples
    /// The name of a Deployment that was not read:
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    /// use pod_index::workload::{WORKLOAD, Workload};
    ///
    /// let pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": {
    ///     "name": "web-6d4b75cb6d-x7k2p", "namespace": "shop", "uid": "p",
    ///     "labels": { "pod-template-hash": "6d4b75cb6d" },
    ///     "ownerReferences": [{
    ///         "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4b75cb6d", "uid": "u", "controller": true,
    ///     }],
    /// } })).unwrap();
    /// let workload = Workload::of(&pod.metadata, None::<&ObjectMeta>).unwrap();
    /// assert_eq!(workload, Workload { kind: "Deployment", name: "web", derived: true });
    ///
    /// // The index finds the pod by it.
    /// let (mut writer, reader) = pod_index::new();
    /// writer.upsert_pod(pod)?;
    /// assert_eq!(reader.load().pods_by_custom_key(WORKLOAD, b"shop/Deployment/web").count(), 1);
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn of<M: Borrow<ObjectMeta> + ?Sized>(pod: &'a ObjectMeta, read: Option<&'a M>) -> Option<Self> {
        let owner = controller(pod)?;
        let named =
            |owner: &'a OwnerReference, derived| Self { kind: &owner.kind, name: &owner.name, derived };
        if owner.kind == "Node" && owner.api_version == "v1" {
            return None;
        }
        if !is_often_controlled(owner) {
            return Some(named(owner, false));
        }
        let read = read.map(Borrow::borrow).filter(|read| read.uid.as_ref() == Some(&owner.uid));
        Some(match read {
            Some(read) => named(controller(read).unwrap_or(owner), false),
            None => derived(pod, owner).unwrap_or_else(|| named(owner, true)),
        })
    }

    /// The key of a pod's workload: `NAMESPACE/KIND/NAME`.
    #[must_use]
    pub fn key(&self, namespace: &str) -> String {
        format!("{namespace}/{}/{}", self.kind, self.name)
    }
}

fn derived<'a>(pod: &'a ObjectMeta, owner: &'a OwnerReference) -> Option<Workload<'a>> {
    let (name, end) =
        owner.name.rsplit_once('-').filter(|(name, end)| !name.is_empty() && !end.is_empty())?;
    let kind = if owner.kind == "Job" {
        let is_minute = end.len() == MINUTES && end.bytes().all(|byte| byte.is_ascii_digit());
        end.parse::<u32>().ok().filter(|minute| is_minute && *minute >= FIRST_MINUTE)?;
        "CronJob"
    } else {
        let labels = pod.labels.as_ref()?;
        HASHES.iter().find(|(label, _)| labels.get(*label).is_some_and(|hash| hash == end))?.1
    };
    Some(Workload { kind, name, derived: true })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(uid: &str, labels: &[(&str, &str)], owner: Option<(&str, &str, &str)>) -> ObjectMeta {
        let reference = |(version, kind, name): (&str, &str, &str)| json!({ "apiVersion": version, "kind": kind, "name": name, "uid": "owner", "controller": true });
        // Another owner comes first: only the controller counts.
        let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" });
        let owners: Vec<_> = [other].into_iter().chain(owner.map(reference)).collect();
        let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        serde_json::from_value(json!({ "uid": uid, "labels": labels, "ownerReferences": owners })).unwrap()
    }

    fn of(pod: &ObjectMeta, read: Option<&ObjectMeta>) -> Option<(String, String, bool)> {
        let workload = Workload::of(pod, read)?;
        Some((workload.kind.to_owned(), workload.name.to_owned(), workload.derived))
    }

    #[test]
    fn the_name_of_an_owner_that_was_not_read_is_derived() {
        let hash = [("pod-template-hash", "6d4b75cb6d")];
        let rollout = [("rollouts-pod-template-hash", "abc")];
        for (labels, owner, expected) in [
            (&hash[..], ("apps/v1", "ReplicaSet", "web-6d4b75cb6d"), ("Deployment", "web", true)),
            (&rollout, ("apps/v1", "ReplicaSet", "shop-web-abc"), ("Rollout", "shop-web", true)),
            // Bare, or with an odd name.
            (&[], ("apps/v1", "ReplicaSet", "web-6d4b75cb6d"), ("ReplicaSet", "web-6d4b75cb6d", true)),
            (&hash, ("apps/v1", "ReplicaSet", "web-x"), ("ReplicaSet", "web-x", true)),
            // No controller's hash has a hyphen.
            (
                &[("pod-template-hash", "1-2")],
                ("apps/v1", "ReplicaSet", "web-1-2"),
                ("ReplicaSet", "web-1-2", true),
            ),
            (&hash, ("apps/v1", "ReplicaSet", "6d4b75cb6d"), ("ReplicaSet", "6d4b75cb6d", true)),
            (&hash, ("apps/v1", "ReplicaSet", "-6d4b75cb6d"), ("ReplicaSet", "-6d4b75cb6d", true)),
            (&[("pod-template-hash", "")], ("apps/v1", "ReplicaSet", "web-"), ("ReplicaSet", "web-", true)),
            (
                &hash,
                ("example.com/v1", "ReplicaSet", "web-6d4b75cb6d"),
                ("ReplicaSet", "web-6d4b75cb6d", false),
            ),
            (&[], ("batch/v1", "Job", "backup-29123456"), ("CronJob", "backup", true)),
            (&[], ("batch/v1", "Job", "nightly-backup-29123456"), ("CronJob", "nightly-backup", true)),
            (&[], ("batch/v1", "Job", "backup-20260101"), ("Job", "backup-20260101", true)),
            (&[], ("batch/v1", "Job", "backup-+9123456"), ("Job", "backup-+9123456", true)),
            (&[], ("batch/v1", "Job", "backup-291234567"), ("Job", "backup-291234567", true)),
            (&[], ("batch/v1", "Job", "-29123456"), ("Job", "-29123456", true)),
            (&[], ("batch/v1", "Job", "29123456"), ("Job", "29123456", true)),
            (&[], ("batch/v1", "Job", "b-é9123456"), ("Job", "b-é9123456", true)),
            (&hash, ("apps/v1", "StatefulSet", "db"), ("StatefulSet", "db", false)),
            (&[], ("apps/v1", "DaemonSet", "agent"), ("DaemonSet", "agent", false)),
            (&[], ("v1", "ReplicationController", "old"), ("ReplicationController", "old", false)),
            (&[], ("example.com/v1", "Node", "n"), ("Node", "n", false)),
        ] {
            let expected = (expected.0.to_owned(), expected.1.to_owned(), expected.2);
            assert_eq!(of(&meta("p", labels, Some(owner)), None), Some(expected), "{owner:?}");
        }
        assert_eq!(of(&meta("p", &hash, None), None), None, "an owner that is not the controller");
        assert_eq!(of(&meta("p", &[], Some(("v1", "Node", "node-1"))), None), None, "a static pod");
    }

    #[test]
    fn an_owner_that_was_read_says_what_controls_it() {
        let pod = meta("p", &[("pod-template-hash", "1")], Some(("apps/v1", "ReplicaSet", "web-1")));
        let read = |uid: &str, owner| meta(uid, &[], owner);
        for (read, expected) in [
            (read("owner", Some(("argoproj.io/v1alpha1", "Rollout", "web"))), ("Rollout", "web", false)),
            (read("owner", Some(("apps/v1", "Deployment", "odd"))), ("Deployment", "odd", false)),
            (read("owner", None), ("ReplicaSet", "web-1", false)),
            // Created again with the same name: not the pod's.
            (read("other", None), ("Deployment", "web", true)),
        ] {
            let expected = (expected.0.to_owned(), expected.1.to_owned(), expected.2);
            assert_eq!(of(&pod, Some(&read)), Some(expected));
        }
    }
}
