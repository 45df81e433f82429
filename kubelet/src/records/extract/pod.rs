//! The attributes of a pod and of its containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pod_index::PodMeta;
use pod_index::workload::{Workload, controller};

use super::Extract;
use super::objects::{FromKind, without};
use crate::records::attributes::{Attribute, Layer, Shared, Value};
use crate::records::image::{Image, repo_digest};
use crate::records::record::{Container, Run, bare_id};

/// A pod with this annotation wants no attributes.
const IGNORE: &str = "opentelemetry.io/k8s-processor/ignore";
/// Labels that name the service, the stronger one last.
const SERVICE_LABELS: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];
const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Attributes that no other pod has.
const OWN: [&str; 6] = [
    "k8s.pod.hostname",
    "k8s.pod.ip",
    "k8s.pod.name",
    "k8s.pod.start_time",
    "k8s.pod.uid",
    "service.instance.id",
];

/// An owner of a pod.
pub(in super::super) struct Owner<'a> {
    pub(in super::super) reference: &'a OwnerReference,
    /// Its metadata, if it was read.
    pub(in super::super) read: Option<&'a ObjectMeta>,
}

/// What is known besides the pod.
pub(in super::super) struct Around<'a> {
    pub(in super::super) owners: &'a [Owner<'a>],
    /// The UID of the Namespace `kube-system`.
    pub(in super::super) cluster_uid: Option<&'a str>,
}

/// The layers of a pod that depend on nothing but itself and its owners.
#[derive(Default)]
pub(in super::super) struct PodLayers {
    pub(in super::super) own: Option<Layer>,
    pub(in super::super) common: Option<Layer>,
}

/// Attributes by name. A later value replaces an earlier one, as in the processor.
struct Found<'a> {
    by_name: BTreeMap<Arc<str>, Value>,
    extract: &'a Extract,
    shared: &'a mut Shared,
}

impl Found<'_> {
    /// Sets a field of `metadata`, if it was chosen and has a value.
    fn field(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty() && self.is_chosen(name)) {
            self.put(name, value);
        }
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.extract.fields.has(name)
    }

    fn put(&mut self, name: &str, value: &str) {
        self.by_name.insert(self.shared.name(name), value.into());
    }
}

impl Extract {
    pub(in super::super) fn pod(&self, pod: &Pod, around: &Around<'_>, shared: &mut Shared) -> PodLayers {
        if is_ignored(pod) {
            return PodLayers::default();
        }
        let mut found = Found { by_name: BTreeMap::new(), extract: self, shared };
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let metadata = &pod.metadata;
        found.field("k8s.pod.name", Some(pod.name()));
        found.field("service.name", Some(pod.name()));
        found.field("k8s.pod.hostname", spec.and_then(|spec| spec.hostname.as_deref()));
        let first = status.and_then(|status| Some(&*status.pod_ips.as_ref()?.first()?.ip));
        found.field("k8s.pod.ip", status.and_then(|status| status.pod_ip.as_deref()).or(first));
        found.field("k8s.namespace.name", Some(pod.namespace()));
        found.field("service.namespace", Some(pod.namespace()));
        let created = metadata.creation_timestamp.as_ref().map(|created| created.0.to_string());
        found.field("k8s.pod.start_time", created.as_deref());
        found.field("k8s.pod.uid", Some(pod.uid()));
        // As in the processor, the last owner names the service. A pod has only one.
        for owner in around.owners {
            self.owner(pod, owner, &mut found);
        }
        found.field("k8s.node.name", spec.and_then(|spec| spec.node_name.as_deref()));
        found.field("k8s.cluster.uid", around.cluster_uid);
        self.objects.labels(FromKind::Pod, metadata, &mut |name, value| found.put(name, value));
        let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
        for key in SERVICE_LABELS {
            found.field("service.name", label(key));
        }
        found.field("service.version", label(VERSION_LABEL));
        self.objects.annotations(FromKind::Pod, metadata, &mut |name, value| found.put(name, value));

        let is_own = |name: &str, value: &Value| OWN.contains(&name) || value.as_text() == Some(pod.name());
        let Found { by_name, shared, .. } = found;
        let attributes = by_name.into_iter().map(|(name, value)| Attribute { name, value });
        let (own, common) =
            attributes.partition(|attribute: &Attribute| is_own(&attribute.name, &attribute.value));
        PodLayers { own: Shared::alone(own), common: shared.layer(common) }
    }

