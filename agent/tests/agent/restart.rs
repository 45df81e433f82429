//! The agent is killed and restarted: with a checkpoint directory, it has its pods before their source responds.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::{Value, json};

use crate::api::{kubeconfig, kubeconfig_with, pod};
use crate::api_server::ApiServer;
use crate::support::{
    Agent, Args, Directory, manifest, node_1, refused, run, started_by, stderr, stdout, wait_for,
};
use pod_index_test_support::files::names;
use pod_index_test_support::skipped;

const CANARY: &str = "hunter2-canary";
const RESTORED: &str = "pod-index/restored";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpointed_pods_survive_a_kill_and_stay_until_the_api_server_answers() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let kept = json!({ "node.kubernetes.io/bootstrap-checkpoint": "true" });
    server.put("pods", &pod("stays", "node-1", &kept));
    server.put("pods", &pod("goes", "node-1", &kept));
    server.put("pods", &pod("forgotten", "node-1", &json!({})));
    let checkpoints = directory.0.join("checkpoints");
    let kubeconfig = kubeconfig(&directory, &server);
    let kept = checkpoints.display();
    let args = format!("--kubeconfig {kubeconfig} --hostname-override node-1 --checkpoint-dir {kept}");
    let agent = Agent::start(&args).ready();
    checkpoints_are(&checkpoints, 2);
    // Killed, with its API server gone.
    drop(agent);
    server.refuse();
    server.remove("pods", "default", "goes");
    std::fs::write(checkpoints.join("Pod_torn.yaml"), "# pod-index checkpoint 1 00").unwrap();

    let agent = Agent::start(&args);
    assert_eq!(agent.get("/readyz").code, 503, "its source has not been seen");
    for name in ["stays", "goes"] {
        let pod: Pod = agent.get(&format!("/pods/default/{name}")).json();
        assert_eq!(pod.annotation(RESTORED), Some("true"), "{name}");
    }
    assert_eq!(agent.get("/pods/default/forgotten").code, 404);
    server.accept().await;
    agent.has("/readyz");
    let pod: Pod = agent.get("/pods/default/stays").json();
    assert_eq!(pod.annotation(RESTORED), None);
    assert_eq!(agent.get("/pods/default/goes").code, 404);
    assert_eq!(agent.get("/pods/default/forgotten").code, 200);
    let log = agent.logged().join("\n");
    assert!(!log.contains("cannot be written"), "{log}");
    assert!(
        log.contains("Pod_torn.yaml: ") && log.contains("it is set aside as Pod_torn.yaml.unusable"),
        "{log}"
    );
    assert!(names(&checkpoints).contains(&"Pod_torn.yaml.unusable".to_owned()));
}

/// Arguments for manifests and checkpoints in these directories.
pub fn of_files(manifests: &Path, checkpoints: &Path) -> String {
    format!("{} --checkpoint-dir {} --checkpoint-all-pods", node_1(manifests), checkpoints.display())
}

/// A file there is a pod at the next start, so whoever may write there makes up pods.
#[test]
fn a_checkpoint_directory_that_others_may_write_to_is_a_warning_of_the_agent_and_of_doctor() {
    let (manifests, checkpoints) = (Directory::new(), Directory::new());
    let may = |mode: u32| std::fs::set_permissions(&checkpoints.0, Permissions::from_mode(mode)).unwrap();
    let args = of_files(&manifests.0, &checkpoints.0);
    for (mode, is_warned) in [(0o777, true), (0o700, false)] {
        may(mode);
        let agent = Agent::start(&args);
        agent.wait_for_log("restored pods from checkpoints");
        let warned = agent.logged().iter().any(|line| line.contains("every user of the machine may write"));
        assert_eq!(warned, is_warned, "{mode:o}");
        drop(agent);
        let report = run(&format!("doctor {args}"));
        let report = stdout(&report);
        assert_eq!(report.contains("every user of the machine may write into"), is_warned, "{report}");
    }
}

/// Waits until this many checkpoints exist. Unfinished ones do not count.
fn checkpoints_are(directory: &Path, count: usize) {
    let files = || names(directory).into_iter().filter(|name| name != ".writing").count();
    wait_for(|| format!("{} checkpoints, not {count}", files()), || files() == count);
}

