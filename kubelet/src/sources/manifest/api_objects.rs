//! References to objects of the API server. Static pods must run without it, so they may not have any.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume, VolumeProjection};

use super::field::Field;
use super::validate::Objection;
use crate::sources::ProblemKind;

/// All references, with their fields. Empty names refer to nothing.
///
/// Kubelet: `HasAPIObjectReference` (`pkg/api/pod/util.go`), which stops at the first.
pub(super) fn find(pod: &Pod) -> Vec<Objection> {
    let mut found = Found(Vec::new());
    if let Some(spec) = &pod.spec {
        found.spec(spec, &Field::new("spec"));
    }
    found.0
}

struct Found(Vec<Objection>);

impl Found {
    fn add(&mut self, field: Field, resource: &str) {
        let message = format!("static pods may not reference {resource}");
        self.0.push(Objection { kind: ProblemKind::Reference, field, message });
    }

    fn add_named(&mut self, name: &str, field: Field, resource: &str) {
        if !name.is_empty() {
            self.add(field, resource);
        }
    }

    fn spec(&mut self, spec: &PodSpec, field: &Field) {
        let account = spec.service_account_name.as_deref().unwrap_or_default();
        self.add_named(account, field.name("serviceAccountName"), "serviceaccounts");
        // The old name of `serviceAccountName`, before 1.0. It is still read if the new one is empty.
        if account.is_empty() {
            let account = spec.service_account.as_deref().unwrap_or_default();
            self.add_named(account, field.name("serviceAccount"), "serviceaccounts");
        }
        for (index, secret) in spec.image_pull_secrets.iter().flatten().enumerate() {
            self.add_named(&secret.name, field.name("imagePullSecrets").index(index), "secrets");
        }
        for (index, _) in spec.resource_claims.iter().flatten().enumerate() {
            self.add(field.name("resourceClaims").index(index), "resourceclaims");
        }
        let init = spec.init_containers.iter().flatten();
        for (index, container) in init.enumerate() {
            let field = field.name("initContainers").index(index);
            self.environment(container.env.as_deref(), container.env_from.as_deref(), &field);
        }
        for (index, container) in spec.containers.iter().enumerate() {
            let field = field.name("containers").index(index);
            self.environment(container.env.as_deref(), container.env_from.as_deref(), &field);
        }
        for (index, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
            let field = field.name("ephemeralContainers").index(index);
            self.environment(container.env.as_deref(), container.env_from.as_deref(), &field);
        }
        for (index, volume) in spec.volumes.iter().flatten().enumerate() {
            self.volume(volume, &field.name("volumes").index(index));
        }
    }

    fn environment(&mut self, env: Option<&[EnvVar]>, from: Option<&[EnvFromSource]>, field: &Field) {
        for (index, source) in from.unwrap_or_default().iter().enumerate() {
            let field = field.name("envFrom").index(index);
            if let Some(secret) = &source.secret_ref {
                self.add_named(&secret.name, field.name("secretRef"), "secrets");
            }
            if let Some(config_map) = &source.config_map_ref {
                self.add_named(&config_map.name, field.name("configMapRef"), "configmaps");
            }
        }
        for (index, variable) in env.unwrap_or_default().iter().enumerate() {
            let field = field.name("env").index(index).name("valueFrom");
            let Some(source) = &variable.value_from else { continue };
            if let Some(secret) = &source.secret_key_ref {
                self.add_named(&secret.name, field.name("secretKeyRef"), "secrets");
            }
            if let Some(config_map) = &source.config_map_key_ref {
                self.add_named(&config_map.name, field.name("configMapKeyRef"), "configmaps");
            }
        }
    }

    fn volume(&mut self, volume: &Volume, field: &Field) {
        if volume.config_map.is_some() {
            self.add(field.name("configMap"), "configmaps (via configmap volumes)");
        }
        if volume.secret.is_some() {
            self.add(field.name("secret"), "secrets (via secret volumes)");
        }
        if volume.csi.is_some() {
            self.add(field.name("csi"), "csidrivers (via CSI volumes)");
        }
        if volume.glusterfs.is_some() {
            self.add(field.name("glusterfs"), "endpoints (via glusterFS volumes)");
        }
        if volume.persistent_volume_claim.is_some() {
            self.add(field.name("persistentVolumeClaim"), "persistentvolumeclaims");
        }
        if volume.ephemeral.is_some() {
            self.add(field.name("ephemeral"), "persistentvolumeclaims (via ephemeral volumes)");
        }
        if volume.azure_file.is_some() {
            self.add(field.name("azureFile"), "secrets (via azureFile volumes)");
        }
        // These kinds are allowed, but may name a secret.
        let secrets = [
            ("cephfs", volume.cephfs.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name)),
            ("cinder", volume.cinder.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name)),
            (
                "flexVolume",
                volume.flex_volume.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name),
            ),
            ("iscsi", volume.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name)),
            ("rbd", volume.rbd.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name)),
            (
                "storageos",
                volume.storageos.as_ref().and_then(|source| source.secret_ref.as_ref()).map(|r| &r.name),
            ),
            ("scaleIO", volume.scale_io.as_ref().map(|source| &source.secret_ref.name)),
        ];
        for (kind, secret) in secrets {
            let secret = secret.map(String::as_str).unwrap_or_default();
            self.add_named(secret, field.name(kind).name("secretRef"), "secrets");
        }
        let projected = volume.projected.as_ref().and_then(|projected| projected.sources.as_ref());
        for (index, source) in projected.into_iter().flatten().enumerate() {
            self.projection(source, &field.name("projected.sources").index(index));
        }
    }

    fn projection(&mut self, source: &VolumeProjection, field: &Field) {
        if source.config_map.is_some() {
            self.add(field.name("configMap"), "configmaps (via projected volumes)");
        } else if source.secret.is_some() {
            self.add(field.name("secret"), "secrets (via projected volumes)");
        } else if source.service_account_token.is_some() {
            self.add(field.name("serviceAccountToken"), "serviceaccounts (via projected volumes)");
        } else if source.cluster_trust_bundle.is_some() {
            self.add(field.name("clusterTrustBundle"), "clustertrustbundles");
        } else if source.downward_api.is_none() {
            // `podCertificate`, which not every Kubernetes version knows, or something newer.
            self.add(field.clone(), "the API through this kind of projected volume");
        }
    }
}
