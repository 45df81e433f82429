//! Rules that are refused, what is never extracted, and associations.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{Operation, PodMeta, Reader};
use pod_index_kubelet::records::{Associated, Change, Join, Record, Resource, Rules, Tally};
use pod_index_kubelet::sources::SourceUpdate;
use serde_json::{Value, json};

#[test]
fn what_is_not_supported_is_an_error_that_names_it_and_its_place() {
    for (rules, expected) in [
        (
            "extract: { metadata: [k8s.pod.name, k8s.pod.colour] }",
            r#"extract.metadata[1]: "k8s.pod.colour" is not supported"#,
        ),
        (
            "extract: { labels: [{ key: a, from: service }] }",
            r#"extract.labels[0].from: "service" is not supported; give one of pod, namespace, node, "#,
        ),
        (
            "extract: { labels: [{ key: a, key_regex: b }] }",
            "extract.labels[0]: give either key or key_regex, not both",
        ),
        (
            "extract: { annotations: [{ key: a }, { tag_name: b }] }",
            "extract.annotations[1]: key or key_regex is missing",
        ),
        (
            "extract: { labels: [{ key_regex: '(' }] }",
            "extract.labels[0].key_regex: is not a supported expression: unclosed group",
        ),
        (
            "extract: { labels: [{ key_regex: '(?=a)' }] }",
            "extract.labels[0].key_regex: is not a supported expression: look-around",
        ),
        (
            "extract: { annotations: [{ key: kubectl.kubernetes.io/last-applied-configuration }] }",
            "extract.annotations[0].key: kubectl.kubernetes.io/last-applied-configuration is never extracted",
        ),
        ("extract:\n  service_attributes: {}", "line 2: unknown field `service_attributes`"),
        ("extract:\n  labels:\n    - { key: a, regex: b }", "line 3: unknown field `regex`"),
        ("filter: {}", "line 1: unknown field `filter`"),
        ("conventions: v2", "line 1: "),
        ("pod_association: [{ sources: [] }]", "pod_association[0].sources: give one to 4 sources"),
        (
            "pod_association: [{ sources: [{ from: header }] }]",
            r#"pod_association[0].sources[0].from: "header" is not supported"#,
        ),
        (
            "pod_association: [{ sources: [{ from: resource_attribute }] }]",
            "pod_association[0].sources[0].name: is missing",
        ),
        (
            "pod_association: [{ sources: [{ from: resource_attribute, name: k8s.pod.name }] }]",
            "pod_association[0].sources: k8s.pod.name cannot find a pod",
        ),
    ] {
        let error = Rules::parse(rules).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{rules}\n{error}");
    }
    let huge = format!("extract: {{ labels: [{{ key_regex: '{}' }}] }}", "(a{1000}){1000}");
    assert!(Rules::parse(&huge).unwrap_err().message.contains("size limit"));
}

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name }, "spec": { "containers": [] } });
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            pod[part][key] = value.clone();
        }
    }
    serde_json::from_value(pod).unwrap()
}

fn index(rules: &Rules, changes: impl IntoIterator<Item = Change>) -> Reader<Record> {
    let (mut writer, reader) = pod_index::new::<Record>();
    let applied = Join::new(rules.extract.clone()).write(&mut writer, changes);
    assert!(applied.refused.is_empty());
    reader
}

