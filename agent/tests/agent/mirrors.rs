//! The agent manages its node's mirror pods, on an API server that grants it no more than a node's rights.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, PodMeta};
use pod_index_test_support::files::names;
use serde_json::{Value, json};

use crate::api::{kubeconfig, mirror, pod};
use crate::api_server::{ApiServer, Fault, Verb, shipped};
use crate::config::serve_manifests;
use crate::support::{Agent, Answer, Directory, manifest, node_1, refused, wait_for};

const NODE: &str = "node-1";

/// A server that knows the node, a directory of manifests, and an agent's arguments that name both.
struct Site {
    server: ApiServer,
    directory: Directory,
    args: String,
}

impl Site {
    async fn new() -> Self {
        let server = ApiServer::start().await;
        server.put("nodes", &json!({ "metadata": { "name": NODE } }));
        server.restrict_to_node(NODE);
        server.grant(shipped("pod-index-mirrors", &["base", "components/mirror-pods"]));
        let directory = Directory::new();
        let (read, kubeconfig) = (node_1(&directory.0), kubeconfig(&directory, &server));
        let args = format!("{read} --kubeconfig {kubeconfig} --manage-mirror-pods");
        Self { server, directory, args }
    }

    fn start(&self) -> Agent {
        Agent::start(&self.args)
    }

    /// A manifest with this name and version.
    fn write(&self, name: &str, version: u32) {
        let text = manifest(name).replace("nginx", &format!("nginx:{version}"));
        self.directory.write(&format!("{name}.yaml"), &text);
    }

    fn lease(&self, renewed: &str, seconds: u32) {
        let lease = json!({
            "metadata": { "namespace": "kube-node-lease", "name": NODE },
            "spec": { "holderIdentity": NODE, "leaseDurationSeconds": seconds, "renewTime": renewed },
        });
        self.server.put("leases", &lease);
    }

    /// Mirrors on the server: name and hash.
    fn mirrors(&self) -> BTreeMap<String, String> {
        let pods = self.server.objects("pods").into_iter();
        let hash =
            |pod: &Value| Some(pod["metadata"]["annotations"][CONFIG_MIRROR_ANNOTATION].as_str()?.to_owned());
        pods.filter_map(|pod| Some((pod["metadata"]["name"].as_str()?.to_owned(), hash(&pod)?))).collect()
    }

    fn counts(&self) -> [usize; 3] {
        let written = self.server.written();
        [Verb::Create, Verb::Replace, Verb::Delete]
            .map(|verb| written.iter().filter(|write| write.verb == verb).count())
    }
}

/// Waits until exactly this many static pods are in sync, and the agent has confirmed it.
fn in_sync(agent: &Agent, pods: usize) -> Value {
    let all = |answer: &Answer| {
        let mirrors: Value = answer.json();
        let lines = mirrors["pods"].as_array().unwrap();
        lines.len() == pods
            && lines.iter().all(|line| line["state"] == "inSync")
            && mirrors["orphans"].as_array().unwrap().is_empty()
    };
    agent.until("/mirrors", all).json()
}

/// Waits for this many more comparisons.
fn looks(agent: &Agent, more: u64) {
    let passes = |answer: &Answer| answer.json::<Value>()["passes"].as_u64().unwrap();
    let before = passes(&agent.get("/mirrors"));
    agent.until("/mirrors", |answer| passes(answer) >= before + more);
}

/// On a machine so busy that the index shows a mirror, or the server an answer, after this time, the agent asks once more,
/// rightly, and is told that the mirror exists.
const LATE: Duration = Duration::from_secs(30);

/// A request that has no answer for this long is dropped, and its connection retired. A watch over that connection begins anew,
/// rightly.
const SILENT: Duration = Duration::from_secs(10);

