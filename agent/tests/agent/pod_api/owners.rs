//! Owners of pods: requested one by one, served as metadata, and named in answers.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nix::libc::SYS_openat;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pod_index_test_support::skipped;

use super::*;
use crate::api_server::{Fault, Verb, shipped};
use crate::support::{binary, refused, stdout, succeeded, wait_for};

/// An object in the namespace `shop` with this controller: API version, kind, name. Its UID is `KIND-NAME`.
fn owned(kind: &str, name: &str, controller: Option<(&str, &str, &str)>) -> Value {
    let reference = |(version, kind, name): (&str, &str, &str)| json!({ "apiVersion": version, "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": true });
    let owners: Vec<_> = controller.map(reference).into_iter().collect();
    json!({
        "kind": kind,
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("{kind}-{name}"), "labels": { "app": name },
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "kept": "yes" },
            "ownerReferences": owners,
        },
        "spec": { "selector": {} },
    })
}

fn pod_of(name: &str, labels: &Value, controller: (&str, &str, &str)) -> Value {
    let mut pod = pod("shop", name, labels);
    pod["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    pod["metadata"]["ownerReferences"] =
        owned("Pod", name, Some(controller))["metadata"]["ownerReferences"].clone();
    pod
}

const RS: (&str, &str) = ("apps/v1", "ReplicaSet");

/// The pods of the node and their owners, and owners of pods elsewhere.
pub fn put_all(server: &ApiServer) {
    server.put_all("replicasets", (0..50).map(|n| owned("ReplicaSet", &format!("elsewhere-{n}"), None)));
    let hash = json!({ "pod-template-hash": "1" });
    for (name, labels, controller) in [
        ("web", &hash, (RS.0, RS.1, "web-1")),
        ("web-too", &hash, (RS.0, RS.1, "web-1")),
        ("bare", &json!({}), (RS.0, RS.1, "bare")),
        ("rolled", &json!({ "rollouts-pod-template-hash": "2" }), (RS.0, RS.1, "odd")),
        ("cron", &json!({}), ("batch/v1", "Job", "backup-29123456")),
        ("job", &json!({}), ("batch/v1", "Job", "once-29123456")),
        ("db-0", &json!({}), ("apps/v1", "StatefulSet", "db")),
        ("agent", &json!({}), ("apps/v1", "DaemonSet", "agent")),
        ("gone", &hash, (RS.0, RS.1, "gone-1")),
        ("hostile", &json!({}), (RS.0, RS.1, "../../secrets/x?a=-1")),
        ("custom", &json!({}), ("example.com/v1", "Thing", "x")),
    ] {
        server.put("pods", &pod_of(name, labels, controller));
    }
    for (resource, object) in [
        ("replicasets", owned("ReplicaSet", "web-1", Some(("apps/v1", "Deployment", "web")))),
        ("replicasets", owned("ReplicaSet", "bare", None)),
        ("replicasets", owned("ReplicaSet", "odd", Some(("argoproj.io/v1alpha1", "Rollout", "fancy")))),
        ("deployments", owned("Deployment", "web", None)),
        ("jobs", owned("Job", "backup-29123456", Some(("batch/v1", "CronJob", "backup")))),
        ("jobs", owned("Job", "once-29123456", None)),
        ("cronjobs", owned("CronJob", "backup", None)),
        ("statefulsets", owned("StatefulSet", "db", Some(("example.com/v1", "Database", "x")))),
        ("daemonsets", owned("DaemonSet", "agent", None)),
    ] {
        server.put(resource, &object);
    }
}

/// An agent with these arguments, which may not be ready yet.
fn started(server: &ApiServer, directory: &Directory, args: &str) -> Agent {
    let kubeconfig = kubeconfig(directory, server);
    let resources = "--serve-resources owners,nodes,namespaces";
    Agent::start(format!("--kubeconfig {kubeconfig} --node-name node-1 {resources} {args}").trim_end())
}

pub fn agent(server: &ApiServer, directory: &Directory) -> Agent {
    started(server, directory, "").ready()
}

fn workload(agent: &Agent, pod: &str) -> String {
    let answer: Value = agent.get(&format!("/whois?q=uid-of-{pod}")).json();
    let Value::Object(workload) = &answer["workload"] else { return String::new() };
    let derived = if workload["derived"] == true { " derived" } else { "" };
    format!("{}/{}{derived}", workload["kind"].as_str().unwrap(), workload["name"].as_str().unwrap())
}

/// On the command line and in a pod, with the owners of [`put_all`].
fn workloads_are_named(agent: &Agent) {
    for (pod, expected) in [
        ("web", "Deployment/web "),
        ("rolled", "Rollout/fancy "),
        ("cron", "CronJob/backup "),
        ("db-0", "StatefulSet/db "),
        ("gone", "Deployment/gone (derived) "),
    ] {
        let output = agent.ask(&["whois", &format!("shop/{pod}")]);
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
    for (pod, annotation, expected) in
        [("web", "workload", "Deployment/web"), ("gone", "derived-workload", "Deployment/gone")]
    {
        let pod: Value = agent.get(&format!("/pods/uid-of-{pod}")).json();
        assert_eq!(pod["metadata"]["annotations"][format!("pod-index/{annotation}")], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owners_of_the_nodes_pods_are_served_as_metadata_and_each_is_requested_once() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    let rights = shipped("pod-index", &["base", "components/resources"]);
    server.grant(rights.clone());
    server.put("nodes", &json!({ "metadata": { "name": "node-1" } }));
    server.put("namespaces", &json!({ "metadata": { "name": "shop" } }));
    put_all(&server);
    let agent = agent(&server, &directory);
    for (path, expected) in [
        ("/apis/apps/v1/replicasets", &["bare", "odd", "web-1"][..]),
        ("/apis/apps/v1/namespaces/shop/replicasets?labelSelector=app%3Dodd", &["odd"]),
        ("/apis/apps/v1/namespaces/other/replicasets", &[]),
        ("/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dweb", &["web"]),
        ("/apis/apps/v1/statefulsets", &["db"]),
        ("/apis/apps/v1/daemonsets", &["agent"]),
        ("/apis/batch/v1/jobs", &["backup-29123456", "once-29123456"]),
        ("/apis/batch/v1/cronjobs", &["backup"]),
    ] {
        let list: Value = agent.until(path, |answer| answer.code != 503).json();
        assert_eq!(names(&list), expected, "{path}: {list}");
        let version = if path.contains("batch") { "batch/v1" } else { "apps/v1" };
        assert_eq!(list["apiVersion"], version, "{path}");
    }
    let web: Value = agent.get("/apis/apps/v1/namespaces/shop/deployments/web").json();
    assert_eq!((&web["kind"], &web["apiVersion"]), (&json!("Deployment"), &json!("apps/v1")));
    assert_eq!(web["metadata"]["annotations"]["kept"], "yes");
    // Of the rest, only what the schema requires and what `kubectl describe` dereferences.
    let scaled = json!({ "replicas": 0, "selector": {}, "template": {} });
    let named = json!({ "replicas": 0, "selector": {}, "serviceName": "", "template": {} });
    let (fixed, cron) =
        (json!({ "selector": {}, "template": {} }), json!({ "schedule": "", "jobTemplate": {} }));
    let counted = json!({ "replicas": 0 });
    let scheduled = json!({
        "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
    });
    for (path, spec, status) in [
        ("/apis/apps/v1/replicasets", &scaled, &counted),
        ("/apis/apps/v1/deployments", &scaled, &counted),
        ("/apis/apps/v1/statefulsets", &named, &counted),
        ("/apis/apps/v1/daemonsets", &fixed, &scheduled),
        ("/apis/batch/v1/jobs", &fixed, &json!({})),
        ("/apis/batch/v1/cronjobs", &cron, &json!({})),
    ] {
        let list: Value = agent.get(path).json();
        for object in list["items"].as_array().unwrap() {
            assert_eq!((&object["spec"], &object["status"]), (spec, status), "{path}");
        }
    }
    assert!(!web.to_string().contains("hunter2"));
    let partial: Value = agent.send("GET /apis/apps/v1/replicasets", PARTIAL_LIST, "").json();
    assert_eq!(partial["items"][2]["metadata"]["ownerReferences"][0]["name"], "web");
    for (path, code) in [
        ("/apis", 200),
        ("/apis/apps", 200),
        ("/apis/apps/v1/", 200),
        ("/apis/batch/v1", 200),
        ("/apis/apps/v1/controllerrevisions", 404),
    ] {
        assert_eq!(agent.get(path).code, code, "{path}");
    }
    for (pod, expected) in [
        ("web", "Deployment/web"),
        ("bare", "ReplicaSet/bare"),
        ("rolled", "Rollout/fancy"),
        ("cron", "CronJob/backup"),
        ("job", "Job/once-29123456"),
        ("db-0", "StatefulSet/db"),
        ("agent", "DaemonSet/agent"),
        ("gone", "Deployment/gone derived"),
        ("hostile", "ReplicaSet/../../secrets/x?a=-1 derived"),
        ("custom", "Thing/x"),
    ] {
        assert_eq!(workload(&agent, pod), expected, "{pod}");
    }
    workloads_are_named(&agent);
    // Three ReplicaSets and one that is gone, for which etcd is asked as well, two Jobs, a StatefulSet, a DaemonSet, a
    // Deployment, a CronJob.
    assert_eq!(server.requests(Verb::Get), 11, "{:?}", server.asked());
    assert_eq!(server.unparsed(), [""; 0], "a hostile name reached the path");
    let asked = server.asked();
    let unused: Vec<_> =
        rights.iter().filter(|right| !asked.iter().any(|asked| right.covers(asked))).collect();
    assert!(unused.is_empty(), "granted, and never asked for: {unused:?}");

    // A pod may name the UID of an owner in another namespace.
    let mut stranger = pod_of("stranger", &json!({}), (RS.0, RS.1, "web-1"));
    stranger["metadata"]["namespace"] = json!("elsewhere");
    server.put("pods", &stranger);
    // Neither the cache nor etcd has such an object there.
    server.seen(Verb::Get, 13).await;
    agent.until("/whois?q=uid-of-stranger", |answer| answer.body.contains(r#""found":true"#));
    for _ in 0..20 {
        assert_eq!(workload(&agent, "stranger"), "ReplicaSet/web-1 derived");
        assert_eq!(workload(&agent, "web"), "Deployment/web");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    // An owner goes with the last pod that needs it.
    let list: Value = agent.get("/apis/apps/v1/deployments").json();
    let path = format!("/apis/apps/v1/deployments?watch=1&resourceVersion={}", version(&list));
    let mut watch = Watch::open(agent.address, &path, "").unwrap();
    server.remove("pods", "shop", "web");
    server.remove("pods", "shop", "rolled");
    agent.until("/apis/apps/v1/replicasets", |answer| !answer.body.contains(r#""odd""#));
    let list: Value = agent.get("/apis/apps/v1/deployments").json();
    assert_eq!(names(&list), ["web"], "another pod needs it");
    server.remove("pods", "shop", "web-too");
    let event = watch.next().unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("web")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_or_the_server_names_are_derived_and_known_owners_stay() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("pods", &pod_of("web", &json!({ "pod-template-hash": "1" }), (RS.0, RS.1, "web-1")));
    for n in 0..9 {
        server.put("pods", &pod_of(&format!("db-{n}"), &json!({}), (RS.0, RS.1, &format!("db-{n}"))));
    }
    server.fail_always(Verb::Get, Fault::Status(403));
    let agent = agent(&server, &directory);
    agent.wait_for_log("owners of pods cannot be read; their names are derived: planted: 403");
    assert!(server.requests(Verb::Get) < 5, "one denied request says it of all ReplicaSets");
    for n in 0..9 {
        server.remove("pods", "shop", &format!("db-{n}"));
    }
    assert_eq!(workload(&agent, "web"), "Deployment/web derived");
    assert_eq!(agent.get("/apis/apps/v1/replicasets").code, 503);
    server.put("replicasets", &owned("ReplicaSet", "web-1", Some(("apps/v1", "Deployment", "odd"))));
    server.heal();
    let is_read = |answer: &Answer| {
        answer.body.contains(r#""workload":{"kind":"Deployment","name":"odd","derived":false}"#)
    };
    agent.until("/whois?q=uid-of-web", is_read);
    agent.has("/apis/apps/v1/replicasets");
    server.fail_always(Verb::Get, Fault::Status(500));
    server.put("pods", &pod_of("new", &json!({ "pod-template-hash": "2" }), (RS.0, RS.1, "new-2")));
    agent.wait_for_log("owners of pods cannot be read; their names are derived: planted: 500");
    assert_eq!(
        (&*workload(&agent, "web"), &*workload(&agent, "new")),
        ("Deployment/odd", "Deployment/new derived")
    );
    let known: Value = agent.get("/apis/apps/v1/replicasets").json();
    assert_eq!(names(&known), ["web-1"]);
}

const ALL: [(&str, &str); 8] = [
    ("nodes", "/api/v1/nodes"),
    ("namespaces", "/api/v1/namespaces"),
    ("replicasets", "/apis/apps/v1/replicasets"),
    ("deployments", "/apis/apps/v1/deployments"),
    ("statefulsets", "/apis/apps/v1/statefulsets"),
    ("daemonsets", "/apis/apps/v1/daemonsets"),
    ("jobs", "/apis/batch/v1/jobs"),
    ("cronjobs", "/apis/batch/v1/cronjobs"),
];

/// The names of a resource's objects.
fn known(agent: &Agent, path: &str) -> Vec<String> {
    let list: Value = agent.has(path).json();
    names(&list).into_iter().map(str::to_owned).collect()
}

/// The resources whose objects are of the last run.
fn restored(agent: &Agent) -> BTreeMap<String, u64> {
    let sources: Value = agent.get("/sources").json();
    serde_json::from_value(sources["restored"].clone()).unwrap_or_default()
}

/// A named pipe replaces the file to which a list is written: opening it blocks, as on a disk that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_while_a_list_is_written_holds_a_thread_that_does_nothing_else() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("namespaces", &json!({ "metadata": { "name": "shop" } }));
    let checkpoints = directory.0.join("checkpoints");
    fs::create_dir(&checkpoints).unwrap();
    mkfifo(&checkpoints.join("namespaces.new"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let args = format!("--checkpoint-all-pods --checkpoint-dir {}", checkpoints.display());
    let agent = started(&server, &directory, &args);
    // The name of each thread, and the number of the system call that it waits for.
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap().map_while(Result::ok);
        tasks.filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let call = fs::read_to_string(task.path().join("syscall")).ok()?;
            Some((name.trim_end().to_owned(), call.split(' ').next()?.to_owned()))
        })
    };
    if threads().count() == 0 {
        return skipped("a disk that hangs", "this process may not see the system calls of another");
    }
    let open = SYS_openat.to_string();
    // A thread that opens another file is not in the call for long.
    wait_for(|| "no thread hangs", || threads().any(|(name, call)| name == "list files" && call == open));
    server.put("namespaces", &json!({ "metadata": { "name": "later" } }));
    agent.until("/api/v1/namespaces", |answer| answer.body.contains("later"));
    assert_eq!(agent.get("/livez").code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_without_the_api_server_all_resources_are_served_but_those_of_bad_files() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("nodes", &json!({ "metadata": { "name": "node-1" }, "status": { "phase": "x" } }));
    server.put("namespaces", &json!({ "metadata": { "name": "shop", "labels": { "team": "a" } } }));
    put_all(&server);
    let checkpoints = directory.0.join("checkpoints");
    let args = format!("--checkpoint-all-pods --checkpoint-dir {}", checkpoints.display());
    let file = |resource: &str| checkpoints.join(format!("{resource}.yaml"));
    let agent = started(&server, &directory, &args);
    let before = ALL.map(|(_, path)| known(&agent, path));
    assert!(before.iter().all(|names| !names.is_empty()), "{before:?}");
    assert_eq!(restored(&agent), BTreeMap::new());
    for ((resource, _), names) in ALL.iter().zip(&before) {
        let has = |name: &String| {
            let text = fs::read_to_string(file(resource)).unwrap_or_default();
            text.contains(&format!(r#""name":"{name}""#))
        };
        let deadline = Instant::now() + PATIENCE;
        while !names.iter().all(has) {
            assert!(Instant::now() < deadline, "{resource} is not on disk");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Killed, with its API server gone.
    drop(agent);
    server.refuse();
    let agent = started(&server, &directory, &args);
    assert_eq!(ALL.map(|(_, path)| known(&agent, path)), before);
    let shop: Value = agent.get("/api/v1/namespaces/shop").json();
    assert_eq!(shop["metadata"]["labels"]["team"], "a");
    for (pod, expected) in
        [("web", "Deployment/web"), ("cron", "CronJob/backup"), ("rolled", "Rollout/fancy")]
    {
        assert_eq!(workload(&agent, pod), expected, "{pod}");
    }
    let ages = restored(&agent);
    assert!(ages.len() == ALL.len() && ages.values().all(|age| *age < 600), "{ages:?}");
    assert!(ages.contains_key("deployments.apps") && ages.contains_key("nodes"), "{ages:?}");
    drop(agent);

    // A torn file, one of a newer version, one of another resource, one that is no file.
    let text = fs::read(file("jobs")).unwrap();
    fs::write(file("jobs"), &text[..text.len() / 2]).unwrap();
    fs::write(file("statefulsets"), "# pod-index checkpoint 2 sha256:0\n{}\n").unwrap();
    fs::copy(file("nodes"), file("namespaces")).unwrap();
    fs::remove_file(file("daemonsets")).unwrap();
    fs::create_dir(file("daemonsets")).unwrap();
    let agent = started(&server, &directory, &args);
    for ((resource, path), names) in ALL.iter().zip(&before) {
        if ["jobs", "statefulsets", "namespaces", "daemonsets"].contains(resource) {
            agent.until(path, |answer| answer.code == 503);
            assert!(
                agent.logged().iter().any(|line| line.contains(&format!("{resource}.yaml: "))),
                "{resource}"
            );
        } else {
            assert_eq!(known(&agent, path), *names);
        }
    }
    assert_eq!(
        (&*workload(&agent, "web"), &*workload(&agent, "cron")),
        ("Deployment/web", "CronJob/backup derived")
    );
    fs::remove_dir(file("daemonsets")).unwrap();
    // What went meanwhile goes, and the rest is read.
    server.remove("pods", "shop", "web");
    server.remove("pods", "shop", "web-too");
    server.remove("pods", "shop", "gone");
    server.accept().await;
    agent.until("/sources", |answer| !answer.body.contains(r#""restored":"#));
    let now = ALL.map(|(_, path)| known(&agent, path));
    assert_eq!((&now[3], &now[4], &now[6]), (&vec![], &before[4], &before[6]));
    assert_eq!(known(&agent, "/apis/apps/v1/replicasets"), ["bare", "odd"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_without_the_right_keeps_only_itself_and_what_it_names_from_being_served() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    let rights = shipped("pod-index", &["base", "components/resources"]);
    server.grant(rights.into_iter().filter(|right| right.resource != "jobs").collect());
    put_all(&server);
    let agent = agent(&server, &directory);
    for (path, expected) in [
        ("/apis/apps/v1/replicasets", &["bare", "odd", "web-1"][..]),
        ("/apis/apps/v1/deployments", &["web"]),
        ("/apis/apps/v1/statefulsets", &["db"]),
        ("/apis/apps/v1/daemonsets", &["agent"]),
    ] {
        let list: Value = agent.has(path).json();
        assert_eq!(names(&list), expected, "{path}");
    }
    for path in ["/apis/batch/v1/jobs", "/apis/batch/v1/cronjobs"] {
        let answer = agent.get(path);
        assert_eq!(answer.code, 503, "{path}: {}", answer.body);
        assert!(
            answer.body.contains("have not been read yet: ") && answer.body.contains("jobs"),
            "{}",
            answer.body
        );
    }
    // Pods that come later are looked up although a kind is denied.
    server.put("statefulsets", &owned("StatefulSet", "late", None));
    server.put("pods", &pod_of("late-0", &json!({}), ("apps/v1", "StatefulSet", "late")));
    agent.until("/apis/apps/v1/statefulsets", |answer| answer.body.contains(r#""late""#));
    assert!(server.refused().iter().all(|right| right.resource == "jobs"));
    // The agent asks for the others again.
    server.grant(shipped("pod-index", &["base", "components/resources"]));
    let list: Value = agent.has("/apis/batch/v1/cronjobs").json();
    assert_eq!(names(&list), ["backup"]);
    server.refused();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_of_the_agent_is_enough_for_a_typed_client() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    put_all(&server);
    let agent = agent(&server, &directory);
    agent.has("/apis/apps/v1/deployments");
    let output = succeeded(agent.ask("kubeconfig"));
    let config = Kubeconfig::from_yaml(stdout(&output)).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let deployment = Api::<Deployment>::namespaced(client.clone(), "shop").get("web").await.unwrap();
    assert_eq!(
        (deployment.metadata.uid.as_deref(), deployment.spec.replicas),
        (Some("Deployment-web"), Some(0))
    );
    assert_eq!(
        Api::<CronJob>::all(client).list(&kube::api::ListParams::default()).await.unwrap().items.len(),
        1
    );

    for (args, word) in
        [("kubeconfig --socket x", "Unix socket"), ("kubeconfig --token-file x", "--certificate-authority")]
    {
        refused(args, 2, word);
    }
    let mut command = binary("kubeconfig --token-file /token --address ::1");
    let output = command.env("POD_INDEX_CERTIFICATE_AUTHORITY", "/pki/ca.crt").output().unwrap();
    let config = Kubeconfig::from_yaml(stdout(&output)).unwrap();
    let cluster = config.clusters[0].cluster.as_ref().unwrap();
    assert_eq!(cluster.server.as_deref(), Some("https://[::1]:10270"));
    assert_eq!(cluster.certificate_authority.as_deref(), Some("/pki/ca.crt"));
    assert_eq!(config.auth_infos[0].auth_info.as_ref().unwrap().token_file.as_deref(), Some("/token"));
}

/// Needs Python with the package `kubernetes`: `POD_INDEX_PYTHON` names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Python's client for Kubernetes: .ci/run clients"]
async fn the_python_client_decodes_every_resource() {
    let python = std::env::var("POD_INDEX_PYTHON").unwrap_or("python3".to_owned());
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("nodes", &json!({ "metadata": { "name": "node-1" } }));
    server.put("namespaces", &json!({ "metadata": { "name": "shop" } }));
    put_all(&server);
    let agent = agent(&server, &directory);
    agent.has("/apis/batch/v1/cronjobs");
    let script = "import sys; from kubernetes.client import *
api = ApiClient(Configuration(host=sys.argv[1]))
core, apps, batch = CoreV1Api(api), AppsV1Api(api), BatchV1Api(api)
print(*(len(list().items) for list in (
    core.list_pod_for_all_namespaces, core.list_node, core.list_namespace, apps.list_replica_set_for_all_namespaces,
    apps.list_deployment_for_all_namespaces, apps.list_stateful_set_for_all_namespaces,
    apps.list_daemon_set_for_all_namespaces, batch.list_job_for_all_namespaces, batch.list_cron_job_for_all_namespaces)))";
    let url = format!("http://{}", agent.address);
    let output = succeeded(std::process::Command::new(&python).args(["-c", script, &url]).output().unwrap());
    assert_eq!(stdout(&output).trim(), "11 1 1 3 1 1 1 2 1");
}
