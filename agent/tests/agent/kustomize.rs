//! The Kustomizations in `deploy/kubernetes`, as kubectl renders them, and the Helm chart there, which must render the
//! same objects. CI installs both programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api_server::shipped;
use crate::support::Directory;

pub fn deploy(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(path)
}

pub fn objects(path: &Path) -> Vec<Value> {
    parsed(&fs::read_to_string(path).unwrap())
}

fn parsed(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The output of a command.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

/// The names of all components.
pub fn components() -> Vec<String> {
    let found = fs::read_dir(deploy("kubernetes/components")).unwrap();
    let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All components but the kubelet's socket, which excludes the kubelet's port and the agent's own user.
pub fn beside_each_other() -> Vec<String> {
    components().into_iter().filter(|name| name != "kubelet-socket").collect()
}

/// No component, each one alone that needs no other, some that belong together, and all that go together.
fn combinations() -> Vec<Vec<String>> {
    let alone = components().into_iter().filter(|name| name != "client-reviews");
    let mut combinations: Vec<_> = alone.map(|name| vec![name]).collect();
    for together in [
        &[][..],
        &["tls", "pod-monitor", "client-reviews"],
        &["socket", "host-pids"],
        &["host-pids", "socket", "tls"],
        &["kubelet", "quota"],
    ] {
        combinations.push(together.iter().map(|name| (*name).to_owned()).collect());
    }
    combinations.push(beside_each_other());
    combinations
}

/// The objects of the base with these components.
pub fn rendered(components: &[impl AsRef<str>]) -> Vec<Value> {
    patched(components, &[])
}

/// `deploy/kubernetes`, as seen from this directory: kustomize accepts relative paths only.
fn kubernetes_from(directory: &Directory) -> String {
    let up = "../".repeat(directory.0.canonicalize().unwrap().components().count() - 1);
    let root = deploy("kubernetes").canonicalize().unwrap();
    format!("{up}{}", root.display().to_string().trim_start_matches('/'))
}

/// The objects of the base with these components and patches.
fn patched(components: &[impl AsRef<str>], patches: &[Value]) -> Vec<Value> {
    parsed(&kubectl(components, patches).unwrap())
}

/// What kubectl renders of the base with these components and patches, or its error.
fn kubectl(components: &[impl AsRef<str>], patches: &[Value]) -> Result<String, String> {
    let patches: Vec<_> = patches.iter().map(|patch| json!({ "patch": patch.to_string() })).collect();
    let directory = Directory::new();
    let kubernetes = kubernetes_from(&directory);
    let at = |path: String| format!("{kubernetes}/{path}");
    let overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [at("base".to_owned())],
        "components": components.iter().map(|name| at(format!("components/{}", name.as_ref()))).collect::<Vec<_>>(),
        "patches": patches,
    });
    directory.write("kustomization.yaml", &overlay.to_string());
    output(Command::new("kubectl").arg("kustomize").arg(&directory.0))
}

/// The `DaemonSet` of the base with these components.
pub fn daemonset(components: &[impl AsRef<str>]) -> DaemonSet {
    let mut objects = rendered(components).into_iter();
    serde_json::from_value(objects.find(|object| object["kind"] == "DaemonSet").unwrap()).unwrap()
}

/// The `DaemonSet` of the base, for which no renderer is needed.
pub fn base() -> DaemonSet {
    serde_json::from_value(objects(&deploy("kubernetes/base/daemonset.yaml")).remove(0)).unwrap()
}