    /// What an owner of the pod says.
    fn owner(&self, pod: &Pod, Owner { reference, read }: &Owner<'_>, found: &mut Found<'_>) {
        let name = Some(&*reference.name);
        let uid = Some(&*reference.uid);
        let above = read.and_then(controller);
        let derived = derived(pod, reference);
        // The owner's controller, or what names and labels say of it.
        let above_of_kind = |kind: &str| match read {
            Some(_) => above.filter(|above| above.kind == kind).map(|above| &*above.name),
            None => derived.as_ref().filter(|derived| derived.kind == kind).map(|derived| &*derived.name),
        };
        match &*reference.kind {
            "ReplicaSet" => {
                found.field("k8s.replicaset.uid", uid);
                found.field("k8s.replicaset.name", name);
                found.field("service.name", name);
                let from_name =
                    || self.deployment_name_from_replicaset.then(|| deployment_of(&reference.name))?;
                let deployment = above_of_kind("Deployment").or_else(|| read.is_none().then(from_name)?);
                found.field("k8s.deployment.name", deployment);
                found.field("service.name", deployment);
                let uid = above.filter(|above| above.kind == "Deployment").map(|above| &*above.uid);
                found.field("k8s.deployment.uid", uid);
            }
            "DaemonSet" => {
                found.field("k8s.daemonset.uid", uid);
                found.field("k8s.daemonset.name", name);
                found.field("service.name", name);
            }
            "StatefulSet" => {
                found.field("k8s.statefulset.uid", uid);
                found.field("k8s.statefulset.name", name);
                found.field("service.name", name);
            }
            "Job" => {
                found.field("k8s.job.uid", uid);
                found.field("k8s.job.name", name);
                found.field("service.name", name);
                let cron_job = above_of_kind("CronJob");
                found.field("k8s.cronjob.name", cron_job);
                found.field("service.name", cron_job);
                let uid = above.filter(|above| above.kind == "CronJob").map(|above| &*above.uid);
                found.field("k8s.cronjob.uid", uid);
            }
            _ => {}
        }
    }

    /// The pod's containers of all kinds, those of the spec first.
    pub(in super::super) fn containers(
        &self,
        pod: &Pod,
        layers: &PodLayers,
        shared: &mut Shared,
    ) -> Vec<Container> {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let mut images: Vec<(&str, Option<&str>)> = Vec::new();
        if let Some(spec) = spec {
            images.extend(spec.containers.iter().map(|one| (&*one.name, one.image.as_deref())));
            images
                .extend(spec.init_containers.iter().flatten().map(|one| (&*one.name, one.image.as_deref())));
            images.extend(
                spec.ephemeral_containers.iter().flatten().map(|one| (&*one.name, one.image.as_deref())),
            );
        }
        let mut statuses: Vec<&ContainerStatus> = Vec::new();
        if let Some(status) = status {
            statuses.extend(status.container_statuses.iter().flatten());
            statuses.extend(status.init_container_statuses.iter().flatten());
            statuses.extend(status.ephemeral_container_statuses.iter().flatten());
        }
        // Of a manifest that names no containers, or of a pod whose spec was too large to be decoded.
        for status in &statuses {
            if !images.iter().any(|(name, _)| *name == status.name) {
                images.push((&status.name, None));
            }
        }
        let of = |name: &str| statuses.iter().find(|status| status.name == name).copied();
        images
            .into_iter()
            .map(|(name, image)| self.container(pod, name, image, of(name), layers, shared))
            .collect()
    }

