//! All fields by which a pod names a Secret or a `ConfigMap`.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, Pod, PodSpec, Volume};

use pod_index::PodMeta;

/// A pod that lists the Secrets and `ConfigMaps` that it names.
///
/// Implemented for k8s-openapi's `Pod`. Implement it for your own pod type, which may keep nothing but the
/// names.
pub trait ReferencingPod: PodMeta {
    /// Calls `visit` with the name of each Secret, in the pod's namespace, that the pod names. Names may be
    /// repeated or empty; both have no effect.
    ///
    /// Kubelet: `VisitPodSecretNames` (`pkg/api/v1/pod/util.go`).
    #[doc(alias = "VisitPodSecretNames")]
    fn visit_secret_names<'p>(&'p self, visit: &mut dyn FnMut(&'p str));

    /// The same for `ConfigMaps`.
    ///
    /// Kubelet: `VisitPodConfigmapNames` (`pkg/api/v1/pod/util.go`).
    #[doc(alias = "VisitPodConfigmapNames")]
    fn visit_config_map_names<'p>(&'p self, visit: &mut dyn FnMut(&'p str));

    /// Whether the pod has ended, with phase `Failed` or `Succeeded`, and no longer needs its objects.
    fn has_ended(&self) -> bool;
}

impl ReferencingPod for Pod {
    fn visit_secret_names<'p>(&'p self, visit: &mut dyn FnMut(&'p str)) {
        let Some(spec) = &self.spec else { return };
        spec.image_pull_secrets.iter().flatten().for_each(|secret| visit(&secret.name));
        for (env, env_from) in environments(spec) {
            let sources = env.iter().filter_map(|variable| variable.value_from.as_ref());
            sources.filter_map(|source| source.secret_key_ref.as_ref()).for_each(|key| visit(&key.name));
            let whole = env_from.iter().filter_map(|source| source.secret_ref.as_ref());
            whole.for_each(|secret| visit(&secret.name));
        }
        spec.volumes.iter().flatten().for_each(|volume| visit_secrets_of_volume(volume, visit));
    }

    fn visit_config_map_names<'p>(&'p self, visit: &mut dyn FnMut(&'p str)) {
        let Some(spec) = &self.spec else { return };
        for (env, env_from) in environments(spec) {
            let sources = env.iter().filter_map(|variable| variable.value_from.as_ref());
            sources.filter_map(|source| source.config_map_key_ref.as_ref()).for_each(|key| visit(&key.name));
            let whole = env_from.iter().filter_map(|source| source.config_map_ref.as_ref());
            whole.for_each(|config_map| visit(&config_map.name));
        }
        for volume in spec.volumes.iter().flatten() {
            if let Some(source) = &volume.config_map {
                visit(&source.name);
            }
            let projected = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
            projected.filter_map(|source| source.config_map.as_ref()).for_each(|source| visit(&source.name));
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
fn visit_secrets_of_volume<'p>(volume: &'p Volume, visit: &mut dyn FnMut(&'p str)) {
    if let Some(source) = &volume.azure_file {
        visit(&source.secret_name);
    }
    if let Some(name) = volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()) {
        visit(name);
    }
    if let Some(source) = &volume.scale_io {
        visit(&source.secret_ref.name);
    }
    let projected = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
    projected.filter_map(|source| source.secret.as_ref()).for_each(|source| visit(&source.name));
    let references: [Option<&LocalObjectReference>; 7] = [
        volume.cephfs.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.cinder.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.csi.as_ref().and_then(|source| source.node_publish_secret_ref.as_ref()),
        volume.flex_volume.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.rbd.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.storageos.as_ref().and_then(|source| source.secret_ref.as_ref()),
    ];
    references.into_iter().flatten().for_each(|secret| visit(&secret.name));
}