/// The objects of the chart with these components and values, without Helm's labels. They are in a namespace of the
/// user's choice, which is shown as `pod-index`.
fn helm(components: &[String], values: &Value) -> Result<Vec<Value>, String> {
    let directory = Directory::new();
    let mut values = values.clone();
    values["components"] = components.iter().map(|name| (name.clone(), true)).collect();
    directory.write("values.json", &values.to_string());
    let mut command = Command::new("helm");
    command.args(["template", "pod-index", "-n", "elsewhere", "-f"]).arg(directory.0.join("values.json"));
    let text = output(command.arg(deploy("kubernetes")))?;
    assert!(!text.contains("namespace: pod-index"), "{text}");
    let mut objects = parsed(&text.replace("namespace: elsewhere", "namespace: pod-index"));
    for object in &mut objects {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let labels = metadata["labels"].as_object_mut().unwrap();
        for (name, value) in [
            ("app.kubernetes.io/instance", "pod-index"),
            ("app.kubernetes.io/managed-by", "Helm"),
            ("helm.sh/chart", concat!("pod-index-", env!("CARGO_PKG_VERSION"))),
        ] {
            assert_eq!(labels.remove(name), Some(value.into()), "{name}");
        }
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    Ok(objects)
}

/// Without the namespace, which Helm creates before it installs the chart.
fn assert_same(helm: &[Value], kubectl: &[Value], what: &[String]) {
    let kubectl = kubectl.iter().filter(|object| object["kind"] != "Namespace");
    let kubectl: BTreeSet<_> = kubectl.map(canonical).collect();
    let ours: BTreeSet<_> = helm.iter().map(canonical).collect();
    assert_eq!(ours.symmetric_difference(&kubectl).collect::<Vec<_>>(), [""; 0], "{what:?}");
    assert_eq!(helm.len(), kubectl.len(), "{what:?}");
}

/// Parses a value as its type and serializes it again. Fields unknown to the type are lost.
pub fn known<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
#[ignore = "needs kubectl and helm: .ci/run deploy"]
fn kubectl_and_helm_render_the_same_objects_which_the_api_server_knows() {
    let mut kinds = BTreeSet::new();
    for combination in combinations() {
        let objects = rendered(&combination);
        assert_same(&helm(&combination, &json!({})).unwrap(), &objects, &combination);
        for object in objects {
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
                // The Prometheus operator's own kinds.
                "PodMonitor" | "PrometheusRule" => object.clone(),
                other => panic!("{combination:?}: {other}: add it here"),
            };
            assert_eq!(known, object, "{combination:?}: {kind}");
            kinds.insert(kind.to_owned());
        }
    }
    assert_eq!(kinds.len(), 10);
}

#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn all_objects_are_in_one_namespace_except_the_right_to_read_leases() {
    for object in rendered(&beside_each_other()) {
        let metadata = &object["metadata"];
        let [kind, namespace, name] =
            [&object["kind"], &metadata["namespace"], &metadata["name"]].map(Value::as_str);
        let expected = match (kind.unwrap(), name.unwrap()) {
            ("Namespace" | "ClusterRole" | "ClusterRoleBinding", _) => None,
            ("Role" | "RoleBinding", "pod-index-mirrors") => Some("kube-node-lease"),
            _ => Some("pod-index"),
        };
        assert_eq!(namespace, expected, "{kind:?} {name:?}");
    }
}

/// `deploy/kubernetes/kustomization.yaml` lists every component as a comment, and enables none. Neither does the chart.
#[test]
#[ignore = "needs kubectl and helm: .ci/run deploy"]
fn the_kustomization_to_edit_lists_every_component_and_is_the_base() {
    let path = deploy("kubernetes/kustomization.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let listed = text.lines().filter_map(|line| line.strip_prefix("  # - components/"));
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), components().into_iter().collect());
    let kubectl = output(Command::new("kubectl").arg("kustomize").arg(path.parent().unwrap())).unwrap();
    let kubectl = parsed(&kubectl);
    assert_eq!(kubectl, rendered(&[""; 0]));
    assert_same(&helm(&[], &json!({})).unwrap(), &kubectl, &[]);

    // With the comments removed, all components are chosen.
    let chosen: Value = serde_saphyr::from_str(&text.replace("  # - ", "  - ")).unwrap();
    assert_eq!(chosen["components"].as_array().unwrap().len(), components().len());
}