fn is_restored(agent: &Agent, name: &str) -> bool {
    let pod: Pod = agent.get(&format!("/pods/default/{name}")).json();
    pod.annotation(RESTORED).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_pod_is_removed_by_its_own_source_while_another_is_silent() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("a", "node-1", &json!({})));
    let directory = Directory::new();
    directory.write("stays.yaml", &manifest("stays"));
    directory.write("goes.yaml", &manifest("goes"));
    let checkpoints = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let args = format!("--kubeconfig {kubeconfig} {}", of_files(&directory.0, &checkpoints.0));
    let agent = Agent::start(&args).ready();
    checkpoints_are(&checkpoints.0, 3);
    drop(agent);
    server.refuse();
    std::fs::remove_file(directory.0.join("goes.yaml")).unwrap();

    let agent = Agent::start(&args);
    agent.lacks("/pods/default/goes-node-1");
    assert_eq!(agent.get("/readyz").code, 503, "the API server says nothing");
    assert!(!is_restored(&agent, "stays-node-1") && is_restored(&agent, "a"));
    assert!(agent.get("/metrics").body.contains("\npod_index_restored_pods 1\n"));
    checkpoints_are(&checkpoints.0, 2);
    server.accept().await;
    agent.until("/metrics", |answer| answer.body.contains("\npod_index_restored_pods 0\n"));
    assert!(!is_restored(&agent, "a"));
}

