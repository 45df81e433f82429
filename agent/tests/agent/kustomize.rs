//! Renders the Kustomizations in `deploy/kubernetes`, with the features of kustomize that they use. CI
//! compares the result with `kubectl kustomize`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api_server::shipped;
use crate::support::Directory;

/// What a `kustomization.yaml` may contain. Any other key is an error, because it would not be rendered.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Vec<String>,
    /// Null, if all are commented out.
    #[serde(default)]
    components: Option<Vec<String>>,
    #[serde(default)]
    patches: Vec<Patch>,
    #[serde(default)]
    images: Vec<Image>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    path: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Image {
    name: String,
    new_name: String,
    new_tag: String,
}

pub fn deploy(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(path)
}

pub fn objects(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of all components.
pub fn components() -> Vec<String> {
    let found = fs::read_dir(deploy("kubernetes/components")).unwrap();
    let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// No component, each one alone, some that belong together, and all.
fn combinations() -> Vec<Vec<String>> {
    let all = components();
    let mut combinations: Vec<_> = all.iter().map(|name| vec![name.clone()]).collect();
    for together in [
        &[][..],
        &["tls", "pod-monitor", "client-reviews"],
        &["socket", "host-pids"],
        &["host-pids", "socket", "tls"],
        &["kubelet", "quota"],
    ] {
        combinations.push(together.iter().map(|name| (*name).to_owned()).collect());
    }
    combinations.push(all);
    combinations
}

/// The objects of the base with these components.
pub fn rendered(components: &[impl AsRef<str>]) -> Vec<Value> {
    let mut objects = Vec::new();
    accumulate(&deploy("kubernetes/base"), &mut objects);
    for name in components {
        accumulate(&deploy("kubernetes/components").join(name.as_ref()), &mut objects);
    }
    objects
}

/// The `DaemonSet` of the base with these components.
pub fn daemonset(components: &[impl AsRef<str>]) -> DaemonSet {
    let mut objects = rendered(components).into_iter();
    serde_json::from_value(objects.find(|object| object["kind"] == "DaemonSet").unwrap()).unwrap()
}

/// Adds the objects of a Kustomization or component to `all`, and applies its patches.
fn accumulate(directory: &Path, all: &mut Vec<Value>) {
    let path = directory.join("kustomization.yaml");
    let kustomization: Kustomization = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for resource in kustomization.resources {
        let path = directory.join(resource);
        if path.is_dir() {
            accumulate(&path, all);
            continue;
        }
        for object in objects(&path) {
            assert!(all.iter().all(|other| key(other) != key(&object)), "{}: twice", path.display());
            all.push(object);
        }
    }
    for component in kustomization.components.unwrap_or_default() {
        accumulate(&directory.join(component), all);
    }
    for patch in kustomization.patches {
        for patch in objects(&directory.join(patch.path)) {
            let target = all.iter_mut().find(|object| key(object) == key(&patch));
            merge(target.unwrap_or_else(|| panic!("nothing to patch: {patch}")), &patch);
        }
    }
    for image in kustomization.images {
        for object in all.iter_mut().filter(|object| object["kind"] == "DaemonSet") {
            for container in object["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap() {
                if container["image"].as_str().unwrap().split(':').next() == Some(&image.name) {
                    container["image"] = format!("{}:{}", image.new_name, image.new_tag).into();
                }
            }
        }
    }
}

/// The identity of an object.
fn key(object: &Value) -> [&Value; 4] {
    let metadata = &object["metadata"];
    [&object["apiVersion"], &object["kind"], &metadata["namespace"], &metadata["name"]]
}

/// A strategic merge, as far as the patches need it: null removes a field; in lists, items with the same name
/// or port are merged.
fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    object.remove(key);
                } else {
                    merge(object.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(items), Value::Array(patches)) => {
            for patch in patches {
                // Volume mounts are merged by path, other items by name or port.
                let key = ["mountPath", "name", "containerPort"]
                    .into_iter()
                    .find(|key| !patch[key].is_null())
                    .unwrap();
                match items.iter_mut().find(|item| item[key] == patch[key]) {
                    Some(item) => merge(item, patch),
                    None => items.push(patch.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

/// Parses a value as its type and serializes it again. Fields unknown to the type are lost.
pub fn known<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn every_combination_of_components_renders_objects_that_the_api_server_knows() {
    let mut kinds = BTreeSet::new();
    for combination in combinations() {
        for object in rendered(&combination) {
            let kind = object["kind"].as_str().unwrap();
            let known = match kind {
                "Namespace" => known::<Namespace>(&object),
                "ServiceAccount" => known::<ServiceAccount>(&object),
                "ClusterRole" => known::<ClusterRole>(&object),
                "ClusterRoleBinding" => known::<ClusterRoleBinding>(&object),
                "Role" => known::<Role>(&object),
                "RoleBinding" => known::<RoleBinding>(&object),
                "DaemonSet" => known::<DaemonSet>(&object),
                "ResourceQuota" => known::<ResourceQuota>(&object),
                // The Prometheus operator's own kind.
                "PodMonitor" => object.clone(),
                other => panic!("{combination:?}: {other}: add it here"),
            };
            assert_eq!(known, object, "{combination:?}: {kind}");
            kinds.insert(kind.to_owned());
        }
    }
    assert_eq!(kinds.len(), 9);
}

#[test]
fn all_objects_are_in_one_namespace_except_the_right_to_read_leases() {
    for object in rendered(&components()) {
        let [_, kind, namespace, name] = key(&object).map(|value| value.as_str());
        let expected = match (kind.unwrap(), name.unwrap()) {
            ("Namespace" | "ClusterRole" | "ClusterRoleBinding", _) => None,
            ("Role" | "RoleBinding", "pod-index-mirrors") => Some("kube-node-lease"),
            _ => Some("pod-index"),
        };
        assert_eq!(namespace, expected, "{kind:?} {name:?}");
    }
}

/// `deploy/kubernetes/kustomization.yaml` lists every component as a comment, and enables none.
#[test]
fn the_kustomization_to_edit_lists_every_component_and_is_the_base() {
    let path = deploy("kubernetes/kustomization.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let listed = text.lines().filter_map(|line| line.strip_prefix("  # - components/"));
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), components().into_iter().collect());
    let mut objects = Vec::new();
    accumulate(path.parent().unwrap(), &mut objects);
    assert_eq!(objects, rendered(&[""; 0]));

    // With the comments removed, all components are chosen.
    let text = text.replace("  # - ", "  - ");
    let chosen: Kustomization = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(chosen.components.unwrap().len(), components().len());
}

/// The rows of the table in `deploy/README.md` that has a row for each component.
fn table() -> BTreeMap<String, [String; 2]> {
    let text = include_str!("../../../deploy/README.md");
    let heading = "| component | adds | needs | rights of its account | what the pod security level `restricted` forbids |";
    let table = text.split(heading).nth(1).expect("the table of components");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        (cells[1].clone(), [cells[4].clone(), cells[5].clone()])
    })
    .collect()
}

#[test]
fn the_table_of_components_has_the_rights_and_the_pod_security_of_each() {
    let table = table();
    let base = [rights(&["base"]), forbidden(&[])];
    assert_eq!(table["base"], base.clone().map(|lines| text(&lines)));
    assert_eq!(table.len(), 1 + components().len());
    for name in components() {
        let part = format!("components/{name}");
        let parts = if deploy("kubernetes").join(&part).join("rbac.yaml").exists() {
            vec!["base", &part]
        } else {
            vec!["base"]
        };
        let added = [rights(&parts), forbidden(&[&name])];
        let added = std::array::from_fn(|at| text(&added[at].difference(&base[at]).cloned().collect()));
        assert_eq!(table[&name], added, "{name}");
    }
}

fn text(lines: &BTreeSet<String>) -> String {
    if lines.is_empty() { "–".to_owned() } else { lines.iter().cloned().collect::<Vec<_>>().join("; ") }
}

/// The rights of the accounts: `secrets: list, watch`.
fn rights(parts: &[&str]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for account in ["pod-index", "pod-index-mirrors"] {
        let mut verbs = BTreeMap::<_, Vec<_>>::new();
        for right in shipped(account, parts) {
            let of =
                if right.namespace.is_empty() { String::new() } else { format!(" in {}", right.namespace) };
            verbs.entry(right.resource + &of).or_default().push(right.verb);
        }
        lines.extend(verbs.iter().map(|(resource, verbs)| format!("{resource}: {}", verbs.join(", "))));
    }
    lines
}

/// The violations of the Pod Security Standards' level `restricted` by the pod with these components.
fn forbidden(components: &[&str]) -> BTreeSet<String> {
    let pod = daemonset(components).spec.template.spec.unwrap();
    let mut forbidden = BTreeSet::new();
    let mut forbid = |yes: bool, what: String| {
        if yes {
            forbidden.insert(what);
        }
    };
    forbid(pod.host_network == Some(true), "host network".to_owned());
    forbid(pod.host_pid == Some(true), "host PIDs".to_owned());
    forbid(pod.host_ipc == Some(true), "host IPC".to_owned());
    for volume in pod.volumes.iter().flatten() {
        let path = volume.host_path.as_ref().map(|host| host.path.clone());
        forbid(path.is_some(), format!("host path {}", path.unwrap_or_default()));
    }
    let security = serde_json::to_value(&pod.security_context).unwrap();
    forbid(security["runAsNonRoot"] != json!(true), "root".to_owned());
    forbid(
        security["seccompProfile"] != json!({ "type": "RuntimeDefault" }),
        "no seccomp profile".to_owned(),
    );
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        for port in container.ports.iter().flatten().filter_map(|port| port.host_port) {
            forbid(true, format!("host port {port}"));
        }
        for probe in [&container.liveness_probe, &container.readiness_probe, &container.startup_probe] {
            let host = probe.as_ref().and_then(|probe| probe.http_get.as_ref()?.host.clone());
            forbid(host.is_some(), format!("probe host {}", host.unwrap_or_default()));
        }
        let mut security = serde_json::to_value(&container.security_context).unwrap();
        let name = &container.name;
        let added = security["capabilities"].as_object_mut().unwrap().remove("add");
        forbid(
            added.is_some(),
            format!("capability {} of {name}", added.unwrap_or_default()[0].as_str().unwrap_or_default()),
        );
        let user = security.as_object_mut().unwrap().remove("runAsUser");
        let not_root = security.as_object_mut().unwrap().remove("runAsNonRoot");
        forbid(user == Some(json!(0)) || not_root == Some(json!(false)), format!("root in {name}"));
        let restricted = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        });
        forbid(security != restricted, format!("security context {security}"));
    }
    forbidden
}