/// What a value changes is what a patch with kustomize changes.
#[test]
#[ignore = "needs kubectl and helm: .ci/run deploy"]
fn the_values_of_the_chart_change_the_daemonset_as_a_patch_does() {
    let image = "registry.example/pod-index:1.2.3";
    let resources = json!({ "limits": { "memory": "512Mi" } });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "agent", "operator": "Exists" }] }],
    } } });
    let variable = json!([{ "name": "POD_INDEX_KUBELET_CA", "value": "/ca/ca.crt" }]);
    let volume = json!([{ "name": "ca", "configMap": { "name": "ca" } }]);
    let mount = json!([{ "name": "ca", "mountPath": "/ca" }]);
    let pod = json!({
        "nodeSelector": { "pool": "workers" }, "affinity": affinity, "priorityClassName": "high",
        "tolerations": [{ "key": "a", "operator": "Exists" }], "imagePullSecrets": [{ "name": "registry" }],
    });
    let mut values = json!({
        "image": { "repository": "registry.example/pod-index", "tag": "1.2.3", "pullPolicy": "Always" },
        "resources": resources, "extraArgs": ["--verbose"], "extraEnv": variable, "extraVolumes": volume,
        "extraVolumeMounts": mount, "podLabels": { "a": "b" }, "podAnnotations": { "c": "d" },
        "updateStrategy": { "type": "OnDelete" }, "initImage": "registry.example/busybox:1",
    });
    let mut spec = json!({
        "containers": [{
            "name": "pod-index", "image": image, "imagePullPolicy": "Always", "resources": resources, "env": variable,
            "args": ["--api-server", "--log-format=json", "--redact-env", "--verbose"], "volumeMounts": mount,
        }],
        "initContainers": [
            { "name": "socket-directory", "image": "registry.example/busybox:1" },
            { "name": "checkpoint-directory", "image": "registry.example/busybox:1" },
        ],
        "volumes": volume,
    });
    for object in [&mut values, &mut spec] {
        object.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
    }
    let patch = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "pod-index", "namespace": "pod-index" },
        "spec": { "updateStrategy": { "type": "OnDelete" }, "template": {
            "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } }, "spec": spec,
        } },
    });
    let chosen = ["socket".to_owned(), "node-checkpoints".to_owned()];
    assert_same(&helm(&chosen, &values).unwrap(), &patched(&chosen, &[patch]), &[]);

    values["commonLabels"] = json!({ "release": "prometheus" });
    for object in helm(&beside_each_other(), &values).unwrap() {
        assert_eq!(object["metadata"]["labels"]["release"], "prometheus", "{object}");
    }
    // The component takes the token away. An agent that asks the API server all the same has it.
    for (more, has_token) in [(json!([]), false), (json!(["--api-server"]), true)] {
        let objects = helm(&["kubelet-socket".to_owned()], &json!({ "extraArgs": more })).unwrap();
        let daemonset = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        assert_eq!(
            daemonset["spec"]["template"]["spec"]["automountServiceAccountToken"], has_token,
            "{more}"
        );
    }
    // Whoever may not make roles leaves them to somebody else.
    let of_roles = |object: &Value| object["apiVersion"] == "rbac.authorization.k8s.io/v1";
    let mut with = helm(&beside_each_other(), &json!({})).unwrap();
    assert!(with.iter().any(|object| object["kind"] == "ClusterRoleBinding"));
    with.retain(|object| !of_roles(object));
    let without = helm(&beside_each_other(), &json!({ "rbac": { "create": false } })).unwrap();
    assert_same(&without, &with, &["rbac.create=false".to_owned()]);
    for refused in [helm(&[], &json!({ "unknown": 1 })), helm(&["unknown".to_owned()], &json!({}))] {
        assert!(refused.unwrap_err().contains("Additional property unknown is not allowed"));
    }
}

/// Helm merges maps: whoever sets a pace keeps the type, and whoever sets the type keeps the pace, which `OnDelete` does not use.
#[test]
#[ignore = "needs kubectl and helm: .ci/run deploy"]
fn the_chart_names_the_type_of_the_update_strategy_whatever_the_values_change() {
    let rolling =
        |share: &str| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": share } });
    let on_delete = json!({ "type": "OnDelete", "rollingUpdate": { "maxUnavailable": "10%" } });
    for (changed, expected) in [
        (json!({}), rolling("10%")),
        (json!({ "rollingUpdate": { "maxUnavailable": "1%" } }), rolling("1%")),
        (json!({ "type": "OnDelete" }), on_delete),
        (json!({ "type": "RollingUpdate" }), rolling("10%")),
    ] {
        let objects = helm(&[], &json!({ "updateStrategy": changed })).unwrap();
        let daemonset = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        assert_eq!(daemonset["spec"]["updateStrategy"], expected, "{changed}");
    }
}

