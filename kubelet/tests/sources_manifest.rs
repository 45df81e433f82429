//! Manifests as the kubelet reads them: formats, defaults, refusals, and problem reports.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_static_pod};
use pod_index_kubelet::sources::manifest::{Decoded, Origin, decode};
use pod_index_kubelet::sources::{NodeName, ProblemKind};

const WEB: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: nginx
";

fn from_file(text: &str) -> Decoded {
    decode(text.as_bytes(), Origin::File(Path::new("/pods/web.yaml")), &NodeName::new("Node-1"))
}

fn from_url(text: &str) -> Decoded {
    decode(text.as_bytes(), Origin::Url("http://localhost/pods"), &NodeName::new("Node-1"))
}

fn one(decoded: Decoded) -> Pod {
    assert!(decoded.problems.is_empty(), "{:?}", decoded.problems);
    let mut pods = decoded.pods;
    assert_eq!(pods.len(), 1);
    pods.remove(0)
}

/// `text` must be refused, for exactly one reason.
fn refusal(text: &str) -> String {
    let decoded = from_file(text);
    assert!(decoded.pods.is_empty(), "accepted:\n{text}");
    assert_eq!(decoded.problems.len(), 1, "{:?}", decoded.problems);
    decoded.problems[0].to_string()
}

/// [`WEB`] with one line replaced.
fn with(line: &str, instead: &str) -> String {
    assert!(WEB.contains(line), "no such line: {line}");
    WEB.replacen(line, instead, 1)
}

#[test]
fn a_manifest_gets_the_kubelets_defaults() {
    let pod = one(from_file(WEB));
    assert_eq!((pod.name(), pod.namespace()), ("web-node-1", "default"));
    assert_eq!(pod.uid().len(), 32);
    assert!(pod.uid().bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
    assert_eq!(pod.annotation("kubernetes.io/config.hash"), Some(pod.uid()));
    assert_eq!(pod.annotation("kubernetes.io/config.source"), Some("file"));
    assert!(is_static_pod(&pod));
    let seen = pod.annotation("kubernetes.io/config.seen").expect("when it was seen");
    assert!(seen.parse::<k8s_openapi::jiff::Timestamp>().is_ok(), "{seen}");

    let spec = pod.spec.expect("a spec");
    assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
    let tolerations = spec.tolerations.expect("a toleration");
    assert_eq!(tolerations.len(), 1);
    assert_eq!(tolerations[0].operator.as_deref(), Some("Exists"));
    assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));
    assert_eq!(pod.status.expect("a status").phase.as_deref(), Some("Pending"));
}

#[test]
fn only_files_add_the_toleration_and_only_once() {
    let pod = one(from_url(WEB));
    assert_eq!(pod.annotation("kubernetes.io/config.source"), Some("http"));
    assert_eq!(pod.spec.expect("a spec").tolerations, None);

    let tolerant =
        format!("{WEB}  tolerations:\n  - {{operator: Exists, effect: NoExecute, tolerationSeconds: 5}}\n");
    let tolerations = one(from_file(&tolerant)).spec.expect("a spec").tolerations.expect("a toleration");
    assert_eq!(tolerations.len(), 1);
    assert_eq!(tolerations[0].toleration_seconds, None);
}

#[test]
fn an_explicit_uid_and_namespace_stay_and_the_hash_is_the_uid() {
    let text = with("name: web", "name: web\n  uid: my-uid\n  namespace: kube-system");
    let pod = one(from_file(&text));
    assert_eq!((pod.uid(), pod.namespace()), ("my-uid", "kube-system"));
    assert_eq!(pod.annotation("kubernetes.io/config.hash"), Some("my-uid"));
}

