//! `/whois` and `pod-index whois`: finding a pod by any identity in an event.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::metrics::value;
use crate::support::{Agent, Directory, PATIENCE, binary, get, stderr, stdout};

const WEB: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const STATIC: &str = "b400a6d5b1b1c5f4c3b2a1908f7e6d5c";
pub const MIRROR: &str = "5b3e5b3e-0000-4000-8000-5b3e5b3e5b3e";

/// A container ID.
fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A pod with two containers, an owner and labels.
fn web() -> Value {
    let mut web = pod("web-0", "node-1", &json!({}));
    web["metadata"]["namespace"] = json!("shop");
    web["metadata"]["uid"] = json!(WEB);
    web["metadata"]["labels"] = json!({ "app": "web", "tier": "front" });
    web["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "not-the-controller", "uid": "o0" },
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o1", "controller": true },
    ]);
    web["status"] = json!({
        "phase": "Running",
        "podIPs": [{ "ip": "10.0.0.7" }, { "ip": "fd00::7" }],
        "containerStatuses": [{
            "name": "nginx", "image": "i", "imageID": "", "ready": true, "restartCount": 1,
            "containerID": format!("containerd://{}", id('a')),
            "lastState": { "terminated": { "exitCode": 1, "containerID": format!("containerd://{}", id('b')) } },
        }],
        "initContainerStatuses": [{
            "name": "setup", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{}", id('c')),
        }],
    });
    web
}

/// The mirror of the kubelet's static pod.
fn mirror() -> Value {
    let annotations = json!({
        "kubernetes.io/config.mirror": STATIC, "kubernetes.io/config.hash": STATIC,
        "kubernetes.io/config.source": "file",
    });
    let mut mirror = pod("static-web-node-1", "node-1", &annotations);
    mirror["metadata"]["uid"] = json!(MIRROR);
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n1", "controller": true }]);
    mirror
}

pub struct Setup {
    pub agent: Agent,
    server: ApiServer,
    /// The host's processes.
    proc: Directory,
    _directory: Directory,
}

impl Setup {
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(args: &[&str]) -> Self {
        let (server, directory, proc) = (ApiServer::start().await, Directory::new(), Directory::new());
        server.put("pods", &web());
        server.put("pods", &mirror());
        let kubeconfig = kubeconfig(&directory, &server);
        let at = proc.0.to_str().unwrap();
        let given = ["--kubeconfig", &kubeconfig, "--hostname-override", "node-1", "--proc", at];
        let agent = Agent::start(&[&given, args].concat());
        agent.until("/readyz", |answer| answer.code == 200);
        Self { agent, server, proc, _directory: directory }
    }

    /// A process in this cgroup.
    fn process(&self, pid: &str, cgroup: &str) {
        fs::create_dir(self.proc.0.join(pid)).unwrap();
        // Started long ago.
        let stat = format!("{pid} (a b) S{}\n", " 0".repeat(40));
        fs::write(self.proc.0.join(pid).join("stat"), stat).unwrap();
        fs::write(self.proc.0.join(pid).join("cgroup"), cgroup).unwrap();
    }

    /// The answers to queries in a URL.
    fn get(&self, queries: &[&str]) -> Vec<Value> {
        let mut url = form_urlencoded::Serializer::new("/whois?".to_owned());
        url.extend_pairs(queries.iter().map(|query| ("q", query)));
        lines(&self.agent.get(&url.finish()).body)
    }

    /// Runs `pod-index whois` with this standard input.
    fn pipe(&self, args: &[&str], input: &[u8]) -> Output {
        pipe(&self.agent, args, input)
    }
}