/// Their agents would end at the start, and the roll-out would have taken away a tenth of those that ran.
#[test]
#[ignore = "needs kubectl and helm: .ci/run deploy"]
fn components_whose_agents_cannot_start_are_refused_by_their_names() {
    let named = |names: [&str; 2]| names.map(str::to_owned);
    for [one, other] in [["kubelet", "kubelet-socket"], ["node-checkpoints", "kubelet-socket"]] {
        let chosen = named([one, other]);
        let message = helm(&chosen, &json!({})).unwrap_err();
        assert!(
            message.contains(&format!("components.{one} and components.{other} are both true")),
            "{message}"
        );
        // In whichever order they are listed.
        for chosen in [[one, other], [other, one]] {
            let message = kubectl(&chosen, &[]).unwrap_err();
            assert!(message.contains(&format!("{one}-cannot-be-used-with-{other}")), "{message}");
        }
    }

    let reviews = named(["client-reviews", "pod-monitor"]);
    let message = helm(&reviews, &json!({})).unwrap_err();
    assert!(message.contains("Set components.tls to true"), "{message}");
    for values in [
        json!({ "extraArgs": ["--tls-cert-file=/tls/tls.crt"] }),
        json!({ "extraArgs": ["--config", "/etc/pod-index/config.yaml"] }),
        json!({ "extraEnv": [{ "name": "POD_INDEX_TLS_CERT_FILE", "value": "/tls/tls.crt" }] }),
    ] {
        helm(&reviews, &values).unwrap();
    }

    for component in ["client-reviews", "resources"] {
        let chosen = ["tls", "kubelet-socket", component].map(str::to_owned);
        let message = helm(&chosen, &json!({})).unwrap_err();
        let expected = format!("components.{component} and components.kubelet-socket are both true");
        assert!(
            message.contains(&expected) && message.contains("Add --api-server to extraArgs"),
            "{message}"
        );
        helm(&chosen, &json!({ "extraArgs": ["--api-server"] })).unwrap();
    }
}

/// A reader appends the patches of the documents one below the other. If one of these blocks began with a line `patches:`,
/// kubectl would silently drop all before it.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn the_patches_in_the_documents_together_change_what_each_of_them_names() {
    let documents = [
        include_str!("../../../deploy/README.md"),
        include_str!("../../../deploy/upgrades.md"),
        include_str!("../../../docs/sizing.md"),
        include_str!("../../../docs/security.md"),
    ];
    let shown: Vec<String> = documents.into_iter().flat_map(patches_in).collect();
    assert_eq!(shown.len(), 13, "{shown:#?}");

    let directory = Directory::new();
    let shipped = fs::read_to_string(deploy("kubernetes/kustomization.yaml")).unwrap();
    assert!(shipped.ends_with("\npatches:\n"), "the blocks cannot be appended to {shipped}");
    let base = format!("\n  - {}/base\n", kubernetes_from(&directory));
    directory.write("kustomization.yaml", &(shipped.replace("\n  - base\n", &base) + &shown.concat()));
    let after = parsed(&output(Command::new("kubectl").arg("kustomize").arg(&directory.0)).unwrap());
    let before = rendered(&[""; 0]);

    let daemonset = |objects: &[Value]| objects.iter().find(|object| object["kind"] == "DaemonSet").cloned();
    let old = daemonset(&before).unwrap();
    let new = daemonset(&after).unwrap();
    let has = |objects: &[Value], deleted: &Value| {
        let is_it = |object: &Value| {
            object["kind"] == deleted["kind"] && object["metadata"]["name"] == deleted["metadata"]["name"]
        };
        objects.iter().any(is_it)
    };
    for entry in shown.iter().flat_map(|block| serde_saphyr::from_str::<Vec<Value>>(block).unwrap()) {
        let patch: Value = serde_saphyr::from_str(entry["patch"].as_str().unwrap()).unwrap();
        let Some(changes) = patch.as_array() else {
            assert_eq!(patch["$patch"], "delete");
            assert!(has(&before, &patch) && !has(&after, &patch), "{patch}");
            continue;
        };
        for change in changes {
            let place = change["path"].as_str().unwrap();
            let is_there = |object: &Value| match place.strip_suffix("/-") {
                Some(list) => object.pointer(list).unwrap().as_array().unwrap().contains(&change["value"]),
                None => object.pointer(place) == Some(&change["value"]),
            };
            assert!(!is_there(&old), "changes nothing: {change}");
            assert!(is_there(&new), "is lost: {change}");
        }
    }
}