#[test]
fn the_uid_depends_only_on_the_pod_the_path_and_the_node() {
    let uid = |text: &str, path: &str, node: &str| {
        one(decode(text.as_bytes(), Origin::File(Path::new(path)), &NodeName::new(node))).uid().to_owned()
    };
    let web = uid(WEB, "/pods/web.yaml", "n1");
    assert_eq!(web, uid(WEB, "/pods/web.yaml", "n1"));
    assert_eq!(
        web,
        uid(&WEB.replace("name: web\nspec", "name:   web  # the web\nspec"), "/pods/web.yaml", "n1")
    );
    assert_ne!(web, uid(WEB, "/pods/other.yaml", "n1"));
    assert_ne!(web, uid(WEB, "/pods/web.yaml", "n2"));
    assert_ne!(web, uid(&WEB.replace("nginx", "caddy"), "/pods/web.yaml", "n1"));
    let from_url = one(from_url(WEB));
    assert_ne!(web, from_url.uid());
    // Agents store UIDs; a new release must not change the UIDs of old manifests.
    assert_eq!(web, "b5e2debc64292c2b5f53c9ead57c00e6");
}

#[test]
fn yaml_and_json_are_the_same_pod() {
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},
        "spec":{"containers":[{"name":"web","image":"nginx"}]}}"#;
    assert_eq!(one(from_file(json)).uid(), one(from_file(WEB)).uid());
}

#[test]
fn numbers_are_good_quantities_and_a_leading_zero_is_octal() {
    let text = format!(
        "{WEB}    resources: {{limits: {{cpu: 1, memory: 1Gi}}}}\n  volumes:\n  - name: info\n    \
         downwardAPI: {{defaultMode: 0644}}\n"
    );
    let spec = one(from_file(&text)).spec.expect("a spec");
    let limits = spec.containers[0].resources.clone().expect("resources").limits.expect("limits");
    assert_eq!(limits["cpu"].0, "1");
    let volume = spec.volumes.expect("volumes").remove(0);
    assert_eq!(volume.downward_api.expect("a volume of that kind").default_mode, Some(0o644));

    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[
        {"name":"web","image":"nginx","resources":{"limits":{"cpu":2}}}]}}"#;
    let spec = one(from_file(json)).spec.expect("a spec");
    assert_eq!(
        spec.containers[0].resources.clone().expect("resources").limits.expect("limits")["cpu"].0,
        "2"
    );
}

/// The kubelet converts YAML into JSON before it knows the types.
#[test]
fn an_unquoted_number_or_word_is_no_string() {
    for scalar in ["8080", "1.5", "0644", "true", "yes", "y"] {
        assert_eq!(
            refusal(&with("image: nginx", &format!("image: {scalar}"))),
            "/pods/web.yaml: spec.containers[0].image: cannot be decoded: expected a string"
        );
        let quoted = one(from_file(&with("image: nginx", &format!("image: '{scalar}'"))));
        assert_eq!(quoted.spec.expect("a spec").containers[0].image.as_deref(), Some(scalar));
    }
    assert_eq!(refusal("- a\n- b\n"), "/pods/web.yaml: expected a mapping");
    assert_eq!(
        refusal(&format!("{WEB}  securityContext: all\n")),
        "/pods/web.yaml: spec.securityContext: cannot be decoded: expected a mapping"
    );
    let annotated = with("  name: web\n", "  name: web\n  annotations:\n    a.b/c: 1\n");
    assert_eq!(
        refusal(&annotated),
        "/pods/web.yaml: metadata.annotations.a.b/c: cannot be decoded: expected a string"
    );
    let list = "{apiVersion: v1, kind: PodList, items: [\n{metadata: {name: a}, spec: {containers: [\n{name: 1}]}}]}";
    let decoded = from_url(list);
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(decoded.problems[0].field.as_deref(), Some("items[0].spec.containers[0].name"));

    for (word, network) in [("yes", Some(true)), ("off", Some(false)), ("null", None)] {
        let pod = one(from_file(&format!("{WEB}  hostNetwork: {word}\n")));
        assert_eq!(pod.spec.expect("a spec").host_network, network);
    }
    assert_eq!(
        refusal(&format!("{WEB}  hostNetwork: 'yes'\n")),
        "/pods/web.yaml: spec.hostNetwork: cannot be decoded: expected a boolean"
    );
}