/// The agent must have made these numbers of requests: creations, replacements and deletions.
fn assert_counts(site: &Site, since: Instant, expected: [usize; 3]) {
    let counts = site.counts();
    let enough = counts.iter().zip(&expected).all(|(counts, expected)| counts >= expected);
    let is_late = since.elapsed() >= LATE;
    assert!(counts == expected || is_late && enough, "{counts:?}, not {expected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_static_pods_take_a_hundred_creations_nothing_at_rest_and_two_requests_for_an_edit() {
    let site = Site::new().await;
    for number in 0..100 {
        site.write(&format!("p{number}"), 1);
    }
    let began = Instant::now();
    let agent = site.start();
    in_sync(&agent, 100);
    looks(&agent, 2);
    assert_counts(&site, began, [100, 0, 0]);
    let gets = site.server.requests(Verb::Get);
    let seconds = began.elapsed().as_secs();
    let expected = 101..=101 + (seconds / 20 + 1);
    let requests = [Verb::List, Verb::Watch].map(|verb| site.server.requests(verb));
    if began.elapsed() < LATE {
        assert!(
            expected.contains(&gets),
            "{gets} in {seconds} s: the node for each mirror, and the lease from time to time"
        );
    }
    if began.elapsed() < SILENT {
        assert_eq!(requests, [1, 1]);
    }

    let before = site.mirrors();
    site.write("p7", 2);
    site.server.until("another", |_| site.mirrors() != before && site.mirrors().len() == 100).await;
    in_sync(&agent, 100);
    looks(&agent, 2);
    assert_counts(&site, began, [101, 0, 1]);

    std::fs::remove_file(site.directory.0.join("p7.yaml")).unwrap();
    in_sync(&agent, 99);
    looks(&agent, 2);
    assert_counts(&site, began, [101, 0, 2]);
    let metrics = agent.get("/metrics").body;
    for line in [
        r#"pod_index_mirror_states{state="in_sync"} 99"#,
        r#"pod_index_mirror_states{state="missing"} 0"#,
        "pod_index_mirrors_managed 1",
        "pod_index_mirror_creations_total 101",
        "pod_index_mirror_deletions_total 2",
        "pod_index_mirror_failures_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    for (name, hash) in site.mirrors() {
        let pod: Pod = agent.get(&format!("/pods/default/{name}")).json();
        assert_eq!(pod.annotation(CONFIG_HASH_ANNOTATION), Some(hash.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_kubelet_the_agent_exits_with_4_and_changes_nothing() {
    let site = Site::new().await;
    site.write("web", 1);
    // The result must not depend on the two clocks.
    site.lease("2999-01-01T00:00:00.000000Z", 40);
    let settings = Directory::new();
    settings.write("config.yaml", "manageMirrorPods: true\n");
    let config = settings.0.join("config.yaml");
    let mut agent =
        Agent::start(&site.args.replace("--manage-mirror-pods", &format!("--config {}", config.display())));
    let waits = |answer: &Answer| answer.body.contains("waiting to see whether it is renewed");
    let waiting: Value = agent.until("/mirrors", waits).json();
    assert!(waiting["problem"].is_string(), "{waiting}");
    assert_eq!(waiting["passes"], 0);
    site.lease("2026-01-01T00:00:10.000000Z", 40);
    let said = agent.wait_for_log("a kubelet runs on the node");
    let words = ["\"node-1\"", "2026-01-01", "config.yaml:1: manageMirrorPods: a kubelet"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert_eq!(agent.wait(), Some(4));
    assert_eq!((site.counts(), site.mirrors()), ([0; 3], BTreeMap::new()));
}

/// A named pipe in place of the file that is written holds the last checkpoint up, as a disk that hangs, until the agent has
/// begun to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_exits_with_4_writes_its_last_checkpoints_first() {
    let site = Site::new().await;
    let checkpoints = Directory::new();
    site.write("web", 1);
    // Long enough for all that comes before it is renewed, on a busy machine, too.
    site.lease("2999-01-01T00:00:00.000000Z", 160);
    let keep = format!("--checkpoint-dir {} --checkpoint-all-pods", checkpoints.0.display());
    let mut agent = Agent::start(&format!("{} {keep}", site.args));
    let saved = || names(&checkpoints.0).iter().filter(|name| name.starts_with("Pod_")).count();
    wait_for(|| "no checkpoint", || saved() > 0);
    let pipe = checkpoints.0.join(".writing");
    nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    site.write("two", 1);
    agent.has("/pods/default/two-node-1");
    agent.until("/mirrors", |answer| answer.body.contains("waiting to see whether it is renewed"));

    site.lease("2026-01-01T00:00:10.000000Z", 160);
    agent.wait_for_log("shutting down: ");
    assert_eq!(saved(), 1, "the disk hangs");
    // Now the write fails, since a pipe cannot be synced. The agent removes the pipe, and writes again.
    let _reader = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&pipe).unwrap();
    assert_eq!(agent.wait(), Some(4));
    assert_eq!((saved(), site.counts()), (2, [0; 3]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_that_comes_later_takes_over_and_its_static_pods_are_derived_from_its_mirrors() {
    let site = Site::new().await;
    site.write("web", 1);
    let mut agent = site.start();
    let kept = in_sync(&agent, 1);
    assert_eq!(kept.get("problem"), None);
    site.server.fail_always(Verb::Get, Fault::Status(403));
    let said = agent.wait_for_log("a kubelet on this node would go unnoticed");
    assert!(said.contains("403"), "{said}");
    let shown: Value = agent.get("/mirrors").json();
    assert!(shown["problem"].as_str().unwrap().contains("would go unnoticed"), "{shown}");
    let failures = |line: &&str| line.starts_with("pod_index_mirror_lease_failures_total ");
    let metrics = agent.get("/metrics").body;
    assert_eq!(metrics.lines().find(failures), Some("pod_index_mirror_lease_failures_total 1"));
    site.server.heal();
    site.lease("2026-01-01T00:00:00.000000Z", 40);
    let said = agent.wait_for_log("a kubelet runs on the node");
    assert!(said.contains("2026-01-01") && said.contains("restart the agent"), "{said}");
    let stood_down = |answer: &Answer| answer.json::<Value>()["managed"] == false;
    let shown: Value = agent.until("/mirrors", stood_down).json();
    assert!(shown["problem"].as_str().unwrap().contains("a kubelet runs on the node"), "{shown}");
    assert_eq!(site.mirrors().len(), 1, "what is right stays");
    let managed = |line: &&str| line.starts_with("pod_index_mirrors_managed ");
    assert_eq!(agent.get("/metrics").body.lines().find(managed), Some("pod_index_mirrors_managed 0"));

    // The kubelet knows the static pod under a UID of its own, and one from a manifest that the agent does not read.
    let (web, etcd) = ("1".repeat(32), "2".repeat(32));
    site.server.put("pods", &mirror("web-node-1", &web));
    site.server.put("pods", &mirror("etcd-node-1", &etcd));
    let found: Value = agent.has(&format!("/pods/{web}")).json();
    assert_eq!(found["metadata"]["name"], "web-node-1");
    // The manifests decide which static pods this node has.
    agent.until("/sources", |answer| answer.body.contains("no manifest describes its static pod"));
    agent.lacks(&format!("/pods/{etcd}"));
    assert_eq!(site.counts(), [1, 0, 0], "nothing is written any more");
    agent.end();
}

/// An agent that takes an error for the absence of a kubelet would wait no longer when the lease is readable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_lease_prevents_only_writes() {
    let site = Site::new().await;
    site.write("web", 1);
    site.server.fail_always(Verb::Get, Fault::Status(403));
    let agent = site.start();
    agent.has("/pods/default/web-node-1");
    // However often it is read.
    site.server.seen(Verb::Get, 3).await;
    site.lease("2999-01-01T00:00:00.000000Z", 40);
    site.server.heal();
    let mirrors: Value =
        agent.until("/mirrors", |answer| answer.body.contains("see whether it is renewed")).json();
    assert_eq!((site.counts(), &mirrors["passes"]), ([0; 3], &0.into()));
    site.server.remove("leases", "kube-node-lease", NODE);
    in_sync(&agent, 1);
    assert_eq!(site.counts(), [1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_out_of_sync_show_the_reason() {
    let site = Site::new().await;
    site.write("web", 1);
    site.server.put("pods", &pod("web-node-1", "node-2", &json!({})));
    site.server.put("pods", &pod("gone-node-1", NODE, &json!({ CONFIG_MIRROR_ANNOTATION: "hash" })));
    // The source does not answer, so the agent does not know all static pods.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pods", silent.local_addr().unwrap());
    let agent = Agent::start(&format!("{} --manifest-url {url}", site.args));
    let both = |answer: &Answer| {
        let mirrors: Value = answer.json();
        mirrors["pods"][0].is_object() && mirrors["orphans"][0].is_object()
    };
    let mirrors: Value = agent.until("/mirrors", both).json();
    let web = &mirrors["pods"][0];
    assert_eq!((&web["namespace"], &web["name"]), (&"default".into(), &"web-node-1".into()));
    assert_eq!(web["state"], "missing");
    let gone = &mirrors["orphans"][0];
    assert_eq!(gone["state"], "orphaned");
    assert_eq!((gone["mirrorUID"].is_string(), gone.get("podUID")), (true, None));
    // The alert `PodIndexMirrorsNotManaged` sends the operator there.
    let problem = mirrors["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("not every source has been read: ") && problem.contains(&url), "{mirrors}");
    let metrics = agent.get("/metrics").body;
    assert!(metrics.lines().any(|line| line == "pod_index_mirrors_managed 0"), "{metrics}");
    assert_eq!(site.counts(), [0; 3]);
    drop(agent);

    site.server.fail_always(Verb::Delete, Fault::Status(403));
    let agent = site.start();
    let failed = |list: &'static str, kind: &'static str| {
        let failed = move |answer: &Answer| answer.json::<Value>()[list][0]["lastError"]["kind"] == kind;
        agent.until("/mirrors", failed).json::<Value>()[list][0]["lastError"].clone()
    };
    let refused = failed("orphans", "refused");
    assert!(refused["message"].as_str().unwrap().contains("403") && refused["time"].is_string(), "{refused}");
    let taken = failed("pods", "taken");
    assert!(
        taken["message"].as_str().unwrap().contains("a pod that this client may not read has its name"),
        "{taken}"
    );

    site.server.heal();
    site.server.remove("pods", "default", "web-node-1");
    let healed = in_sync(&agent, 1);
    assert_eq!(healed["pods"][0].get("lastError"), None);
    assert_eq!(
        healed["pods"][0]["mirrorUID"],
        site.server.object("pods", "default", "web-node-1").unwrap()["metadata"]["uid"]
    );
}

/// Until the URL is read, its name looks like an orphan's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirror_of_a_static_pod_that_moves_to_a_source_that_is_slow_to_answer_is_not_deleted() {
    let site = Site::new().await;
    let text = manifest("web").replace("{name: web}", "{name: web, uid: u-web}");
    site.directory.write("web.yaml", &text);
    let mut agent = site.start();
    in_sync(&agent, 1);
    agent.end();

    let body = Arc::new(Mutex::new(String::new()));
    let url = serve_manifests(Arc::clone(&body), Arc::default());
    let directory = format!("--pod-manifest-path {}", site.directory.0.display());
    let from_the_url = format!("--manifest-url {url} --http-check-frequency 100ms");
    let args = site.args.replace(&directory, &from_the_url);
    assert!(args.contains(&from_the_url), "{args}");
    let agent = Agent::start(&args);
    agent.until("/mirrors", |answer| answer.json::<Value>()["orphans"][0]["name"] == "web-node-1");
    agent.until("/sources", |answer| answer.body.contains("500"));
    assert_eq!((agent.get("/readyz").code, site.counts()), (503, [1, 0, 0]));
    *body.lock().unwrap() = text;
    in_sync(&agent, 1);
    assert_eq!(site.counts(), [1, 0, 0]);

    // A static pod that is really gone is deleted, once the source has reported it.
    *body.lock().unwrap() = manifest("other");
    site.server.until("the other", |_| site.mirrors().contains_key("other-node-1")).await;
    in_sync(&agent, 1);
    assert_eq!(site.counts(), [2, 0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_the_flag_shows_pairs_and_writes_nothing() {
    let site = Site::new().await;
    site.write("web", 1);
    site.server.put("pods", &pod("gone-node-1", NODE, &json!({ CONFIG_MIRROR_ANNOTATION: "hash" })));
    let agent = Agent::start(&site.args.replace("--manage-mirror-pods", "")).ready();
    let mirrors: Value = agent.get("/mirrors").json();
    assert_eq!((&mirrors["managed"], &mirrors["pods"][0]["name"]), (&false.into(), &"web-node-1".into()));
    assert_eq!(mirrors["pods"][0].get("state"), None);
    assert_eq!(mirrors["orphans"][0]["name"], "gone-node-1");
    assert_eq!((site.counts(), site.server.requests(Verb::Get)), ([0; 3], 0));
}

#[test]
fn mirror_pods_cannot_be_managed_of_a_guessed_node_without_static_pods_or_without_a_server() {
    for (args, word) in [
        ("--manage-mirror-pods --pod-manifest-path x --kubeconfig y", "--hostname-override"),
        ("--manage-mirror-pods --node-name n --kubeconfig y", "--pod-manifest-path"),
        ("--manage-mirror-pods --node-name n --pod-manifest-path x", "--kubeconfig"),
    ] {
        refused(args, 2, word);
    }
}
