//! References to objects of the API server. Static pods must run without it, so they may not have any.

use serde_json::Value;

use super::field::{Field, each};
use super::validate::Objection;
use crate::sources::ProblemKind;

/// A field that may refer to an object of the API server.
struct Reference {
    /// `[]` is each item of a list.
    path: &'static str,
    refers: Refers,
    /// What it refers to, for the message.
    resource: &'static str,
}

/// When a field refers to an object.
enum Refers {
    /// If it holds a name: it is one, or has a field `name`. An empty name refers to nothing.
    IfNamed,
    /// Whatever it holds.
    IfSet,
}

const fn if_named(path: &'static str, resource: &'static str) -> Reference {
    Reference { path, refers: Refers::IfNamed, resource }
}

const fn if_set(path: &'static str, resource: &'static str) -> Reference {
    Reference { path, refers: Refers::IfSet, resource }
}

/// In `spec`.
const OF_PODS: [Reference; 4] = [
    if_named("serviceAccountName", "serviceaccounts"),
    // The old name of `serviceAccountName`, before 1.0.
    if_named("serviceAccount", "serviceaccounts"),
    if_named("imagePullSecrets[]", "secrets"),
    if_set("resourceClaims[]", "resourceclaims"),
];

/// In a container of any kind.
const OF_CONTAINERS: [Reference; 4] = [
    if_named("envFrom[].secretRef", "secrets"),
    if_named("envFrom[].configMapRef", "configmaps"),
    if_named("env[].valueFrom.secretKeyRef", "secrets"),
    if_named("env[].valueFrom.configMapKeyRef", "configmaps"),
];

/// In a volume.
const OF_VOLUMES: [Reference; 14] = [
    if_named("cephfs.secretRef", "secrets"),
    if_named("cinder.secretRef", "secrets"),
    if_named("flexVolume.secretRef", "secrets"),
    if_named("iscsi.secretRef", "secrets"),
    if_named("rbd.secretRef", "secrets"),
    if_named("storageos.secretRef", "secrets"),
    if_named("scaleIO.secretRef", "secrets"),
    if_set("configMap", "configmaps (via configmap volumes)"),
    if_set("secret", "secrets (via secret volumes)"),
    if_set("csi", "csidrivers (via CSI volumes)"),
    if_set("glusterfs", "endpoints (via glusterFS volumes)"),
    if_set("persistentVolumeClaim", "persistentvolumeclaims"),
    if_set("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    if_set("azureFile", "secrets (via azureFile volumes)"),
];

/// In a source of a projected volume.
const OF_PROJECTIONS: [Reference; 4] = [
    if_set("configMap", "configmaps (via projected volumes)"),
    if_set("secret", "secrets (via projected volumes)"),
    if_set("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    if_set("clusterTrustBundle", "clustertrustbundles"),
];

/// The kinds of projected volumes that are known here. Others, such as `podCertificate`, need the API server.
const PROJECTED: [&str; 5] =
    ["configMap", "secret", "serviceAccountToken", "clusterTrustBundle", "downwardAPI"];

/// All references of a pod with this `spec`, with their fields.
///
/// Kubelet: `HasAPIObjectReference` (`pkg/api/pod/util.go`), which stops at the first.
pub(super) fn find(spec: &Value) -> Vec<Objection> {
    let mut found = Found(Vec::new());
    let field = Field::Path("spec");
    found.references(spec, &field, &OF_PODS);
    for containers in ["initContainers[]", "containers[]", "ephemeralContainers[]"] {
        each(spec, containers, &field, &mut |container, field| {
            found.references(container, field, &OF_CONTAINERS);
        });
    }
    each(spec, "volumes[]", &field, &mut |volume, field| found.references(volume, field, &OF_VOLUMES));
    each(spec, "volumes[].projected.sources[]", &field, &mut |source, field| {
        found.references(source, field, &OF_PROJECTIONS);
        if PROJECTED.iter().all(|kind| source.get(kind).is_none()) {
            found.add(field, "the API through this kind of projected volume");
        }
    });
    found.0
}

struct Found(Vec<Objection>);

impl Found {
    fn add(&mut self, field: &Field<'_>, resource: &str) {
        let field = field.to_string();
        let message = format!("static pods may not reference {resource}");
        self.0.push(Objection { kind: ProblemKind::Reference, field, message });
    }

    fn references(&mut self, value: &Value, field: &Field<'_>, references: &[Reference]) {
        for Reference { path, refers, resource } in references {
            each(value, path, field, &mut |value, field| {
                let is_reference = match refers {
                    Refers::IfNamed => {
                        let name = value.as_str().or_else(|| value["name"].as_str());
                        name.is_some_and(|name| !name.is_empty())
                    }
                    Refers::IfSet => !value.is_null(),
                };
                if is_reference {
                    self.add(field, resource);
                }
            });
        }
    }
}