/// The blocks of a document that are patches: entries of a list, below a comment that says what they are for.
fn patches_in(document: &str) -> Vec<String> {
    let mut lines = document.lines();
    let mut patches = Vec::new();
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("```yaml") else { continue };
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block: String =
            block.map(|line| line.strip_prefix(indent).unwrap_or(line).to_owned() + "\n").collect();
        if block.contains("- target:") || block.contains("- patch:") {
            assert!(block.starts_with("  # "), "no entry of a list that can be appended: {block}");
            patches.push(block);
        }
    }
    patches
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
#[ignore = "needs kubectl: .ci/run deploy"]
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
        // Of users alone: no standard of Pod Security restricts groups.
        security.as_object_mut().unwrap().remove("runAsGroup");
        forbid(user == Some(json!(0)) || not_root == Some(json!(false)), format!("root in {name}"));
        let restricted = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        });
        forbid(security != restricted, format!("security context {security}"));
    }
    forbidden
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

/// The operator's object has the alerts of the plain file. `deploy/prometheus/prometheus-rule.sh` writes it.
#[test]
fn the_prometheus_rule_has_the_plain_rules() {
    let plain: Value =
        serde_saphyr::from_str(&fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap()).unwrap();
    let rule = &objects(&deploy("kubernetes/components/prometheus-rule/prometheus-rule.yaml"))[0];
    assert_eq!(rule["kind"], "PrometheusRule");
    assert!(rule["spec"]["groups"][0]["rules"].as_array().unwrap().len() > 10);
    assert_eq!(rule["spec"]["groups"], plain["groups"], "run deploy/prometheus/prometheus-rule.sh");
}

/// The kinds, namespaces and names of the objects of a release.
fn names_of_release(release: &str) -> BTreeSet<(String, String, String)> {
    let directory = Directory::new();
    let components: BTreeMap<_, _> = beside_each_other().into_iter().map(|name| (name, true)).collect();
    directory.write("values.json", &json!({ "components": components }).to_string());
    let mut command = Command::new("helm");
    command.args(["template", release, "-n", "agents", "-f"]).arg(directory.0.join("values.json"));
    let text = output(command.arg(deploy("kubernetes"))).unwrap();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    parsed(&text)
        .iter()
        .map(|object| {
            let metadata = &object["metadata"];
            (text_of(&object["kind"]), text_of(&metadata["namespace"]), text_of(&metadata["name"]))
        })
        .collect()
}

/// Otherwise the second release would take over the first one's objects, or Helm would refuse it.
#[test]
#[ignore = "needs helm: .ci/run deploy"]
fn two_releases_have_no_object_in_common_and_select_their_own_pods() {
    let first = names_of_release("pod-index");
    let second = names_of_release("edge");
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first.len(), second.len());
    assert_eq!(first.intersection(&second).collect::<Vec<_>>(), Vec::<&(String, String, String)>::new());
    assert!(second.contains(&("DaemonSet".to_owned(), "agents".to_owned(), "edge-pod-index".to_owned())));

    let text = output(Command::new("helm").args(["template", "edge"]).arg(deploy("kubernetes"))).unwrap();
    let objects = parsed(&text);
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let daemon_set = of_kind("DaemonSet");
    let labels = &daemon_set["spec"]["template"]["metadata"]["labels"];
    let selector = &daemon_set["spec"]["selector"]["matchLabels"];
    assert_eq!(selector["app.kubernetes.io/instance"], "edge");
    for (label, value) in selector.as_object().unwrap() {
        assert_eq!(&labels[label], value, "{label}");
    }
    let account = &of_kind("ServiceAccount")["metadata"]["name"];
    assert_eq!(&daemon_set["spec"]["template"]["spec"]["serviceAccountName"], account);
    let binding = of_kind("ClusterRoleBinding");
    assert_eq!(&binding["subjects"][0]["name"], account);
    assert_eq!(binding["roleRef"]["name"], of_kind("ClusterRole")["metadata"]["name"]);
}