    fn container(
        &self,
        pod: &Pod,
        name: &str,
        image: Option<&str>,
        status: Option<&ContainerStatus>,
        layers: &PodLayers,
        shared: &mut Shared,
    ) -> Container {
        let image = image.and_then(Image::parse);
        let image_name = image.map(|image| image.name);
        let tag = image.and_then(Image::tag_or_latest);
        let mut found = Found { by_name: BTreeMap::new(), extract: self, shared };
        found.field("k8s.container.name", Some(name));
        found.field("container.image.name", image_name);
        found.field("container.image.tag", tag);
        if let Some(tag) = tag.filter(|_| self.fields.has("container.image.tags")) {
            let tags = found.shared.name("container.image.tags");
            found.by_name.insert(tags, Value::Texts([tag.into()].into()));
        }
        found.field("service.version", image.and_then(Image::version).as_deref());
        let instance = format!("{}.{}.{name}", pod.namespace(), pod.name());
        found.field("service.instance.id", Some(&instance));
        let Found { by_name, shared, .. } = found;
        let layer =
            shared.layer(by_name.into_iter().map(|(name, value)| Attribute { name, value }).collect());
        let earlier = [&layers.own, &layers.common];
        let attributes = without(layer, &earlier, shared);
        let runs = status.map(|status| self.runs(status, &earlier, shared)).unwrap_or_default();
        let image_name = shared.name(image_name.unwrap_or_default());
        let image_tag = tag.map(|tag| shared.name(tag));
        Container { name: shared.name(name), image_name, image_tag, runs: runs.into(), attributes }
    }

    /// The latest run, and the one before.
    fn runs(&self, status: &ContainerStatus, earlier: &[&Option<Layer>], shared: &mut Shared) -> Vec<Run> {
        let count = u32::try_from(status.restart_count).unwrap_or_default();
        let digest = repo_digest(&status.image_id);
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = last.and_then(|ended| ended.container_id.as_deref()).filter(|_| count > 0);
        let runs = [(count, status.container_id.as_deref(), digest), (count.saturating_sub(1), last, None)];
        let is_known = |(number, (_, id, digest)): &(usize, (u32, Option<&str>, Option<&str>))| {
            *number == 0 && (id.is_some() || digest.is_some()) || id.is_some()
        };
        runs.into_iter()
            .enumerate()
            .filter(is_known)
            .map(|(_, (restart_count, id, digest))| {
                let id = bare_id(id.unwrap_or_default());
                let mut attributes = Vec::new();
                if self.fields.has("container.id") && !id.is_empty() {
                    attributes.push(Attribute { name: shared.name("container.id"), value: id.into() });
                }
                if let Some(digest) = digest.filter(|_| self.fields.has("container.image.repo_digests")) {
                    let name = shared.name("container.image.repo_digests");
                    attributes.push(Attribute { name, value: Value::Texts([digest.into()].into()) });
                }
                let attributes = without(Shared::alone(attributes), earlier, shared);
                Run { restart_count, id: id.into(), repo_digest: digest.map(Into::into), attributes }
            })
            .collect()
    }
}

/// What an owner's name and the pod's labels say of the owner's controller.
struct Derived {
    kind: String,
    name: String,
}

fn derived(pod: &Pod, owner: &OwnerReference) -> Option<Derived> {
    // The processor looks at all owners, not at the controller alone.
    let owner = OwnerReference { controller: Some(true), ..owner.clone() };
    let labels = pod.metadata.labels.clone();
    let as_controlled = ObjectMeta { labels, owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    let Workload { kind, name, .. } =
        Workload::of(&as_controlled, None::<&ObjectMeta>).filter(|found| found.derived)?;
    Some(Derived { kind: kind.to_owned(), name: name.to_owned() })
}

/// Whether the pod asks for no attributes.
pub(in super::super) fn is_ignored(pod: &Pod) -> bool {
    pod.annotation(IGNORE).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// The name of a Deployment from that of its `ReplicaSet`, if it ends as the controller names them.
fn deployment_of(replica_set: &str) -> Option<&str> {
    let (name, hash) = replica_set.rsplit_once('-')?;
    let is_hash =
        hash.len() == 10 && hash.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (is_hash && !name.is_empty()).then_some(name)
}