#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn kubectl_renders_the_same_objects() {
    let kubectl = std::env::var("POD_INDEX_KUBECTL").expect("POD_INDEX_KUBECTL");
    // kustomize accepts relative paths only.
    let directory = Directory::new();
    let up = "../".repeat(directory.0.canonicalize().unwrap().components().count() - 1);
    let root = deploy("kubernetes").canonicalize().unwrap();
    let at = |path: String| format!("{up}{}/{path}", root.display().to_string().trim_start_matches('/'));
    for combination in combinations() {
        let components: Vec<_> = combination.iter().map(|name| at(format!("components/{name}"))).collect();
        let overlay = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [at("base".to_owned())], "components": components,
            "images": [{ "name": "pod-index", "newName": "registry.example/pod-index", "newTag": "1.2.3" }],
        });
        directory.write("kustomization.yaml", &overlay.to_string());
        let output = Command::new(&kubectl).arg("kustomize").arg(&directory.0).output().unwrap();
        assert!(output.status.success(), "{combination:?}: {}", String::from_utf8_lossy(&output.stderr));
        let theirs: Vec<Value> =
            serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
        let mut ours = Vec::new();
        accumulate(&directory.0, &mut ours);
        let text = |objects: &[Value]| objects.iter().map(canonical).collect::<BTreeSet<_>>();
        assert_eq!((text(&ours), ours.len()), (text(&theirs), theirs.len()), "{combination:?}");
    }
}

/// The object as text, without the order of lists whose items have keys: kustomize puts added items first.
fn canonical(object: &Value) -> String {
    fn sort(value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(sort),
            Value::Array(items) => {
                items.iter_mut().for_each(sort);
                if items.iter().all(Value::is_object) {
                    items.sort_by_key(ToString::to_string);
                }
            }
            _ => {}
        }
    }
    let mut object = object.clone();
    sort(&mut object);
    object.to_string()
}
