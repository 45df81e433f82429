//! References to objects of the API server. Static pods must run without it, so they may not have any.

use serde_json::Value;

use super::field::each;
use super::validate::Objection;
use crate::sources::ProblemKind;

/// The fields of `spec` that name an object, and its resource. An empty name refers to nothing. `[]` is each item of a list.
const NAMED: [(&str, &str); 10] = [
    ("serviceAccountName", "serviceaccounts"),
    // The old name of `serviceAccountName`, before 1.0.
    ("serviceAccount", "serviceaccounts"),
    ("imagePullSecrets[]", "secrets"),
    ("volumes[].cephfs.secretRef", "secrets"),
    ("volumes[].cinder.secretRef", "secrets"),
    ("volumes[].flexVolume.secretRef", "secrets"),
    ("volumes[].iscsi.secretRef", "secrets"),
    ("volumes[].rbd.secretRef", "secrets"),
    ("volumes[].storageos.secretRef", "secrets"),
    ("volumes[].scaleIO.secretRef", "secrets"),
];

/// The same in each container.
const NAMED_BY_CONTAINERS: [(&str, &str); 4] = [
    ("envFrom[].secretRef", "secrets"),
    ("envFrom[].configMapRef", "configmaps"),
    ("env[].valueFrom.secretKeyRef", "secrets"),
    ("env[].valueFrom.configMapKeyRef", "configmaps"),
];

/// The fields that refer to an object whatever they hold.
const WHATEVER_THEY_HOLD: [(&str, &str); 12] = [
    ("resourceClaims[]", "resourceclaims"),
    ("volumes[].configMap", "configmaps (via configmap volumes)"),
    ("volumes[].secret", "secrets (via secret volumes)"),
    ("volumes[].csi", "csidrivers (via CSI volumes)"),
    ("volumes[].glusterfs", "endpoints (via glusterFS volumes)"),
    ("volumes[].persistentVolumeClaim", "persistentvolumeclaims"),
    ("volumes[].ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("volumes[].azureFile", "secrets (via azureFile volumes)"),
    ("volumes[].projected.sources[].configMap", "configmaps (via projected volumes)"),
    ("volumes[].projected.sources[].secret", "secrets (via projected volumes)"),
    ("volumes[].projected.sources[].serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("volumes[].projected.sources[].clusterTrustBundle", "clustertrustbundles"),
];

/// The kinds of projected volumes that are known here. Others, such as `podCertificate`, need the API server.
const PROJECTED: [&str; 5] =
    ["configMap", "secret", "serviceAccountToken", "clusterTrustBundle", "downwardAPI"];

/// All references of a pod with this `spec`, with their fields.
///
/// Kubelet: `HasAPIObjectReference` (`pkg/api/pod/util.go`), which stops at the first.
pub(super) fn find(spec: &Value) -> Vec<Objection> {
    let mut found = Vec::new();
    let mut refuse = |field, resource: &str| {
        let message = format!("static pods may not reference {resource}");
        found.push(Objection { kind: ProblemKind::Reference, field, message });
    };
    let mut paths = NAMED.map(|(path, resource)| (path.to_owned(), resource)).to_vec();
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        paths
            .extend(NAMED_BY_CONTAINERS.map(|(path, resource)| (format!("{containers}[].{path}"), resource)));
    }
    for (path, resource) in &paths {
        each(spec, path, "spec", &mut |value, field| {
            let name = value.as_str().or_else(|| value["name"].as_str());
            if name.is_some_and(|name| !name.is_empty()) {
                refuse(field, resource);
            }
        });
    }
    for (path, resource) in WHATEVER_THEY_HOLD {
        each(spec, path, "spec", &mut |value, field| {
            if !value.is_null() {
                refuse(field, resource);
            }
        });
    }
    each(spec, "volumes[].projected.sources[]", "spec", &mut |source, field| {
        if PROJECTED.iter().all(|kind| source.get(kind).is_none()) {
            refuse(field, "the API through this kind of projected volume");
        }
    });
    found
}