#[test]
fn unknown_fields_and_repeated_keys_are_warnings_and_the_last_of_equal_keys_counts() {
    let warnings = |text: &str, pods: usize| -> Vec<String> {
        let decoded = from_file(text);
        assert_eq!(decoded.pods.len(), pods, "{:?}", decoded.problems);
        let warnings = decoded.problems.iter().filter(|problem| problem.kind == ProblemKind::Warning);
        warnings.map(ToString::to_string).collect()
    };
    let text =
        with("    image: nginx\n", "    image: nginx\n    fromTheFuture: {a: [1]}\n    image: caddy\n");
    let image = from_file(&text).pods.remove(0).spec.expect("a spec").containers.remove(0).image;
    assert_eq!(image.as_deref(), Some("caddy"));
    assert_eq!(
        warnings(&text, 1),
        [
            "/pods/web.yaml: spec.containers[0].fromTheFuture: is unknown and ignored",
            "/pods/web.yaml:10: a key is repeated; the last one counts"
        ]
    );
    // The reason for the refusal, beside it.
    let field = "spec.containers[0].imagee: is unknown and ignored";
    assert_eq!(warnings(&with("image: nginx", "imagee: nginx"), 0), [format!("/pods/web.yaml: {field}")]);
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","label":{}},
        "spec":{"containers":[{"name":"web","image":"nginx"}]}}"#;
    assert_eq!(warnings(json, 1), ["/pods/web.yaml: metadata.label: is unknown and ignored"]);
}

#[test]
fn of_many_problems_the_last_one_is_as_grave_as_those_that_it_stands_for() {
    let unknown = (0..30).map(|n| format!("  other{n}: 1\n")).collect::<Vec<_>>().concat();
    let warned = WEB.replacen("spec:\n", &format!("spec:\n{unknown}"), 1);
    let bad = warned.replace("image: nginx", "image: ''");
    for (text, pods, kind) in [(warned, 1, ProblemKind::Warning), (bad, 0, ProblemKind::Invalid)] {
        let decoded = from_file(&text);
        let last = decoded.problems.last().unwrap();
        assert_eq!((decoded.pods.len(), decoded.problems.len()), (pods, 17));
        assert_eq!((last.kind, &*last.message), (kind, "and more problems"));
    }
}

#[test]
fn the_hash_counts_among_the_bytes_of_the_annotations() {
    for (uid, hash) in [("", 32), ("  uid: abc\n", 3)] {
        let most = 256 * 1024 - "kubernetes.io/config.hash".len() - hash;
        let with = |given: &str, bytes: usize| {
            let annotations = format!("  annotations:\n    a: {}\n{given}", "x".repeat(bytes - 1));
            WEB.replacen("  name: web\n", &format!("  name: web\n{uid}{annotations}"), 1)
        };
        assert_eq!(from_file(&with("", most)).problems, []);
        // The kubelet replaces it.
        assert_eq!(from_file(&with("    kubernetes.io/config.hash: old\n", most)).problems, []);
        let problem = refusal(&with("", most + 1));
        assert!(problem.contains("at most 262144 bytes together, not 262145"), "{problem}");
    }
}

#[test]
fn status_in_a_manifest_is_no_evidence() {
    let text = format!(
        "{WEB}status:\n  phase: Running\n  podIP: 10.0.0.9\n  podIPs: [{{ip: 10.0.0.9}}]\n  containerStatuses:\n  - {{name: web, image: i, \
         imageID: i, ready: true, restartCount: 0, containerID: 'containerd://{}'}}\n",
        "a".repeat(64)
    );
    let status = one(from_file(&text)).status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!((status.pod_ip, status.pod_ips, status.container_statuses), (None, None, None));
}

