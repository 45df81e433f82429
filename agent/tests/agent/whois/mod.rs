//! `/whois` and `pod-index whois`: finding a pod by any identity in an event.

mod attributes;
mod client;
mod removed;
mod requests;

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{following, pod};
use crate::api_server::ApiServer;
use crate::metrics::value;
use crate::support::{Agent, Directory, PATIENCE, binary, stderr, stdout, succeeded};
use crate::terminal::Terminal;

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
            "state": { "running": {} },
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
    let mut mirror = crate::api::mirror("static-web-node-1", STATIC);
    mirror["metadata"]["uid"] = json!(MIRROR);
    mirror
}

pub struct Setup {
    pub agent: Agent,
    pub server: ApiServer,
    /// The host's processes.
    proc: Directory,
    _directory: Directory,
}

impl Setup {
    pub async fn new() -> Self {
        Self::with("").await
    }

    async fn with(args: &str) -> Self {
        let (server, directory, proc) = (ApiServer::start().await, Directory::new(), Directory::new());
        server.put("pods", &web());
        server.put("pods", &mirror());
        let args = format!("--proc {} {args}", proc.0.display());
        let agent = following(&server, &directory, &args).ready();
        Self { agent, server, proc, _directory: directory }
    }

    /// A process in this cgroup.
    fn process(&self, pid: &str, cgroup: &str) {
        // Long ago.
        self.process_started("0", pid, cgroup);
    }

