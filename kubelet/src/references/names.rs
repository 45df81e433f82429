//! All fields by which a pod names a Secret or a `ConfigMap`.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume};

use super::kind::Referenced;
use pod_index::PodMeta;

/// A pod that lists the Secrets and `ConfigMaps` that it names.
///
/// Implemented for k8s-openapi's `Pod`. Implement it for your own pod type, which may keep nothing but the
/// names.
pub trait ReferencingPod: PodMeta {
    /// Calls `visit` with the kind and the name of each object, in the pod's namespace, that the pod names. Names may be
    /// repeated or empty; both have no effect.
    ///
    /// Kubelet: `VisitPodSecretNames`, `VisitPodConfigmapNames` (`pkg/api/v1/pod/util.go`).
    #[doc(alias = "VisitPodSecretNames")]
    #[doc(alias = "VisitPodConfigmapNames")]
    fn visit_references<'p>(&'p self, visit: &mut dyn FnMut(Referenced, &'p str));

    /// Whether the pod has ended, with phase `Failed` or `Succeeded`, and no longer needs its objects.
    fn has_ended(&self) -> bool;
}

impl ReferencingPod for Pod {
    fn visit_references<'p>(&'p self, visit: &mut dyn FnMut(Referenced, &'p str)) {
        use Referenced::{ConfigMap, Secret};
        let Some(spec) = &self.spec else { return };
        spec.image_pull_secrets.iter().flatten().for_each(|secret| visit(Secret, &secret.name));
        for (env, env_from) in environments(spec) {
            for source in env.iter().filter_map(|variable| variable.value_from.as_ref()) {
                source.secret_key_ref.iter().for_each(|key| visit(Secret, &key.name));
                source.config_map_key_ref.iter().for_each(|key| visit(ConfigMap, &key.name));
            }
            for whole in env_from {
                whole.secret_ref.iter().for_each(|secret| visit(Secret, &secret.name));
                whole.config_map_ref.iter().for_each(|config_map| visit(ConfigMap, &config_map.name));
            }
        }
        for volume in spec.volumes.iter().flatten() {
            secrets_of(volume).into_iter().flatten().for_each(|name| visit(Secret, name));
            volume.config_map.iter().for_each(|source| visit(ConfigMap, &source.name));
            for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
                source.secret.iter().for_each(|source| visit(Secret, &source.name));
                source.config_map.iter().for_each(|source| visit(ConfigMap, &source.name));
            }
        }
    }

    fn has_ended(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Failed" | "Succeeded"))
    }
}

/// `env` and `envFrom` of all containers of all kinds.
fn environments(spec: &PodSpec) -> impl Iterator<Item = (&[EnvVar], &[EnvFromSource])> {
    let regular = spec.init_containers.iter().flatten().chain(&spec.containers);
    let regular = regular.map(|container| (container.env.as_deref(), container.env_from.as_deref()));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|container| (container.env.as_deref(), container.env_from.as_deref()));
    regular.chain(ephemeral).map(|(env, env_from)| (env.unwrap_or_default(), env_from.unwrap_or_default()))
}

/// The kubelet visits only the first kind of a volume. The API allows only one.
fn secrets_of(volume: &Volume) -> [Option<&str>; 10] {
    [
        volume.azure_file.as_ref().map(|source| &*source.secret_name),
        volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()),
        volume.scale_io.as_ref().map(|source| &*source.secret_ref.name),
        volume.cephfs.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
        volume.cinder.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
        volume.csi.as_ref().and_then(|source| Some(&*source.node_publish_secret_ref.as_ref()?.name)),
        volume.flex_volume.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
        volume.iscsi.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
        volume.rbd.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
        volume.storageos.as_ref().and_then(|source| Some(&*source.secret_ref.as_ref()?.name)),
    ]
}