#[test]
fn what_may_hold_secrets_is_never_extracted_by_any_rule() {
    let from = ["pod", "namespace", "node", "statefulset"];
    let every: Vec<_> = from.iter().map(|from| json!({ "key_regex": ".*", "from": from })).collect();
    let rules = json!({ "extract": { "annotations": every, "labels": every, "otel_annotations": true } });
    let rules = Rules::parse(&rules.to_string()).unwrap();
    let secret = "hunter2";
    let annotations = json!({ "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"env\":\"{secret}\"}}"), "a": "b" });
    let object = |name: &str| {
        let object = json!({ "name": name, "namespace": "shop", "uid": name, "annotations": annotations });
        vec![serde_json::from_value::<ObjectMeta>(object).unwrap().into()]
    };
    let env = json!([{ "name": "PASSWORD", "value": secret }]);
    let container = json!({ "name": "c", "image": "web", "env": env, "args": [secret], "command": [secret] });
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": true }]);
    let pod = pod(
        "web",
        &json!({ "metadata": { "annotations": annotations, "ownerReferences": owner }, "spec": { "containers": [container], "nodeName": "n" } }),
    );
    let changes = [
        Change::Namespaces(SourceUpdate::Set(object("shop"))),
        Change::Nodes(SourceUpdate::Set(object("n"))),
        Change::Owners(SourceUpdate::Set(object("s"))),
        Change::Pod(Operation::Upsert(pod.into())),
    ];
    let reader = index(&rules, changes);
    let snapshot = reader.load();
    let record = snapshot.pod_by_uid("web").unwrap();
    let attributes: Vec<_> = record.attributes().map(ToString::to_string).collect();
    for from in ["pod.annotations", "namespace.annotations", "node.annotations", "statefulset.annotation"] {
        assert!(attributes.contains(&format!("k8s.{from}.a=b")), "{attributes:?}");
    }
    let objects = format!("{:?} {:?} {record:?}", record.namespace_object(), record.node_object());
    assert!(!attributes.concat().contains(secret) && !objects.contains(secret), "{attributes:?} {objects}");
}

#[test]
fn an_object_with_very_many_labels_has_few_attributes() {
    let rules = json!({ "extract": { "metadata": [], "labels": [{ "key_regex": ".*" }, { "key": "b-0" }] } });
    let rules = Rules::parse(&rules.to_string()).unwrap();
    let labels: BTreeMap<_, _> = (0..100_000).map(|number| (format!("a-{number}"), "x")).collect();
    let reader = index(
        &rules,
        [Change::Pod(Operation::Upsert(pod("web", &json!({ "metadata": { "labels": labels } })).into()))],
    );
    assert_eq!(reader.load().pod_by_uid("web").unwrap().attributes().len(), 256);
}

#[derive(Default)]
struct Event {
    attributes: BTreeMap<&'static str, &'static str>,
    connection: Option<IpAddr>,
}

impl Resource for Event {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).copied()
    }

    fn connection(&self) -> Option<IpAddr> {
        self.connection
    }
}