/// Each document replaces 10,000 values by aliases and by merges that a key then hides.
#[test]
fn the_documents_of_a_file_share_one_limit_of_aliases() {
    let chain =
        (1..14).map(|n| format!("m{n}: &m{n} {{<<: [*m{0}, *m{0}]}}\n", n - 1)).collect::<Vec<_>>().concat();
    let document = format!("m0: &m0 {{a: 1}}\n{chain}---\n");
    let decoded = from_file(&document.repeat(1_000));
    let limit = "the aliases of a document stand for more than 399 values";
    assert!(decoded.problems[0].to_string().ends_with(limit), "{}", decoded.problems[0]);
}

#[test]
fn deeply_nested_manifests_are_refused_before_they_take_much_stack() {
    let map = |levels: usize| format!("{WEB}x: {}1{}\n", "{a: ".repeat(levels), "}".repeat(levels));
    assert!(from_file(&map(20)).pods.len() == 1);
    for levels in [40, 50, 63, 10_000] {
        let problem = refusal(&map(levels));
        assert!(problem.contains("has more than 32 levels"), "{problem}");
    }
    let list = "{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": [";
    for levels in [2, 31, 63, 120, 10_000] {
        let decoded = from_url(&format!("{}{}", list.repeat(levels), "]}".repeat(levels)));
        assert!(decoded.pods.is_empty() && decoded.problems.len() == 1, "{levels}: {:?}", decoded.problems);
    }
}

#[test]
fn pods_beyond_a_limit_are_named() {
    let item = |n: usize| {
        format!(
            "{{\"metadata\":{{\"name\":\"p{n}\"}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\"}}]}}}}"
        )
    };
    let items = (0..10_000).map(item).collect::<Vec<_>>().join(",");
    let decoded = from_url(&format!("{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[{items}]}}"));
    assert_eq!(decoded.pods.len(), 1_024);
    let problems: Vec<_> = decoded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "http://localhost/pods: items[1024]: the pod p1024 is not read, because a manifest may have 1024 pods"
        ]
    );

    let env = vec![r#"{"name":"a"}"#; 140_000].join(",");
    let problem = refusal(&format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"web\"}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\",\"env\":[{env}]}}]}}}}"
    ));
    assert!(problem.contains("the pod web has") && problem.contains("and may have 1572864"), "{problem}");
}

#[test]
fn a_file_may_hold_several_documents_and_a_bad_one_affects_no_other() {
    let bad = WEB.replace("image: nginx", "image: ''");
    let third = WEB.replacen("name: web", "name: third", 1);
    let decoded = from_file(&format!("# a comment\n---\n{WEB}---\n{bad}---\n---\n{third}"));
    let names: Vec<_> = decoded.pods.iter().map(PodMeta::name).collect();
    assert_eq!(names, ["web-node-1", "third-node-1"]);
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(
        decoded.problems[0].to_string(),
        "/pods/web.yaml: spec.containers[0].image: must not be empty (document 2)"
    );

    let wrong_type = WEB.replace("image: nginx", "image: [nginx]");
    let decoded = from_file(&format!("{wrong_type}---\n{third}"));
    assert_eq!(decoded.pods.len(), 1);
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(decoded.problems[0].field.as_deref(), Some("spec.containers[0].image"));
}

#[test]
fn a_list_is_for_urls_only() {
    let item = "{metadata: {name: %}, spec: {containers: [{name: c, image: i}]}}";
    let list = |kind: &str, items: &[&str]| {
        let items: Vec<_> = items.iter().map(|name| item.replace('%', name)).collect();
        format!("{{apiVersion: v1, kind: {kind}, items: [{}]}}", items.join(", "))
    };
    let decoded = from_url(&list("PodList", &["a", "b"]));
    assert!(decoded.problems.is_empty(), "{:?}", decoded.problems);
    let names: Vec<_> = decoded.pods.iter().map(PodMeta::name).collect();
    assert_eq!(names, ["a-node-1", "b-node-1"]);
    assert_eq!(from_url(&list("List", &["a"])).pods.len(), 1);
    assert!(from_url(&list("PodList", &[])).problems.is_empty());

    let decoded = from_url(&list("PodList", &["a", "B", "c"]));
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(decoded.problems[0].field.as_deref(), Some("items[1].metadata.name"));

    assert_eq!(refusal(&list("PodList", &["a"])), "/pods/web.yaml: kind: must be Pod, not PodList");
}

