//! Every field by which a pod can name a Secret or a `ConfigMap`, one by one, in a pod with only that field.

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::references::{Referenced, ReferencingPod};
use serde_json::{Value, json};

fn names(pod: &Pod) -> (Vec<&str>, Vec<&str>) {
    let (mut secrets, mut config_maps) = (Vec::new(), Vec::new());
    pod.visit_references(&mut |kind, name| match kind {
        Referenced::Secret => secrets.push(name),
        _ => config_maps.push(name),
    });
    (secrets, config_maps)
}

fn pod(spec: Value) -> Pod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([]);
    }
    serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": spec })).unwrap()
}

/// A field that names a Secret "s", or a `ConfigMap` "c".
fn fields() -> Vec<(String, Value)> {
    let mut fields = vec![("imagePullSecrets".to_owned(), json!({ "imagePullSecrets": [{ "name": "s" }] }))];
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for (field, container) in [
            (
                "env.secretKeyRef",
                json!({ "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
            ),
            (
                "env.configMapKeyRef",
                json!({ "env": [{ "name": "E", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } }] }),
            ),
            ("envFrom.secretRef", json!({ "envFrom": [{ "secretRef": { "name": "s" } }] })),
            ("envFrom.configMapRef", json!({ "envFrom": [{ "configMapRef": { "name": "c" } }] })),
        ] {
            let mut container = container;
            container["name"] = json!("container");
            fields.push((format!("{containers}.{field}"), json!({ containers: [container] })));
        }
    }
    for (field, volume) in [
        ("secret", json!({ "secret": { "secretName": "s" } })),
        ("configMap", json!({ "configMap": { "name": "c" } })),
        ("projected.secret", json!({ "projected": { "sources": [{ "secret": { "name": "s" } }] } })),
        ("projected.configMap", json!({ "projected": { "sources": [{ "configMap": { "name": "c" } }] } })),
        ("azureFile", json!({ "azureFile": { "secretName": "s", "shareName": "share" } })),
        ("cephfs", json!({ "cephfs": { "monitors": ["m"], "secretRef": { "name": "s" } } })),
        ("cinder", json!({ "cinder": { "volumeID": "v", "secretRef": { "name": "s" } } })),
        ("csi", json!({ "csi": { "driver": "d", "nodePublishSecretRef": { "name": "s" } } })),
        ("flexVolume", json!({ "flexVolume": { "driver": "d", "secretRef": { "name": "s" } } })),
        (
            "iscsi",
            json!({ "iscsi": { "iqn": "i", "lun": 0, "targetPortal": "t", "secretRef": { "name": "s" } } }),
        ),
        ("rbd", json!({ "rbd": { "image": "i", "monitors": ["m"], "secretRef": { "name": "s" } } })),
        ("scaleIO", json!({ "scaleIO": { "gateway": "g", "system": "s", "secretRef": { "name": "s" } } })),
        ("storageos", json!({ "storageos": { "volumeName": "v", "secretRef": { "name": "s" } } })),
    ] {
        let mut volume = volume;
        volume["name"] = json!("volume");
        fields.push((format!("volumes.{field}"), json!({ "volumes": [volume] })));
    }
    fields
}

#[test]
fn each_field_names_its_object_alone_and_beside_all_others() {
    let fields = fields();
    assert_eq!(fields.len(), 26);
    let (mut whole, mut config_maps) = (json!({}), 0);
    for (field, spec) in fields {
        let is_config_map = field.to_lowercase().contains("configmap");
        config_maps += usize::from(is_config_map);
        for (list, items) in spec.as_object().unwrap() {
            let into = whole.as_object_mut().unwrap().entry(list).or_insert(json!([]));
            into.as_array_mut().unwrap().extend(items.as_array().unwrap().iter().cloned());
        }
        let expected = if is_config_map { (vec![], vec!["c"]) } else { (vec!["s"], vec![]) };
        assert_eq!(names(&pod(spec)), expected, "{field}");
    }
    let pod = pod(whole);
    let found = names(&pod);
    assert_eq!((found.0.len(), found.1.len()), (26 - config_maps, config_maps));
}

#[test]
fn fields_with_optional_secret_names_may_name_nothing() {
    for spec in [
        json!({}),
        json!({ "volumes": [{ "name": "v", "secret": {} }, { "name": "w", "emptyDir": {} }] }),
        json!({ "volumes": [{ "name": "v", "cephfs": { "monitors": ["m"], "secretFile": "/etc/secret" } }] }),
        json!({ "volumes": [{ "name": "v", "csi": { "driver": "d" } }, { "name": "w", "projected": {} }] }),
        json!({ "volumes": [{ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } }] }),
        json!({ "serviceAccountName": "robot" }),
        json!({ "containers": [{ "name": "c", "env": [{ "name": "E", "value": "s" }, { "name": "F", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] }] }),
    ] {
        assert_eq!(names(&pod(spec.clone())), (vec![], vec![]), "{spec}");
    }
    assert_eq!(names(&Pod::default()), (vec![], vec![]));
}