    /// A process in this cgroup that was started so many clock ticks after the machine.
    fn process_started(&self, ticks: &str, pid: &str, cgroup: &str) {
        fs::create_dir(self.proc.0.join(pid)).unwrap();
        let stat = format!("{pid} (a b) S{} {ticks}{}\n", " 0".repeat(18), " 0".repeat(21));
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

/// Whoever may create a pod can forge a mirror pod, with any UID for the static pod that it claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_claim_answers_for_no_address_container_or_name() {
    let setup = Setup::new().await;
    let container = id('e');
    let of = ["8.8.8.8", "4711", "db_shop", &container[..12], &container, "web-0"];
    for (number, of) in of.iter().enumerate() {
        setup.server.put("pods", &crate::api::mirror(&format!("forged-{number}"), of));
    }
    // The last one: its claim counts, because a manifest may set such a UID.
    setup.agent.has("/pods/default/forged-5");
    let answers = setup.get(&of);
    let found = |answer: &Value| answer["namespace"].as_str().map(str::to_owned);
    let namespaces: Vec<_> = answers.iter().map(found).collect();
    assert_eq!(namespaces, [None, None, None, None, None, Some("shop".to_owned())]);
    let long_ago = |query: &str| setup.agent.get(&format!("/whois?q={query}&at=1970-01-01T00:00:01Z")).body;
    for of in of {
        assert!(!long_ago(of).contains("forged"), "{}", long_ago(of));
    }
}

fn pipe(agent: &Agent, args: &[&str], input: &[u8]) -> Output {
    let port = agent.port();
    piped(&[&["whois", "--port", &port], args].concat(), input)
}

/// Runs the binary with this standard input.
fn piped(args: &[&str], input: &[u8]) -> Output {
    let mut command = binary(args);
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
    let output = succeeded(setup.agent.ask(&[&["whois", "-o", "json"], &*queries].concat()));
    assert_eq!(lines(stdout(&output)), answers);
    for args in [&["-o", "json"][..], &["-o", "json", "-"]] {
        let output = succeeded(setup.pipe(args, queries.join("\n").as_bytes()));
        assert_eq!(stdout(&output), body);
    }
    for (query, ..) in forms.iter().filter(|(_, kind, ..)| *kind != "pid") {
        let key: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let found: Value = setup.agent.get(&format!("/pods/{}", key.replace('+', "%20"))).json();
        assert_eq!(found["metadata"]["uid"], WEB, "{query}");
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
        "QUERY|FOUND BY|NAMESPACE|NAME|CONTAINER|NODE|WORKLOAD|POD UID|MIRROR UID|LABELS"
            .split('|')
            .collect(),
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
async fn an_ip_that_several_pods_claim_is_reported_with_the_others() {
    let setup = Setup::new().await;
    for number in 1..=5 {
        let mut other = web();
        other["metadata"]["name"] = json!(format!("other-{number}"));
        other["metadata"]["uid"] = json!(format!("uid-{number}"));
        setup.server.put("pods", &other);
        setup.agent.has(&format!("/pods/uid-{number}"));
    }
    let answer = setup.get(&["10.0.0.7"]).remove(0);
    let others: Vec<_> =
        answer["contested"].as_array().unwrap().iter().map(|pod| pod.as_str().unwrap()).collect();
    assert_eq!(others.len(), 5, "{others:?}");
    let output = setup.agent.ask(&["whois", "10.0.0.7"]);
    let expected =
        format!("pod-index: \"10.0.0.7\": also claimed by {} and 2 more\n", others[..3].join(", "));
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), &*expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_container_id_finds_its_pod_and_the_fields_of_the_table_can_be_chosen() {
    let setup = Setup::new().await;
    // As `crictl ps` prints it.
    let short = &id('a')[..13];
    let fields = "name,foundBy,podIP,phase,image,owner,labels,mirrorUID";
    let output = setup.agent.ask(&["whois", short, "--fields", fields]);
    assert_eq!(
        stdout(&output),
        "NAME   FOUND BY           POD IP    PHASE    IMAGE  OWNER           LABELS              MIRROR UID\n\
         web-0  UID: container ID  10.0.0.7  Running  -      ReplicaSet/web  app=web,tier=front  -\n"
    );
    let output = setup.agent.ask(&["whois", MIRROR, "--fields", "annotations,image"]);
    assert!(stdout(&output).contains("kubernetes.io/config.source=file"), "{}", stdout(&output));
    setup.agent.refuses("whois u --fields secret", 2, "possible values: query, kind, foundBy");
    let details = ["podIP", "phase", "image", "annotations"];
    for (detail, of) in details.into_iter().zip([WEB, WEB, MIRROR, MIRROR]) {
        let table = setup.agent.ask(&["whois", of, "--fields", detail]);
        assert!(!stdout(&table).ends_with("-\n"), "{detail}: {}", stdout(&table));
    }
    assert!(details.iter().all(|field| setup.get(&[MIRROR])[0].get(field).is_none()), "only on request");

    let mut other = web();
    other["metadata"]["name"] = json!("web-1");
    other["metadata"]["uid"] = json!("u-1");
    other["status"] = json!({ "containerStatuses": [{
        "name": "nginx", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": format!("containerd://{}{}", &id('a')[..14], &id('d')[14..]),
    }] });
    setup.server.put("pods", &other);
    setup.agent.has("/pods/shop/web-1");
    // 32 digits look like a UID.
    let found = setup.get(&[&id('a')[..11], &id('a')[..14], &id('a')[..15], &id('a')[..32], &id('a')]);
    assert_eq!(
        found.iter().map(|answer| answer["found"] == true).collect::<Vec<_>>(),
        [false, false, true, true, true]
    );
    assert!(found[1]["error"].as_str().unwrap().contains("or several"), "{}", found[1]);

    let input = format!("{{\"query\":\"shop/web-0\",\"more\":[]}}\n{WEB}\n{{\"at\":5}}\n");
    let answers = lines(stdout(&setup.pipe(&["-o", "json"], input.as_bytes())));
    assert_eq!(answers.iter().map(|answer| answer["found"] == true).collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_looked_up_in_the_proc_of_the_host() {
    let setup = Setup::with("--cgroup-root /nodes").await;
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
    let retry: Vec<_> = answers.iter().map(|answer| answer["retry"].as_str()).collect();
    assert_eq!(retry, [Some("never"), None, Some("later"), Some("never"), Some("never")]);

    // Another pod claims the container's ID, and its claim is stronger.
    setup.process("11", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    let mut thief = web();
    thief["metadata"]["name"] = json!("thief");
    thief["metadata"]["uid"] = json!("thief-uid");
    thief["metadata"]["creationTimestamp"] = json!("2100-01-01T00:00:00Z");
    thief["status"]["containerStatuses"][0]["name"] = json!("stolen");
    setup.server.put("pods", &thief);
    setup.agent.has("/pods/thief-uid");
    let answers = setup.get(&[&id('a'), "11", &cgroup(WEB, &id('a'))]);
    assert_eq!((&answers[0]["name"], &answers[0]["container"]), (&json!("thief"), &json!("stolen")));
    for answer in &answers[1..] {
        assert_eq!((&answer["podUID"], &answer["container"]), (&json!(WEB), &json!("nginx")), "{answer}");
    }
}

/// A container runtime starts a process in its own cgroup, and then moves it to the container's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_young_process_without_a_pod_is_worth_asking_about_again() {
    let setup = Setup::new().await;
    let of_runtime = "0::/system.slice/containerd.service\n";
    // It stays young, however slow the machine is: it starts in the far future.
    setup.process_started("999999999999999", "7", of_runtime);
    setup.process("8", of_runtime);
    let answers = setup.get(&["7", "8"]);
    let said = answers.iter().map(|answer| ["error", "retry"].map(|field| answer[field].as_str().unwrap()));
    let no_pod = "the process belongs to no pod";
    assert_eq!(said.collect::<Vec<_>>(), [[no_pod, "later"], [no_pod, "never"]]);
    let batch = lines(stdout(&setup.pipe(&["-o", "json"], b"7\n8\n")));
    assert_eq!(batch, answers, "in a batch, too");
    let cgroup = format!("0::/kubepods/pod{STATIC}/{}\n", id('f'));
    fs::write(setup.proc.0.join("7/cgroup"), cgroup).unwrap();
    let output = setup.agent.ask(&["whois", "7", "--wait", "60s", "-o", "json"]);
    assert_eq!(lines(stdout(&output))[0]["podUID"], json!(STATIC));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_id_that_several_pods_claim_is_contested_and_has_no_attributes_alone() {
    let rules = Directory::new();
    fs::write(rules.0.join("rules.yaml"), "extract: { metadata: [k8s.pod.name] }").unwrap();
    let setup = Setup::with(&format!("--extract {}/rules.yaml", rules.0.display())).await;
    let link = format!("/var/log/containers/web-0_shop_nginx-{}.log", id('a'));
    let whole = id('a');
    let of_container = [&*whole, &whole[..13], &link, &*format!("containerd://{whole}")];
    let cgroup = cgroup(WEB, &whole);
    let log = format!("/var/log/pods/shop_web-0_{WEB}/nginx/0.log");
    let of_pod = [&*cgroup, &log, WEB];
    let contested_by = |queries: &[&str], pods: &Value| {
        for answer in setup.get(queries) {
            assert_eq!(&answer["contested"], pods, "{answer}");
        }
    };
    let alone = |query: &str| setup.agent.get(&format!("/whois?q={query}&fields=attributes")).body;
    contested_by(&of_container, &Value::Null);
    assert_eq!(alone(&whole), "{\"k8s.pod.name\":\"web-0\"}\n");

    let mut thief = web();
    thief["metadata"]["name"] = json!("thief");
    thief["metadata"]["uid"] = json!("thief-uid");
    thief["metadata"]["creationTimestamp"] = json!("2100-01-01T00:00:00Z");
    thief["status"]["podIPs"] = json!([]);
    setup.server.put("pods", &thief);
    setup.agent.has("/pods/thief-uid");
    contested_by(&of_container, &json!(["shop/web-0"]));
    contested_by(&of_pod, &Value::Null);
    assert_eq!(alone(&whole), "{}\n");
    let output = setup.agent.ask(&["whois", &whole]);
    assert!(stderr(&output).contains("also claimed by shop/web-0"), "{}", stderr(&output));
    // The time of the event does not help: a container ID is nobody else's at any time.
    let at = setup.agent.get(&format!("/whois?q={whole}&at=-1s"));
    assert_eq!(lines(&at.body)[0]["contested"], json!(["shop/web-0"]));

    // The pod that had it is gone, and stays a claimant.
    setup.server.remove("pods", "shop", "web-0");
    setup.agent.until(&format!("/whois?q={WEB}"), |answer| answer.body.contains("\"removed\""));
    contested_by(&of_container, &json!(["shop/web-0"]));
    assert_eq!(alone(&whole), "{}\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_a_container_that_the_pod_does_not_have_says_so() {
    let rules = Directory::new();
    let text = "extract: { metadata: [k8s.pod.name, k8s.container.name] }";
    fs::write(rules.0.join("rules.yaml"), text).unwrap();
    let setup = Setup::with(&format!("--extract {}/rules.yaml", rules.0.display())).await;
    let mut one = web();
    one["metadata"]["name"] = json!("one");
    one["metadata"]["uid"] = json!("bd1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    one["status"] = json!({ "phase": "Pending" });
    one["spec"]["containers"] = json!([{ "name": "only", "image": "i" }]);
    one["spec"]["ephemeralContainers"] = json!([{ "name": "debugger", "image": "i" }]);
    setup.server.put("pods", &one);
    // Nothing is known of its containers.
    let mut empty = one.clone();
    empty["metadata"]["name"] = json!("empty");
    empty["metadata"]["uid"] = json!("ce1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    empty["spec"] = json!({ "nodeName": "node-1", "containers": [] });
    setup.server.put("pods", &empty);
    setup.agent.has("/pods/shop/one");
    setup.agent.has("/pods/shop/empty");
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let (one, empty) = (uid(&one), uid(&empty));
    for (path, unknown) in [
        (format!("/var/log/pods/shop_web-0_{WEB}/nginx/0.log"), None),
        (format!("/var/log/pods/shop_web-0_{WEB}/setup/0.log"), None),
        (format!("/var/log/pods/shop_web-0_{WEB}/vault/0.log"), Some("vault")),
        (format!("/var/lib/kubelet/pods/{WEB}/containers/vault/1a2b"), Some("vault")),
        (format!("/var/lib/kubelet/pods/{WEB}/volumes/vault"), None),
        (format!("/var/log/containers/web-0_shop_vault-{}.log", id('f')), Some("vault")),
        (format!("/var/log/containers/web-0_shop_nginx-{}.log", id('f')), None),
        (format!("/var/log/pods/shop_one_{one}/only/0.log"), None),
        (format!("/var/log/pods/shop_one_{one}/debugger/0.log"), None),
        (format!("/var/log/pods/shop_one_{one}/vault/0.log"), Some("vault")),
        (format!("/var/log/pods/shop_empty_{empty}/vault/0.log"), None),
    ] {
        let answer = setup.get(&[&path]).remove(0);
        let expected = unknown.map(|name| {
            format!("the path names the container {name}, and the agent knows no such container of this pod")
        });
        assert_eq!(answer["found"], true, "{answer}");
        assert_eq!(answer["contradiction"].as_str(), expected.as_deref(), "{answer}");
        let of_container = answer["attributes"]["k8s.container.name"].as_str();
        assert!(unknown.is_none() || of_container.is_none(), "attributes of another container: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_names_another_pod_than_its_uid_says_so_and_has_no_attributes_alone() {
    let rules = Directory::new();
    fs::write(rules.0.join("rules.yaml"), "extract: { metadata: [k8s.pod.name] }").unwrap();
    let setup = Setup::with(&format!("--extract {}/rules.yaml", rules.0.display())).await;
    let link = |name: &str| format!("/var/log/containers/{name}_shop_nginx-{}.log", id('a'));
    for (path, names_another, is_odd) in [
        (format!("/var/log/pods/shop_web-0_{WEB}/nginx/0.log"), false, false),
        (format!("/var/log/pods/bank_web-0_{WEB}/nginx/0.log"), true, true),
        (format!("/var/log/pods/shop_web-0_{WEB}/nginx"), false, false),
        (format!("/var/log/pods/shop_bank_{WEB}/nginx"), true, true),
        (format!("/var/log/pods/shop_bank_{WEB}"), true, true),
        (format!("/var/lib/kubelet/pods/{WEB}/volumes/shop_bank_{WEB}"), false, false),
        (link("web-0"), false, false),
        (link("bank"), true, true),
        (format!("/var/log/containers/web-0_shop_setup-{}.log", id('a')), true, true),
        // A mount: it names the right pod.
        (format!("/host/var/log/pods/shop_web-0_{WEB}/nginx"), false, true),
    ] {
        let answer = setup.get(&[&path]).remove(0);
        assert_eq!(answer["podUID"], WEB, "{answer}");
        assert_eq!(answer["contradiction"].is_string(), is_odd, "{answer}");
        let alone = setup.agent.get(&format!("/whois?q={path}&fields=attributes")).body;
        assert_eq!(alone == "{}\n", names_another, "{path}: {alone}");
        let key: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
        let code = setup.agent.get(&format!("/pods/{key}")).code;
        assert_eq!(code, if names_another { 404 } else { 200 }, "{path}: a pod alone says nothing of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attributes_of_a_container_id_are_those_of_its_run() {
    let rules = Directory::new();
    let text = "extract: { metadata: [k8s.container.name, container.id] }";
    fs::write(rules.0.join("rules.yaml"), text).unwrap();
    let setup = Setup::with(&format!("--extract {}/rules.yaml", rules.0.display())).await;
    let (latest, before, unknown) = (id('a'), id('b'), id('f'));
    let link = |id: &str| format!("/var/log/containers/web-0_shop_nginx-{id}.log");
    for (query, run) in [
        (latest.clone(), Some(&latest)),
        (before.clone(), Some(&before)),
        (latest[..13].to_owned(), Some(&latest)),
        (link(&before), Some(&before)),
        (cgroup(WEB, &before), Some(&before)),
        (format!("/var/log/pods/shop_web-0_{WEB}/nginx/0.log"), Some(&latest)),
        // Of a container that no status names: only the pod, or the container by its name, is known.
        (link(&unknown), None),
        (cgroup(WEB, &unknown), None),
    ] {
        let answer = setup.get(&[&query]).remove(0);
        assert_eq!(answer["podUID"], WEB, "{answer}");
        assert_eq!(answer["attributes"]["container.id"].as_str(), run.map(|id| &**id), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cgroup_that_anyone_can_make_names_no_pod_as_text_either() {
    let setup = Setup::with("--cgroup-root /nodes").await;
    let forged = [
        format!("/user.slice/user-1000.slice/user@1000.service/kubepods/burstable/pod{WEB}"),
        format!("/sys/fs/cgroup/user.slice/kubepods/pod{WEB}/{}", id('a')),
        format!("0::/user.slice/user-1000.slice{}", cgroup(WEB, &id('a'))),
        format!("/user.slice/docker-{}.scope", id('a')),
    ];
    for (answer, query) in setup.get(&forged.each_ref().map(|query| &**query)).iter().zip(&forged) {
        assert_eq!(answer["found"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("anyone could have made this cgroup"), "{answer}");
        let key: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        assert_eq!(setup.agent.get(&format!("/pods/{}", key.replace('+', "%20"))).code, 404, "{query}");
    }
    let true_one = format!("/nodes/kubepods/burstable/pod{WEB}");
    assert_eq!(setup.get(&[&true_one])[0]["podUID"], WEB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_with_the_container_id_of_another_pod_or_container_is_marked() {
    let setup = Setup::new().await;
    let link = |name: &str, namespace: &str, container: &str| {
        format!("/var/log/containers/{name}_{namespace}_{container}-{}.log", id('a'))
    };
    let queries = [
        link("web-0", "shop", "nginx"),
        link("bank", "shop", "nginx"),
        link("web-0", "vault", "nginx"),
        link("web-0", "shop", "setup"),
    ];
    let answers = setup.get(&queries.each_ref().map(|query| &**query));
    let said = [
        None,
        Some("the link names shop/bank, and the container ID is of another pod"),
        Some("the link names vault/web-0, and the container ID is of another pod"),
        Some("the link names the container setup, and the container ID is of another one"),
    ];
    for (answer, said) in answers.iter().zip(said) {
        assert_eq!(
            (answer["podUID"].as_str(), answer["contradiction"].as_str()),
            (Some(WEB), said),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forms_that_other_programs_print_are_understood() {
    let setup = Setup::new().await;
    let short = &id('a')[..12];
    let docker = format!("docker://{short}");
    for (query, kind, by) in [
        ("10.0.0.7:443", "ip", "ip"),
        ("[fd00::7]:443", "ip", "ip"),
        ("10.0.0.7/32", "ip", "ip"),
        ("fd00::7/128", "ip", "ip"),
        (short, "uid", "containerId"),
        (&docker, "containerId", "containerId"),
        ("web-0", "name", "name"),
    ] {
        let answer = setup.get(&[query]).remove(0);
        assert_eq!(
            (answer["podUID"].as_str(), answer["kind"].as_str(), answer["foundBy"].as_str()),
            (Some(WEB), Some(kind), Some(by)),
            "{answer}"
        );
    }
    let error = |query: &str| setup.get(&[query])[0]["error"].as_str().unwrap_or_default().to_owned();
    assert!(error("10.0.0.0/8").contains("a range of addresses"), "{}", error("10.0.0.0/8"));
    assert!(error("docker://ffffffffffff").contains("begin with it"), "{}", error("docker://ffffffffffff"));
    assert!(error("web-0 at=-5s").contains("did you mean shop/web-0"), "{}", error("web-0 at=-5s"));

    // A second pod of the name.
    let mut other = web();
    other["metadata"]["namespace"] = json!("test");
    other["metadata"]["uid"] = json!("other");
    setup.server.put("pods", &other);
    setup.agent.has("/pods/other");
    assert!(error("web-0").contains("did you mean shop/web-0 or test/web-0"), "{}", error("web-0"));

    let since = Timestamp::now().as_second();
    for args in [&["--at", "-5s"][..], &["--at=-5s"]] {
        let output = setup.agent.ask(&[&["whois", "-o", "json", "10.0.0.7"], args].concat());
        let answer = lines(stdout(&output)).remove(0);
        let at: Timestamp = answer["at"].as_str().unwrap().parse().unwrap();
        assert!((since - 15..=since + 600).contains(&at.as_second()), "{answer}");
    }
    let output = setup.agent.ask(&["whois", "10.0.0.7", "--at", "-5"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_terminal_whois_explains_itself_and_cuts_long_lines() {
    let setup = Setup::new().await;
    let port = setup.agent.port();
    let mut terminal = Terminal::run(&["whois", "--port", &port], (80, 100));
    terminal.until(|screen| screen.contains("Usage:") && screen.contains("give what to look up"));
    assert_eq!(terminal.wait(), 2);
    let mut terminal = Terminal::run(&["whois", "--port", &port, WEB], (80, 10));
    let screen = terminal.until(|screen| screen.contains("web-0"));
    assert_eq!(terminal.wait(), 0);
    let lines: Vec<_> = screen.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 2, "no line is wrapped: {screen}");
    assert!(lines.iter().all(|line| line.ends_with('…') && line.chars().count() <= 80), "{screen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_uid_that_looks_like_a_name_is_found_if_no_pod_has_the_name() {
    let setup = Setup::new().await;
    let mut odd = pod("odd", "node-1", &json!({}));
    odd["metadata"]["uid"] = json!("own_uid");
    setup.server.put("pods", &odd);
    setup.agent.has("/pods/own_uid");
    // A UID needs no time.
    for answer in setup.get(&["own_uid", "own_uid at=0"]) {
        assert_eq!((&answer["kind"], &answer["foundBy"]), (&json!("name"), &json!("uid")));
        assert_eq!(answer["name"], "odd");
    }
}