#[test]
fn a_refusal_names_the_field() {
    let empty_name = "metadata.name: must not be empty";
    let mirror =
        "metadata.annotations[kubernetes.io/config.mirror]: a manifest may not call itself a mirror pod";
    for (line, instead, problem) in [
        ("Pod", "Deployment", "kind: must be Pod, not Deployment"),
        ("kind: Pod\n", "", "kind: must be set, to Pod"),
        ("v1", "v2", "apiVersion: must be v1, not v2"),
        ("apiVersion: v1\n", "", "apiVersion: must be set, to v1"),
        ("  name: web\n", "  name: ''\n", empty_name),
        ("  name: web\n", "  labels: {}\n", empty_name),
        ("  name: web\n", "  name: web\n  annotations: {kubernetes.io/config.mirror: abc}\n", mirror),
        ("  name: web\n", "  name: web\n  annotations: {kubernetes.io/config.mirror: ''}\n", mirror),
    ] {
        assert_eq!(refusal(&with(line, instead)), format!("/pods/web.yaml: {problem}"), "{instead}");
    }
    for empty in ["", "   \n", "# nothing\n", "---\n---\n", "null"] {
        assert_eq!(refusal(empty), "/pods/web.yaml: holds no pod", "{empty:?}");
    }
    let long = format!("  name: {}\n", "a".repeat(250));
    for (line, instead, field, words) in [
        ("  name: web\n", "  name: Web\n", "metadata.name: \"Web-node-1\": ", "must consist of"),
        ("  name: web\n", "  name: w_b\n", "metadata.name: \"w_b-node-1\": ", "must consist of"),
        ("  name: web\n", "  name: \"w\\0b\"\n", "metadata.name: \"w\\0b-node-1\": ", "must consist of"),
        ("  name: web\n", "  name: wäb\n", "metadata.name: \"wäb-node-1\": ", "must consist of"),
        ("  name: web\n", &*long, "metadata.name: ", "no more than 253"),
        (
            "  name: web\n",
            "  name: web\n  namespace: kube_system\n",
            "metadata.namespace: ",
            "must consist of",
        ),
        ("- name: web", "- name: Web", "spec.containers[0].name: ", "must consist of"),
    ] {
        let problem = refusal(&with(line, instead));
        assert!(
            problem.starts_with(&format!("/pods/web.yaml: {field}")) && problem.contains(words),
            "{problem}"
        );
    }
}

#[test]
fn a_pod_needs_containers_and_they_need_names_and_images() {
    assert_eq!(
        refusal("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n"),
        "/pods/web.yaml: spec.containers: must name at least one container"
    );
    assert_eq!(
        refusal("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"),
        "/pods/web.yaml: spec: must be set"
    );
    for (tail, problem) in [
        ("  - {name: web, image: i}\n", ": spec.containers[1].name: another container has the same name"),
        (
            "  - {name: x, image: ' i'}\n",
            ": spec.containers[1].image: must not have leading or trailing whitespace",
        ),
        (
            "  restartPolicy: Sometimes\n",
            ": spec.restartPolicy: \"Sometimes\" is not one of Always, OnFailure, Never",
        ),
        (
            "    ports: [{containerPort: 0}]\n",
            ": spec.containers[0].ports[0].containerPort: must be between 1 and 65535",
        ),
        (
            "    volumeMounts: [{name: v, mountPath: /v}]\n",
            ": spec.containers[0].volumeMounts[0].name: no volume has this name",
        ),
        (
            "  volumes: [{name: V, emptyDir: {}}]\n",
            ": spec.volumes[0].name: must consist of lower case letters, digits or '-', and must start and end with a letter or digit",
        ),
        (
            "  ephemeralContainers: [{name: e, image: i}]\n",
            ": spec.ephemeralContainers: cannot be set when a pod is created",
        ),
    ] {
        assert_eq!(refusal(&format!("{WEB}{tail}")), format!("/pods/web.yaml{problem}"));
    }
}