/// The identity provider may be away when the node boots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_pods_are_served_redacted_while_the_credential_plugin_fails() {
    let server = ApiServer::start().await;
    let mut web = pod("web", "node-1", &json!({}));
    web["spec"]["containers"][0]["env"] = json!([{ "name": "PASSWORD", "value": CANARY }]);
    server.put("pods", &web);
    let (directory, checkpoints) = (Directory::new(), Directory::new());
    let args = format!(
        "--hostname-override node-1 --checkpoint-all-pods --checkpoint-dir {}",
        checkpoints.0.display()
    );
    let agent = Agent::start(&format!("--kubeconfig {} {args}", kubeconfig(&directory, &server)));
    agent.until("/pods/default/web", |answer| answer.body.contains(CANARY));
    checkpoints_are(&checkpoints.0, 1);
    drop(agent);

    let script = "[ -e \"$0.works\" ] || { echo 'no such account' >&2; exit 3; }
        echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"t\"}}'";
    let user = crate::secrets::plugin(&directory, script);
    let path = kubeconfig_with(&directory, &json!({ "server": server.url() }), &user);
    let agent = Agent::start(&format!("--kubeconfig {path} {args} --redact-env"));
    assert!(is_restored(&agent, "web"));
    for path in ["/pods", "/pods/default/web", "/api/v1/pods", "/api/v1/namespaces/default/pods/web"] {
        let answer = agent.get(path);
        assert!(answer.code == 200 && answer.body.contains("PASSWORD"), "{path}: {}", answer.body);
        assert!(!answer.body.contains(CANARY), "{path}: {}", answer.body);
    }
    agent.until("/readyz", |answer| answer.code == 503 && answer.body.contains("no such account"));

    directory.write(".plugin.works", "");
    agent.has("/readyz");
    assert!(!is_restored(&agent, "web"));
    assert!(!agent.get("/pods").body.contains(CANARY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_pods_stay_while_their_directory_is_missing_or_has_unreadable_files() {
    let place = Directory::new();
    let (manifests, unmounted) = (place.0.join("manifests"), place.0.join("unmounted"));
    let checkpoints = Directory::new();
    std::fs::create_dir(&manifests).unwrap();
    for name in ["web", "gone"] {
        std::fs::write(manifests.join(format!("{name}.yaml")), manifest(name)).unwrap();
    }
    let args = format!("--file-check-frequency 50ms {}", of_files(&manifests, &checkpoints.0));
    let agent = Agent::start(&args).ready();
    checkpoints_are(&checkpoints.0, 2);
    drop(agent);
    std::fs::rename(&manifests, &unmounted).unwrap();

    let agent = Agent::start(&args);
    // The source's visible pods are in the index: none. The restored pods stay.
    agent.has("/readyz");
    assert!(is_restored(&agent, "web-node-1") && is_restored(&agent, "gone-node-1"));
    std::fs::remove_file(unmounted.join("gone.yaml")).unwrap();
    std::fs::write(unmounted.join("bad.yaml"), "kind: Pod").unwrap();
    std::fs::rename(&unmounted, &manifests).unwrap();
    agent.until("/pods/default/web-node-1", |answer| !answer.body.contains(RESTORED));
    assert!(is_restored(&agent, "gone-node-1"), "it may be what is in the bad file");
    checkpoints_are(&checkpoints.0, 2);
    // This changes no pod: the recovery alone triggers an update.
    std::fs::remove_file(manifests.join("bad.yaml")).unwrap();
    agent.lacks("/pods/default/gone-node-1");
    checkpoints_are(&checkpoints.0, 1);
}

/// The binary with these arguments, under limits that prevent watching files. `None`: this process may not set such
/// limits.
pub fn without_file_events(args: &(impl Args + ?Sized)) -> Option<Command> {
    let script = "echo 0 > /proc/sys/user/max_inotify_watches && exec \"$0\" \"$@\"";
    let limited = ["unshare", "--user", "--map-root-user", "sh", "-c", script];
    let output = Command::new(limited[0]).args(&limited[1..]).arg("true").output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        skipped("no inotify watches", format!("{output:?}"));
        return None;
    }
    Some(started_by(&limited, args))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_file_events_restored_pods_are_removed_and_nothing_is_an_error() {
    let (manifests, checkpoints) = (Directory::new(), Directory::new());
    for name in ["web", "gone"] {
        manifests.write(&format!("{name}.yaml"), &manifest(name));
    }
    let args = format!("--file-check-frequency 50ms {}", of_files(&manifests.0, &checkpoints.0));
    let Some(command) = without_file_events(&args) else { return };
    let agent = Agent::start(&args).ready();
    checkpoints_are(&checkpoints.0, 2);
    drop(agent);
    std::fs::remove_file(manifests.0.join("gone.yaml")).unwrap();

    let agent = Agent::spawn(command);
    agent.lacks("/pods/default/gone-node-1");
    assert!(!is_restored(&agent, "web-node-1"));
    agent.until("/metrics", |answer| answer.body.contains("\npod_index_restored_pods 0\n"));
    let sources: Value = agent.get("/sources").json();
    let [problem] = &sources["sources"][0]["problems"].as_array().unwrap()[..] else { panic!("{sources}") };
    assert_eq!(problem["kind"], "unhinted", "{sources}");
    assert!(
        problem["message"].as_str().unwrap().starts_with("no file events, so the path is only listed"),
        "{sources}"
    );
    let series = "\npod_index_source_problems{source=\"file\",kind=\"unhinted\"} 1\n";
    assert!(agent.get("/metrics").body.contains(series));
    // Found by listing the directory.
    manifests.write("new.yaml", &manifest("new"));
    agent.has("/pods/default/new-node-1");

    let once = without_file_events(&format!("{} --once", node_1(&manifests.0))).unwrap().output().unwrap();
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
}

#[test]
fn a_manifest_cannot_mark_its_pod_as_restored_or_removed() {
    let directory = Directory::new();
    let marked = manifest("web").replace(
        "name: web",
        "name: web, annotations: {pod-index/restored: \"true\", pod-index/removed: now, other: x}",
    );
    directory.write("web.yaml", &marked);
    let agent = Agent::on(&directory.0);
    let pod: Pod = agent.get("/pods/default/web-node-1").json();
    assert_eq!((pod.annotation("other"), pod.annotation(RESTORED)), (Some("x"), None));
    assert_eq!(pod.annotation("pod-index/removed"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_shutdown_the_index_is_on_disk() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let checkpoints = directory.0.join("checkpoints");
    let mut agent = Agent::start(&of_files(&directory.0, &checkpoints)).ready();
    agent.end();
    assert_eq!(std::fs::read_dir(&checkpoints).unwrap().count(), 1);
}

#[test]
fn an_unusable_checkpoint_directory_is_exit_code_3_and_named() {
    let directory = Directory::new();
    directory.write("file", "");
    let file = directory.0.join("file");
    let file = file.to_str().unwrap();
    refused(&format!("{} --port 0 --checkpoint-dir {file}", node_1(&directory.0)), 3, file);
}