fn pipe(agent: &Agent, args: &[&str], input: &[u8]) -> Output {
    let port = agent.address.port().to_string();
    let mut command = binary(&[&["whois", "--port", &port], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The command may end before it has read everything.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn cgroup(uid: &str, container: &str) -> String {
    let uid = uid.replace('-', "_");
    format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{container}.scope"
    )
}

/// Each form of query: the text, its kind, the key that finds the pod, and the container.
fn forms() -> Vec<(String, &'static str, &'static str, Option<&'static str>)> {
    let log = format!("/var/log/pods/shop_web-0_{WEB}/nginx/1.log");
    let link = |container: &str| format!("/var/log/containers/web-0_shop_nginx-{container}.log");
    vec![
        (WEB.to_owned(), "uid", "uid", None),
        (format!("  {WEB}\r"), "uid", "uid", None),
        ("shop/web-0".to_owned(), "name", "name", None),
        ("web-0_shop".to_owned(), "name", "name", None),
        (cgroup(WEB, &id('a')), "cgroup", "uid", Some("nginx")),
        (cgroup(WEB, &id('b')), "cgroup", "uid", Some("nginx")),
        (cgroup(WEB, &id('c')), "cgroup", "uid", Some("setup")),
        // The sandbox, which no status names.
        (cgroup(WEB, &id('d')), "cgroup", "uid", None),
        (format!("0::{}", cgroup(WEB, &id('a'))), "cgroup", "uid", Some("nginx")),
        (format!("/sys/fs/cgroup/kubepods/burstable/pod{WEB}"), "cgroup", "uid", None),
        (log.clone(), "logPath", "uid", Some("nginx")),
        (format!("{log}.20260102-030405.gz"), "logPath", "uid", Some("nginx")),
        (id('a'), "containerId", "containerId", Some("nginx")),
        (format!("containerd://{}", id('b')), "containerId", "containerId", Some("nginx")),
        (format!("cri-containerd-{}.scope", id('c')), "containerId", "containerId", Some("setup")),
        ("10.0.0.7".to_owned(), "ip", "ip", None),
        ("::ffff:10.0.0.7".to_owned(), "ip", "ip", None),
        ("fd00:0::7".to_owned(), "ip", "ip", None),
        // Inside a cgroup namespace.
        (format!("/../cri-containerd-{}.scope", id('a')), "cgroup", "containerId", Some("nginx")),
        (link(&id('a')), "logLink", "containerId", Some("nginx")),
        // No status names this container.
        (link(&id('e')), "logLink", "nameOnly", Some("nginx")),
        ("4711".to_owned(), "pid", "uid", Some("nginx")),
        ("4712".to_owned(), "pid", "containerId", Some("nginx")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_form_of_identity_finds_the_pod() {
    let setup = Setup::new().await;
    setup.process("4711", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    setup.process("4712", &format!("0::/../cri-containerd-{}.scope\n", id('b')));
    let forms = forms();
    let queries: Vec<_> = forms.iter().map(|(query, ..)| &**query).collect();
    let answers = setup.get(&queries);
    assert_eq!(answers.len(), forms.len());
    for (answer, (query, kind, by, container)) in answers.iter().zip(&forms) {
        let mut expected = json!({
            "found": true, "query": query, "kind": kind, "foundBy": by, "namespace": "shop", "name": "web-0",
            "podUID": WEB, "node": "node-1", "owner": { "kind": "ReplicaSet", "name": "web" },
            "workload": { "kind": "ReplicaSet", "name": "web", "derived": true },
            "labels": { "app": "web", "tier": "front" },
        });
        if let Some(container) = container {
            expected["container"] = json!(container);
        }
        assert_eq!(answer, &expected);
    }

    // The same through the body, the command line, standard input and /pods.
    let body = setup.agent.send("POST /whois", "", &queries.join("\n")).body;
    assert_eq!(lines(&body), answers);
    let output = setup.agent.ask(&[&["whois", "-o", "json"], &*queries].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(lines(stdout(&output)), answers);
    for args in [&["-o", "json"][..], &["-o", "json", "-"]] {
        let output = setup.pipe(args, queries.join("\n").as_bytes());
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), body);
    }
    for (query, ..) in &forms {
        let key: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let found: Value = setup.agent.get(&format!("/pods/{}", key.replace('+', "%20"))).json();
        assert_eq!(found["metadata"]["uid"], WEB, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pod_is_found_by_each_of_its_identities_and_says_when_it_was_removed() {
    let setup = Setup::with(&["--keep-removed", "1h"]).await;
    setup.process("4711", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    setup.process("4712", &format!("0::/../cri-containerd-{}.scope\n", id('b')));
    let forms = forms();
    let queries: Vec<_> = forms.iter().map(|(query, ..)| &**query).collect();
    let before = setup.get(&queries);
    let start = Timestamp::now();
    setup.server.remove("pods", "shop", "web-0").expect("a known pod");
    setup.agent.until("/pods/shop/web-0", |answer| answer.code == 404);

    let answers = setup.get(&queries);
    for (answer, before) in answers.iter().zip(before) {
        let mut answer = answer.clone();
        let removed = answer.as_object_mut().unwrap().remove("removed").expect("it was removed");
        let removed: Timestamp = removed.as_str().unwrap().parse().expect("RFC 3339");
        let since = removed.duration_since(start).as_secs();
        assert!(
            (-1..=i64::try_from(PATIENCE.as_secs()).unwrap()).contains(&since),
            "{since} s after the removal"
        );
        assert_eq!(answer, before, "all else is as before");
    }
    let output = setup.agent.ask(&["whois", WEB]);
    let table = stdout(&output);
    assert!(output.status.success() && table.contains("UID, removed 20"), "{table}");

    let output = setup.agent.ask(&["get", WEB]);
    assert!(
        output.status.success() && stderr(&output).contains("the pod was removed at 20"),
        "{}",
        stderr(&output)
    );

    // One pod is marked. Nothing else shows it.
    let pod: Value = setup.agent.get(&format!("/pods/{WEB}")).json();
    let time = pod["metadata"]["annotations"]["pod-index/removed"].as_str().expect("the annotation");
    assert!(time.parse::<Timestamp>().is_ok(), "{time}");
    for list in ["/pods", "/api/v1/pods", "/api/v1/namespaces/shop/pods"] {
        assert!(!setup.agent.get(list).body.contains("web-0"), "{list}");
    }
    assert_eq!(setup.agent.get("/api/v1/namespaces/shop/pods/web-0").code, 404);
    let metrics = setup.agent.get("/metrics").body;
    assert_eq!(value(&metrics, "pod_index_removed_pods"), 1);
    assert_eq!(value(&metrics, r#"pod_index_keys{kind="container_id"}"#), 0);

    // Another pod takes the name. Late events of the removed one do not lead to it.
    let mut next = pod_of("u-2");
    next["status"]["podIPs"] = json!([{ "ip": "10.0.0.7" }]);
    setup.server.put("pods", &next);
    setup.agent.until("/pods/shop/web-0", |answer| answer.code == 200);
    let link = |digit| format!("/var/log/containers/web-0_shop_nginx-{}.log", id(digit));
    let uids = |queries: &[&str]| -> Vec<_> {
        setup
            .get(queries)
            .iter()
            .map(|answer| (answer["podUID"].clone(), answer["removed"].is_string()))
            .collect()
    };
    let (old, new) = ((json!(WEB), true), (json!("u-2"), false));
    assert_eq!(
        uids(&[WEB, &id('a'), &link('a'), "4711", "shop/web-0", "10.0.0.7", &link('e')]),
        [&old, &old, &old, &old, &new, &new, &new].map(Clone::clone)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ip_is_found_with_the_pod_that_had_it_at_the_time() {
    let setup = Setup::with(&["--keep-removed", "1h", "--clock-skew", "0s", "--source-delay", "0s"]).await;
    let get = |query: &str, at: &str| setup.agent.get(&format!("/whois?q={query}&at={at}"));
    // Waits until it is certain who had the IP. Another pod's event shows that the watch is alive.
    let holder = |at: &str| -> Value {
        let mut other = pod("other", "node-1", &json!({}));
        other["metadata"]["annotations"] = json!({ "at": at });
        setup.server.put("pods", &other);
        let path = format!("/whois?q=10.0.0.7&at={at}");
        setup.agent.until(&path, |answer| answer.body.contains(r#""found":true"#)).json()
    };
    let first = Timestamp::now().to_string();
    let answer = holder(&first);
    assert_eq!((&answer["podUID"], &answer["at"]), (&json!(WEB), &json!(first)), "{answer}");
    let bound =
        |time: &Value| time.as_str().and_then(|time| time.parse::<Timestamp>().ok()).expect("RFC 3339");
    let asked: Timestamp = first.parse().unwrap();
    assert!(
        bound(&answer["from"]["latest"]) <= asked && asked < bound(&answer["until"]["earliest"]),
        "{answer}"
    );

    // Another pod gets the IP.
    setup.server.remove("pods", "shop", "web-0").expect("a known pod");
    let mut next = web();
    (next["metadata"]["uid"], next["metadata"]["name"]) = (json!("u-2"), json!("web-1"));
    setup.server.put("pods", &next);
    setup.agent.until("/whois?q=shop/web-1", |answer| answer.body.contains(r#""found":true"#));
    let second = Timestamp::now().to_string();
    assert_eq!(holder(&second)["podUID"], "u-2");
    let answer = holder(&first);
    assert!(answer["podUID"] == WEB && answer["removed"].is_string(), "{answer}");
    let body = format!("10.0.0.7 at={first}\n10.0.0.7 at={second}");
    let answers = lines(&setup.agent.send("POST /whois", "", &body).body);
    assert_eq!([&answers[0]["podUID"], &answers[1]["podUID"]], [WEB, "u-2"], "{answers:?}");

    // Not certain, for one reason or another.
    let future: Value = get("10.0.0.7", "2100-01-01T00:00:00Z").json();
    assert_eq!(
        (&future["found"], &future["candidates"][0]["podUID"]),
        (&json!(false), &json!("u-2")),
        "{future}"
    );
    let past: Value = get("10.0.0.99", "0").json();
    assert!(past["error"].as_str().unwrap().contains("before what the agent knows"), "{past}");
    assert!(past["known"]["earliest"].is_string(), "{past}");
    let never: Value = get("10.0.0.99", &second).json();
    assert!(never["error"].as_str().unwrap().contains("at that time"), "{never}");
    assert_eq!(get("10.0.0.7", "yesterday").code, 400);
    let process: Value = get("1", &second).json();
    assert!(process["error"].as_str().unwrap().contains("PID@NANOSECONDS"), "{process}");
    // What needs no time.
    assert_eq!(get(WEB, "0").json::<Value>()["podUID"], WEB);

    let output = setup.agent.ask(&["whois", "--at", &first, "10.0.0.7"]);
    assert!(
        output.status.success() && stdout(&output).contains(&format!("IP at {first}, removed 20")),
        "{output:?}"
    );
    let output = setup.pipe(&["--time-field", "1"], format!("{second} 10.0.0.7\n").as_bytes());
    assert!(output.status.success() && stdout(&output).contains("web-1"), "{output:?}");
    let output = setup.agent.ask(&["whois", "--at", "2100-01-01T00:00:00Z", "10.0.0.7"]);
    assert!(stderr(&output).contains("perhaps shop/web-1"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_id_with_another_start_is_another_process() {
    let setup = Setup::with(&[]).await;
    setup.process("4711", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    let answers = setup.get(&["4711@0", "4711", "4711@50000000", "4711@x"]);
    assert_eq!(answers[0]["podUID"], WEB, "{answers:?}");
    assert_eq!(answers[1]["podUID"], WEB, "{answers:?}");
    assert!(answers[2]["error"].as_str().unwrap().contains("no process has this ID"), "{answers:?}");
    assert_eq!(answers[3]["found"], false, "{answers:?}");
}

/// A pod with the name of `web`, and without a status.
fn pod_of(uid: &str) -> Value {
    let mut pod = web();
    pod["metadata"]["uid"] = json!(uid);
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pod_is_unknown_when_its_time_is_over() {
    for args in [&["--keep-removed", "300ms"][..], &["--keep-removed", "0"], &["--keep-removed-max", "0"]] {
        let setup = Setup::with(args).await;
        setup.server.remove("pods", "shop", "web-0").expect("a known pod");
        // Nothing is written after the removal.
        for query in [WEB, &id('a'), "10.0.0.7", "shop/web-0"] {
            setup
                .agent
                .until(&format!("/whois?q={query}"), |answer| answer.body.contains(r#""found":false"#));
        }
        assert_eq!(setup.agent.get(&format!("/pods/{WEB}")).code, 404);
        let metrics = setup.agent.get("/metrics").body;
        assert_eq!(value(&metrics, "pod_index_removed_pods"), 0, "{args:?}");
        // Forgetting a pod is a publication, too. It is counted after it is published.
        setup.agent.until("/metrics", |answer| {
            let generation = value(&answer.body, "pod_index_generation");
            generation == value(&answer.body, "pod_index_publications_total")
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_pod_is_found_by_its_own_uid_and_by_that_of_its_mirror() {
    let setup = Setup::new().await;
    let log = format!("/var/log/pods/default_static-web-node-1_{STATIC}/c/0.log");
    let cgroup = format!("/kubepods/besteffort/pod{STATIC}");
    let answers = setup.get(&[STATIC, MIRROR, "default/static-web-node-1", &log, &cgroup]);
    for (answer, by) in answers.iter().zip(["uid", "mirrorUid", "name", "uid", "uid"]) {
        assert_eq!((&answer["found"], &answer["foundBy"]), (&json!(true), &json!(by)), "{answer}");
        assert_eq!((&answer["podUID"], &answer["mirrorUID"]), (&json!(STATIC), &json!(MIRROR)), "{answer}");
        assert_eq!((&answer["name"], &answer["node"]), (&json!("static-web-node-1"), &json!("node-1")));
    }
    // This path does not translate UIDs.
    let answer = setup.agent.get(&format!("/pods/{MIRROR}"));
    assert_eq!(answer.code, 404);
    assert!(answer.body.contains(STATIC), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_has_a_line_for_each_pod_and_errors_go_to_standard_error() {
    let setup = Setup::new().await;
    let log = format!("/var/log/pods/shop_web-0_{WEB}/nginx/1.log");
    let args = ["whois", WEB, &log, MIRROR, "shop/web-1", "/system.slice/sshd.service", "10.0"];
    let output = setup.agent.ask(&args);
    assert_eq!(output.status.code(), Some(1));
    let rows: Vec<Vec<&str>> = stdout(&output)
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
        .collect();
    let (uid, labels) = (WEB, "app=web,tier=front");
    let web = |query, by, container| {
        vec![query, by, "shop", "web-0", container, "node-1", "ReplicaSet/web", uid, "-", labels]
    };
    let expected = [
        vec![
            "QUERY",
            "FOUND BY",
            "NAMESPACE",
            "NAME",
            "CONTAINER",
            "NODE",
            "OWNER",
            "UID",
            "MIRROR UID",
            "LABELS",
        ],
        web(WEB, "UID", "-"),
        web("…4b5a-6978-8796-a5b4c3d2e1f0/nginx/1.log", "log path: UID", "nginx"),
        vec![MIRROR, "mirror UID", "default", "static-web-node-1", "-", "node-1", "-", STATIC, MIRROR, "-"],
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        stderr(&output),
        "pod-index: \"shop/web-1\": no pod has this name\n\
         pod-index: \"/system.slice/sshd.service\": the path names no pod and no container\n\
         pod-index: \"10.0\": not recognised; no pod has this UID\n"
    );
    let output = setup.agent.ask(&["whois", "nobody"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let output = setup.agent.ask(&["whois", WEB, "nobody", "-o", "yaml"]);
    let documents: Vec<Value> = serde_saphyr::from_multiple(stdout(&output)).unwrap();
    assert_eq!(documents, setup.get(&[WEB, "nobody"]));
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_looked_up_in_the_proc_of_the_host() {
    let setup = Setup::with(&["--cgroup-root", "/nodes"]).await;
    setup.process("7", "0::/system.slice/sshd.service\n");
    // A user with a delegated cgroup can make such a name.
    setup.process("12", &format!("0::/user.slice/kubepods/pod{STATIC}\n"));
    setup.process("13", &format!("0::/nodes/kubepods/pod{STATIC}\n"));
    let answers = setup.get(&["12", "13"]);
    assert_eq!(answers[0]["error"], "the process belongs to no pod");
    assert_eq!(answers[1]["podUID"], json!(STATIC));
    setup.process("8", &format!("0::/kubepods/pod{STATIC}/{}\n", id('f')));
    setup.process("9", &format!("0::/kubepods/podu-9/{}\n", id('f')));
    setup.process("10", "");
    fs::write(setup.proc.0.join("10/stat"), "10 (a b)").unwrap();
    let answers = setup.get(&["7", "8", "9", "10", "4711"]);
    assert_eq!(answers[0]["error"], "the process belongs to no pod");
    assert_eq!((&answers[1]["kind"], &answers[1]["podUID"]), (&json!("pid"), &json!(STATIC)));
    assert_eq!(answers[2]["error"], "the index does not have the pod of this process");
    assert!(answers[3]["error"].as_str().unwrap().contains("10/stat"), "{}", answers[3]);
    assert!(answers[4]["error"].as_str().unwrap().starts_with("no process has this ID"), "{}", answers[4]);
    assert!(answers.iter().all(|answer| answer["kind"] == "pid"));

    // Another pod claims the container's ID, and its claim is stronger.
    setup.process("11", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    let mut thief = web();
    thief["metadata"]["name"] = json!("thief");
    thief["metadata"]["uid"] = json!("thief-uid");
    thief["metadata"]["creationTimestamp"] = json!("2100-01-01T00:00:00Z");
    thief["status"]["containerStatuses"][0]["name"] = json!("stolen");
    setup.server.put("pods", &thief);
    setup.agent.until("/pods/thief-uid", |answer| answer.code == 200);
    let answers = setup.get(&[&id('a'), "11", &cgroup(WEB, &id('a'))]);
    assert_eq!((&answers[0]["name"], &answers[0]["container"]), (&json!("thief"), &json!("stolen")));
    for answer in &answers[1..] {
        assert_eq!((&answer["podUID"], &answer["container"]), (&json!(WEB), &Value::Null), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_uid_that_looks_like_a_name_is_found_if_no_pod_has_the_name() {
    let setup = Setup::new().await;
    let mut odd = pod("odd", "node-1", &json!({}));
    odd["metadata"]["uid"] = json!("own_uid");
    setup.server.put("pods", &odd);
    setup.agent.until("/pods/own_uid", |answer| answer.code == 200);
    let answers = setup.get(&["own_uid"]);
    assert_eq!((&answers[0]["kind"], &answers[0]["foundBy"]), (&json!("name"), &json!("uid")));
    assert_eq!(answers[0]["name"], "odd");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_finds_a_pod_that_comes_later_and_ends_when_it_does_not() {
    let setup = Setup::new().await;
    for args in [&["later-uid", WEB, "-o", "json"][..], &["-o", "json"]] {
        let uid = if args.len() > 2 { "later-uid" } else { "still-later-uid" };
        let mut later = pod(uid, "node-1", &json!({}));
        later["metadata"]["uid"] = json!(uid);
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                // Most likely, the query has arrived by then. If not, the pod is found without waiting.
                thread::sleep(Duration::from_millis(300));
                setup.server.put("pods", &later);
            });
            setup.pipe(&[args, &["--wait", "60s"]].concat(), format!("{uid}\n{WEB}\n").as_bytes())
        });
        assert!(output.status.success(), "{} {}", stdout(&output), stderr(&output));
        let answers = lines(stdout(&output));
        let uids: Vec<_> = answers.iter().map(|answer| answer["podUID"].as_str().unwrap()).collect();
        assert_eq!(uids, [uid, WEB]);
    }

    let began = Instant::now();
    let output = setup.agent.ask(&["whois", "never", WEB, "--wait", "300ms", "-o", "json"]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(output.status.code(), Some(1));
    let found: Vec<_> = lines(stdout(&output)).iter().map(|answer| answer["found"].clone()).collect();
    assert_eq!(found, [false, true]);
    // Invalid queries do not wait.
    let began = Instant::now();
    let output = setup.agent.ask(&["whois", "/no/pod", "4711", "--wait", "5m"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(began.elapsed() < PATIENCE);
    let output = setup.agent.ask(&["whois", "never", "--wait", "6m"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), "pod-index: --wait: at most 300 s\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lines_get_as_many_answers_in_their_order() {
    const LINES: usize = 50_000;
    let setup = Setup::new().await;
    let mut input = String::new();
    for line in 0..LINES {
        let line = if line % 1000 == 17 { format!("unknown-{line}") } else { cgroup(WEB, &id('a')) };
        input.extend([line.as_str(), "\n"]);
    }
    let output = setup.pipe(&["-o", "json"], input.as_bytes());
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), ""));
    let answers = lines(stdout(&output));
    assert_eq!(answers.len(), LINES);
    for (answer, query) in answers.iter().zip(input.lines()) {
        assert_eq!(
            (&answer["query"], &answer["found"]),
            (&json!(query), &json!(!query.starts_with("unknown")))
        );
    }
    // In batches, not one by one.
    let metrics = setup.agent.get("/metrics").body;
    let requests = value(&metrics, r#"pod_index_http_requests_total{path="/whois",code="200"}"#);
    assert!((1..=1000).contains(&requests), "{requests} requests for {LINES} lines");
    let found = value(&metrics, r#"pod_index_lookups_total{kind="cgroup",outcome="found"}"#);
    assert_eq!(usize::try_from(found).unwrap(), LINES - LINES / 1000);

    let output = setup.pipe(&[], input.as_bytes());
    assert_eq!(stdout(&output).lines().count(), 1 + LINES - LINES / 1000);
    assert_eq!(stderr(&output).lines().count(), LINES / 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_are_counted_by_kind_and_outcome() {
    let setup = Setup::new().await;
    setup.process("4711", &format!("0::/kubepods/pod{WEB}\n"));
    setup.get(&[WEB, MIRROR, "nobody", "4711", "4712", "/nothing", "10.9.9.9", "\u{0}"]);
    setup.agent.get("/pods/shop_nobody");
    setup.agent.get("/pods/web-0_shop");
    let metrics = setup.agent.get("/metrics").body;
    for (labels, expected) in [
        (r#"kind="uid",outcome="found""#, 2),
        (r#"kind="uid",outcome="unknown""#, 1),
        (r#"kind="pid",outcome="found""#, 1),
        (r#"kind="pid",outcome="unknown""#, 1),
        (r#"kind="ip",outcome="unknown""#, 1),
        (r#"kind="name",outcome="found""#, 1),
        (r#"kind="name",outcome="unknown""#, 1),
        (r#"kind="cgroup",outcome="found""#, 0),
        (r#"kind="none",outcome="invalid""#, 2),
    ] {
        assert_eq!(value(&metrics, &format!("pod_index_lookups_total{{{labels}}}")), expected, "{labels}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_queries_each_get_an_error_and_affect_no_other() {
    let setup = Setup::new().await;
    let send = |request: &str, body: &str| setup.agent.send(request, "", body);
    // Limits of a request.
    let many = |count: usize| format!("/whois?{}", vec!["q=u"; count].join("&"));
    for (request, body, code, says) in [
        (format!("GET {}", many(100)), String::new(), 200, ""),
        (format!("GET {}", many(1000)), String::new(), 400, "at most 100"),
        ("GET /whois".to_owned(), String::new(), 400, "q is missing"),
        ("GET /whois?uid=u".to_owned(), String::new(), 400, "unknown parameter \\\"uid\\\""),
        ("GET /whois?q=u&wait=1".to_owned(), String::new(), 400, "wait: must be a number and a unit"),
        ("GET /whois?q=u&wait=301s".to_owned(), String::new(), 400, "wait: at most 300 s"),
        ("POST /whois?q=u".to_owned(), String::new(), 400, "in the body"),
        ("POST /whois".to_owned(), "x".repeat((1 << 20) + 1), 413, "1048576 bytes"),
        ("POST /whois?wait=1s".to_owned(), "u\n".repeat(101), 400, "at most 100 queries"),
        ("POST /whois".to_owned(), String::new(), 200, ""),
        ("DELETE /whois".to_owned(), String::new(), 405, ""),
    ] {
        let answer = send(&request, &body);
        let request: String = request.chars().take(60).collect();
        assert_eq!(answer.code, code, "{request}: {}", answer.body);
        assert!(answer.body.contains(says), "{request}: {}", answer.body);
    }

    // Texts that are not identities.
    let long = "x".repeat(70_000);
    let line = "y".repeat(3 << 20);
    let control = "\u{1b}[2J";
    let body = format!("a\0b\n\n{long}\n..\n/../../x\n{control}\n{WEB}");
    let answers = lines(&send("POST /whois", &body).body);
    let errors: Vec<_> = answers.iter().map(|answer| answer["error"].as_str().unwrap_or_default()).collect();
    assert_eq!(
        errors,
        [
            "an identity must not contain NUL",
            "an identity must not be empty",
            "an identity must not be longer than 64 KiB",
            "not recognised; no pod has this UID",
            "the path names no pod and no container",
            "not a UID, container ID, cgroup, log path, IP address, process ID, \"namespace/name\" or full name",
            "",
        ]
    );
    assert_eq!(answers[2]["query"].as_str().unwrap().len(), 4096);
    let output = setup.pipe(&["-o", "json"], &[line.as_bytes(), b"\n\xff\xfe\n", WEB.as_bytes()].concat());
    let answers = lines(stdout(&output));
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["error"], "an identity must not be longer than 64 KiB");
    assert_eq!(answers[1]["error"], "an identity must be UTF-8");
    assert_eq!(answers[2]["podUID"], WEB);
    let output = setup.agent.ask(&["whois", control]);
    assert!(!stderr(&output).contains('\u{1b}'), "{}", stderr(&output));

    // A client that hangs up while it waits.
    for _ in 0..50 {
        let mut stream = std::net::TcpStream::connect(setup.agent.address).unwrap();
        write!(stream, "GET /whois?q=never&wait=300s HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
    }
    assert_eq!(setup.get(&[WEB])[0]["found"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_lookup_ends_when_the_shutdown_begins() {
    let mut setup = Setup::new().await;
    let found = r#"pod_index_lookups_total{kind="uid",outcome="found"}"#;
    let before = value(&setup.agent.get("/metrics").body, found);
    let address = setup.agent.address;
    let waiting = thread::spawn(move || get(address, &format!("/whois?q={WEB}&q=never&wait=300s")));
    setup.agent.until("/metrics", |answer| value(&answer.body, found) > before);
    setup.agent.signal("TERM");
    let answer = waiting.join().unwrap();
    assert_eq!(answer.code, 200, "{}", answer.body);
    let answers = lines(&answer.body);
    assert_eq!(answers[0]["found"], true);
    assert_eq!(answers[1]["error"], "not recognised; no pod has this UID; the agent is shutting down");
    assert_eq!(setup.agent.wait(), Some(0));
    let log = setup.agent.whole_log();
    assert!(!log.iter().any(|line| line.contains("closing connections that did not end")), "{log:?}");
}

#[test]
fn until_every_source_was_read_an_unknown_pod_may_still_be_added() {
    let directory = Directory::new();
    let nowhere = "http://127.0.0.1:1/";
    let agent =
        Agent::start(&["--manifest-url", nowhere, "--pod-manifest-path", directory.0.to_str().unwrap()]);
    let output = agent.ask(&["whois", "u-1"]);
    assert_eq!(
        stderr(&output),
        "pod-index: \"u-1\": not recognised; no pod has this UID; not every source has been read\n"
    );
}

#[test]
fn a_closed_output_ends_whois_and_no_agent_is_exit_code_3() {
    let agent = Agent::on(&crate::support::shipped());
    let port = agent.address.port().to_string();
    let mut command = binary(&["whois", "--port", &port]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // Until it ends.
    while stdin.write_all(b"kube-system/etcd-node-1\n").is_ok() {}
    assert!(child.wait().unwrap().code().is_some());
    drop(agent);
    let output = run_piped(&["whois", "--port", &port], b"u\n");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("no agent answers"), "{}", stderr(&output));
}

fn run_piped(args: &[&str], input: &[u8]) -> Output {
    let mut command = binary(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}