/// Where it stands, the reference, its field below that, and what it refers to.
const REFERENCES: &str = "\
spec | serviceAccountName: robot | serviceAccountName | serviceaccounts
spec | serviceAccount: robot | serviceAccount | serviceaccounts
spec | imagePullSecrets: [{name: s}] | imagePullSecrets[0] | secrets
spec | resourceClaims: [{name: c}] | resourceClaims[0] | resourceclaims
spec | initContainers: [{name: i, image: i, envFrom: [{secretRef: {name: s}}]}] | initContainers[0].envFrom[0].secretRef | secrets
container | envFrom: [{configMapRef: {name: c}}] | envFrom[0].configMapRef | configmaps
container | env: [{name: E, valueFrom: {secretKeyRef: {name: s, key: k}}}] | env[0].valueFrom.secretKeyRef | secrets
container | env: [{name: E, valueFrom: {configMapKeyRef: {name: c, key: k}}}] | env[0].valueFrom.configMapKeyRef | configmaps
volume | configMap: {name: c} | configMap | configmaps (via configmap volumes)
volume | secret: {secretName: s} | secret | secrets (via secret volumes)
volume | csi: {driver: d} | csi | csidrivers (via CSI volumes)
volume | glusterfs: {endpoints: e, path: p} | glusterfs | endpoints (via glusterFS volumes)
volume | persistentVolumeClaim: {claimName: c} | persistentVolumeClaim | persistentvolumeclaims
volume | ephemeral: {} | ephemeral | persistentvolumeclaims (via ephemeral volumes)
volume | azureFile: {secretName: s, shareName: h} | azureFile | secrets (via azureFile volumes)
volume | cephfs: {monitors: [m], secretRef: {name: s}} | cephfs.secretRef | secrets
volume | cinder: {volumeID: i, secretRef: {name: s}} | cinder.secretRef | secrets
volume | flexVolume: {driver: d, secretRef: {name: s}} | flexVolume.secretRef | secrets
volume | iscsi: {targetPortal: t, iqn: q, lun: 0, secretRef: {name: s}} | iscsi.secretRef | secrets
volume | rbd: {monitors: [m], image: i, secretRef: {name: s}} | rbd.secretRef | secrets
volume | scaleIO: {gateway: g, system: s, secretRef: {name: s}} | scaleIO.secretRef | secrets
volume | storageos: {secretRef: {name: s}} | storageos.secretRef | secrets
projected | configMap: {name: c} | configMap | configmaps (via projected volumes)
projected | secret: {name: s} | secret | secrets (via projected volumes)
projected | serviceAccountToken: {path: p} | serviceAccountToken | serviceaccounts (via projected volumes)
projected | clusterTrustBundle: {path: p} | clusterTrustBundle | clustertrustbundles
projected | podCertificate: {keyType: k, signerName: s} | | the API through this kind of projected volume";