#[test]
fn the_first_association_that_is_certain_wins() {
    let by = |names: &[&str]| -> Value {
        let sources = names.iter().map(|name| match *name {
            "connection" => json!({ "from": "connection" }),
            name => json!({ "from": "resource_attribute", "name": name }),
        });
        json!({ "sources": sources.collect::<Vec<_>>() })
    };
    let associations = [
        by(&["container.id"]),
        by(&["k8s.pod.ip", "k8s.namespace.name"]),
        by(&["k8s.pod.name", "k8s.namespace.name", "k8s.node.name"]),
        by(&["k8s.pod.uid"]),
        by(&["connection"]),
    ];
    let rules = Rules::parse(&json!({ "pod_association": associations }).to_string()).unwrap();
    let id = "a".repeat(64);
    let status = |ip: &str, phase: &str| json!({ "podIP": ip, "phase": phase });
    let container = json!([{ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": format!("containerd://{id}") }]);
    let mut with_container = status("10.0.0.1", "Running");
    with_container["containerStatuses"] = container;
    let node = json!({ "nodeName": "n" });
    let pods = [
        pod("one", &json!({ "status": with_container, "spec": node })),
        pod("two", &json!({ "status": status("10.0.0.2", "Running"), "spec": node })),
        pod("twin", &json!({ "status": status("10.0.0.2", "Running") })),
        pod("done", &json!({ "status": status("10.0.0.3", "Succeeded") })),
        pod("next", &json!({ "status": status("10.0.0.3", "Running") })),
        pod("host", &json!({ "status": status("10.0.0.9", "Running"), "spec": { "hostNetwork": true } })),
    ];
    let reader = index(&rules, pods.map(|pod| Change::Pod(Operation::Upsert(pod.into()))));
    let snapshot = reader.load();
    let id: &'static str = id.leak();
    let ip = |text: &str| Some(text.parse().unwrap());
    let mut tally = Tally::default();
    for (attributes, connection, expected) in [
        (vec![("container.id", id)], None, Ok("one")),
        // The second is not certain, the third is.
        (
            vec![
                ("k8s.pod.ip", "10.0.0.2"),
                ("k8s.namespace.name", "shop"),
                ("k8s.pod.name", "two"),
                ("k8s.node.name", "n"),
            ],
            None,
            Ok("two"),
        ),
        (vec![("k8s.pod.ip", "10.0.0.2"), ("k8s.namespace.name", "shop")], None, Err("ambiguous")),
        (vec![("k8s.pod.ip", "10.0.0.1"), ("k8s.namespace.name", "other")], None, Err("missing")),
        // The name alone does not do, nor does another node.
        (vec![("k8s.pod.name", "two"), ("k8s.namespace.name", "shop")], None, Err("missing")),
        (
            vec![("k8s.pod.name", "two"), ("k8s.namespace.name", "shop"), ("k8s.node.name", "m")],
            None,
            Err("missing"),
        ),
        (vec![("k8s.pod.uid", "host"), ("k8s.pod.ip", "")], None, Ok("host")),
        (vec![("k8s.pod.uid", "10.0.0.1")], None, Err("missing")),
        (vec![], ip("10.0.0.3"), Ok("next")),
        (vec![], ip("::ffff:10.0.0.1"), Ok("one")),
        (vec![], ip("10.0.0.9"), Err("missing")),
        (vec![("container.id", "short")], ip("10.0.0.2"), Err("ambiguous")),
        (vec![], None, Err("missing")),
    ] {
        let event = Event { attributes: attributes.into_iter().collect(), connection };
        let found = rules.associations.find(&snapshot, &event);
        tally.add(&found);
        let found = match found {
            Associated::Pod { record, .. } => Ok(record.name()),
            Associated::Ambiguous => Err("ambiguous"),
            _ => Err("missing"),
        };
        assert_eq!(found, expected, "{:?} {connection:?}", event.attributes);
    }
    assert_eq!((tally.found, tally.missing, tally.ambiguous), (5, 6, 2));
}

#[test]
fn a_pod_is_found_by_the_workload_that_was_read() {
    let rules = Rules::default();
    let reference = |kind: &str, name: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true }]);
    let pod = pod(
        "web",
        &json!({ "metadata": { "ownerReferences": reference("ReplicaSet", "web-1"), "labels": { "pod-template-hash": "1" } } }),
    );
    let replica_set = &json!({ "name": "web-1", "namespace": "shop", "uid": "web-1", "ownerReferences": reference("Rollout", "canary") });
    let replica_set: ObjectMeta = serde_json::from_value(replica_set.clone()).unwrap();
    let (mut writer, reader) = pod_index::new::<Record>();
    let mut join = Join::new(rules.extract);
    let count =
        |key: &str| reader.load().pods_by_custom_key(pod_index::workload::WORKLOAD, key.as_bytes()).count();
    let _ = join.write(&mut writer, [Change::Pod(Operation::Upsert(pod.into()))]);
    assert_eq!((count("shop/Deployment/web"), count("shop/Rollout/canary")), (1, 0));
    let _ = join.write(&mut writer, [Change::Owners(SourceUpdate::Upsert(vec![replica_set.into()]))]);
    assert_eq!((count("shop/Deployment/web"), count("shop/Rollout/canary")), (0, 1));
    let snapshot = reader.load();
    let workload = snapshot.pod_by_uid("web").unwrap().workload().unwrap();
    assert_eq!(
        (&*workload.name, workload.uid.as_deref(), workload.derived),
        ("canary", Some("canary"), false)
    );
}