#[test]
fn every_reference_to_an_object_of_the_api_server_is_refused_by_its_field() {
    let container = |fields: &str| with("    image: nginx\n", &format!("    image: nginx\n    {fields}\n"));
    let spec = |fields: &str| format!("{WEB}  {fields}\n");
    let volume = |kind: &str| spec(&format!("volumes: [{{name: v, {kind}}}]"));
    for row in REFERENCES.lines() {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [place, reference, field, resource] = cells[..] else { panic!("{row}") };
        let (text, parent) = match place {
            "container" => (container(reference), "spec.containers[0]"),
            "volume" => (volume(reference), "spec.volumes[0]"),
            "projected" => (
                volume(&format!("projected: {{sources: [{{{reference}}}]}}")),
                "spec.volumes[0].projected.sources[0]",
            ),
            _ => (spec(reference), "spec"),
        };
        let decoded = from_file(&text);
        assert!(decoded.pods.is_empty(), "accepted:\n{text}");
        let [problem] = &decoded.problems[..] else { panic!("{text}{:?}", decoded.problems) };
        assert_eq!(problem.kind, ProblemKind::Reference, "{problem}");
        let field = if field.is_empty() { parent.to_owned() } else { format!("{parent}.{field}") };
        assert_eq!(problem.field.as_deref(), Some(&*field));
        assert_eq!(problem.message, format!("static pods may not reference {resource}"));
    }
    for fine in [
        "hostPath: {path: /v}",
        "emptyDir: {}",
        "nfs: {server: s, path: /p}",
        "downwardAPI: {}",
        "projected: {sources: [{downwardAPI: {}}]}",
        "image: {reference: r}",
        "rbd: {monitors: [m], image: i}",
    ] {
        one(from_file(&volume(fine)));
    }
    one(from_file(&spec("serviceAccountName: ''")));
    one(from_file(&container("env: [{name: E, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]")));
}

#[test]
fn broken_yaml_names_its_line() {
    let decoded = from_file(&with("  name: web\n", "  name: 'web\n"));
    assert!(decoded.pods.is_empty());
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(decoded.problems[0].kind, ProblemKind::Syntax);
    assert!(decoded.problems[0].line.is_some(), "{}", decoded.problems[0]);
    let decoded = from_file("{\"apiVersion\": \"v1\",\n \"kind\" \"Pod\"}");
    assert_eq!(decoded.problems.len(), 1);
    assert_eq!(decoded.problems[0].line, Some(2), "{}", decoded.problems[0]);
}

#[test]
fn bombs_are_refused_cheaply() {
    let aliases = (1..12)
        .map(|level| format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(9)))
        .collect::<Vec<_>>()
        .concat();
    let aliases = format!("a0: &a0 [x, x, x, x, x, x, x, x, x]\n{aliases}");
    let deep_json = "[".repeat(1_000_000);
    let deep_pod = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":{}", "[".repeat(1_000_000));
    let documents = "---\n{}\n".repeat(100_000);
    let annotations = (0..300_000).map(|n| format!("    a{n}: b\n")).collect::<Vec<_>>().concat();
    let million = WEB.replacen("name: web\n", &format!("name: web\n  annotations:\n{annotations}"), 1);
    let key = format!("name: web\n  annotations:\n    ? {}\n    : 1\n", "k".repeat(1_000_000));
    let long_key = WEB.replacen("name: web\n", &key, 1);
    for bomb in [&aliases, &deep_json, &deep_pod, &documents, &million, &long_key] {
        let decoded = from_file(bomb);
        assert!(decoded.pods.is_empty());
        assert!(!decoded.problems.is_empty());
        assert!(decoded.problems.len() <= 20, "{} problems", decoded.problems.len());
        for problem in &decoded.problems {
            assert!(problem.to_string().len() < 1_000, "{problem}");
        }
    }
}

#[test]
fn aliases_and_merge_keys_are_replaced() {
    let pod = one(from_file(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: &name web, labels: {app: *name}}\nspec:\n  containers:\n  \
         - &web {name: *name, image: nginx, command: &run [serve]}\n  - {<<: *web, name: two, args: *run}\n",
    ));
    assert_eq!(pod.metadata.labels.unwrap()["app"], "web");
    let containers = pod.spec.unwrap().containers;
    let [web, two] = &*containers else { panic!("{containers:?}") };
    assert_eq!((&*web.name, web.image.as_deref(), &web.args), ("web", Some("nginx"), &None));
    assert_eq!((&*two.name, two.image.as_deref()), ("two", Some("nginx")));
    assert_eq!((&two.command, &two.args), (&web.command, &web.command));
}

#[test]
fn aliases_may_not_make_a_manifest_much_larger() {
    let with_aliases = |text: &str, count: usize| {
        let anchors = (1..=count / 10).map(|n| format!("    - &e{n} x\n")).collect::<Vec<_>>().concat();
        let aliases = "    - *text\n".repeat(count);
        format!("{WEB}    args:\n    - &text \"{text}\"\n{anchors}{aliases}")
    };
    let text = "x".repeat(100_000);
    one(from_file(&with_aliases(&text, 10)));
    let limit = "larger than the limit of 4194304 bytes, with every alias replaced";
    for count in [60, 1_000] {
        let problem = refusal(&with_aliases(&text, count));
        assert!(problem.contains(limit), "{problem}");
    }
    // A control character takes six bytes in JSON.
    let limit = "larger than the limit of 8388608 bytes as JSON";
    let problem = refusal(&with_aliases(&r"\a".repeat(100_000), 40));
    assert!(problem.contains(limit), "{problem}");
    // All documents together.
    let decoded = from_file(&format!("{}---\n", with_aliases(&text, 14)).repeat(10));
    let problems: Vec<_> = decoded.problems.iter().map(ToString::to_string).collect();
    assert_eq!((decoded.pods.len(), problems.len()), (5, 1), "{problems:?}");
    assert!(problems[0].contains("bytes as JSON"), "{problems:?}");
}

/// As written by YAML libraries that give equal lists an anchor.
#[test]
fn a_hundred_pods_may_share_a_long_list() {
    let env = (0..400).map(|n| format!("{{name: V{n}, value: x}}, ")).collect::<Vec<_>>().concat();
    let pod = |n: usize, env: &str| {
        format!(
            "- apiVersion: v1\n  kind: Pod\n  metadata: {{name: web-{n}}}\n  spec:\n    containers:\n    \
             - {{name: web, image: nginx, env: {env}}}\n"
        )
    };
    let pods = (1..110).map(|n| pod(n, "*env")).collect::<Vec<_>>().concat();
    let list = format!("apiVersion: v1\nkind: PodList\nitems:\n{}{pods}", pod(0, &format!("&env [{env}]")));
    let decoded = from_url(&list);
    assert_eq!((decoded.pods.len(), decoded.problems.len()), (110, 0), "{:?}", decoded.problems.first());
}

/// A failed document, one that is no mapping and one with a repeated key may each take long and leave little behind.
#[test]
fn many_documents_and_many_aliases_are_refused() {
    let many = |count: usize| format!("a: &a [{}]\n", "x,".repeat(count));
    let limit = "the aliases of a document stand for more than 10000 values";
    // Each may begin another document. With fewer, a document may have more values.
    let markers = "...\n".repeat(39);
    for document in [
        format!("{}b: [*a, *a]\n", many(5_000)),
        format!("{}{}b: x\n", many(5_000), "b: *a\n".repeat(4)),
        format!("{}? [*a, *a]\n: x\n", many(5_000)),
        format!("- {}- [*a, *a]\n", many(5_000)),
    ] {
        let decoded = from_file(&format!("{document}{markers}"));
        let grave = decoded.problems.iter().filter(|problem| problem.kind.is_grave());
        let problems: Vec<_> = grave.map(ToString::to_string).collect();
        assert!(problems.len() == 1 && problems[0].ends_with(limit), "{problems:?}");
    }
    let decoded = from_file(&format!("{}{WEB}", "[]\n---\n".repeat(1_023)));
    assert_eq!(decoded.pods.len(), 1);
    let decoded = from_file(&format!("{}{WEB}", "[]\n---\n".repeat(1_024)));
    let problems: Vec<_> = decoded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(decoded.pods.len(), 0);
    let limit = "/pods/web.yaml: has more than 1024 documents; the others are not read";
    assert!(problems.iter().any(|problem| problem == limit), "{problems:?}");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    for bytes in [&b"\xff\xfe\x00\x01"[..], b"\0", b"\x89PNG\r\n", &[0x80; 1000]] {
        let decoded = decode(bytes, Origin::File(Path::new("/pods/x")), &NodeName::new("n"));
        assert!(decoded.pods.is_empty() && !decoded.problems.is_empty(), "{bytes:?}");
    }
}
