//! Upgrade and downgrade of the agent with a checkpoint directory. It starts on the files of a released version and leaves
//! them unchanged, and it starts on files of a newer version.

use std::path::Path;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_test_support::files::{self, Files};

use crate::api::kubeconfig;
use crate::api_server::ApiServer;
use crate::support::{Agent, Directory, manifest};

/// The files of an agent of version 0.1.0, and its pods. `kubelet/tests/checkpoint_versions.rs` describes them.
const WRITTEN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../kubelet/tests/checkpoint_support/written_by_0.1.0");
const PODS: [(&str, &str, &str); 3] = [
    ("default", "odd-node-1", "odd/uid ä"),
    ("default", "web-0", "c5cb8cf4-7d6f-44ca-87d1-c67bbfbd630a"),
    ("kube-system", "etcd-node-1", "95e75cfd343ab0e3e520a6f642a5c528"),
];

fn directory_with(files: &Files) -> Directory {
    let directory = Directory::new();
    files::write(&directory.0, files);
    directory
}

/// Whether the pod is known only from its checkpoint.
fn is_restored(pod: &Pod) -> bool {
    pod.annotation("pod-index/restored") == Some("true")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_upgrade_the_pods_are_served_before_any_source_responds_and_a_downgrade_has_them_too() {
    let server = ApiServer::start().await;
    server.refuse();
    let written = files::read(Path::new(WRITTEN));
    let (checkpoints, directory) = (directory_with(&written), Directory::new());
    let kubeconfig = kubeconfig(&directory, &server);
    let path = checkpoints.0.to_str().unwrap();
    let flags = ["--kubeconfig", &kubeconfig, "--hostname-override", "node-1", "--checkpoint-dir", path];
    // The second run reads what the first one left.
    for run in 0..2 {
        let mut agent = Agent::start(&[&flags[..], &["--checkpoint-all-pods"]].concat());
        assert_eq!(agent.get("/readyz").code, 503, "no source has responded");
        let list: List<Pod> = agent.get("/pods").json();
        let mut pods: Vec<_> =
            list.items.iter().map(|pod| (pod.namespace(), pod.name(), pod.uid())).collect();
        pods.sort_unstable();
        assert_eq!(pods, PODS, "run {run}");
        assert!(list.items.iter().all(is_restored));
        let web: Pod = agent.get("/pods/c5cb8cf4-7d6f-44ca-87d1-c67bbfbd630a").json();
        assert_eq!(web.metadata.labels.as_ref().unwrap()["team"], "shop");
        agent.signal("TERM");
        assert_eq!(agent.wait(), Some(0));
        let log = agent.whole_log();
        assert!(log.iter().any(|line| line.contains("restored pods from checkpoints pods=3")), "{log:#?}");
        assert!(!log.iter().any(|line| line.contains("ERROR") && line.contains("checkpoint")), "{log:#?}");
        assert_eq!(files::read(&checkpoints.0), written, "the files that version 0.1.0 reads");
    }
    // Sources replace the restored pods.
    server.put("pods", &crate::api::pod("new", "node-1", &serde_json::json!({})));
    server.accept().await;
    let agent = Agent::start(&[&flags[..], &["--checkpoint-all-pods"]].concat());
    agent.until("/readyz", |answer| answer.code == 200);
    let list: List<Pod> = agent.get("/pods").json();
    let names: Vec<_> = list.items.iter().map(PodMeta::name).collect();
    assert_eq!(names, ["new"]);
}

#[test]
fn after_a_downgrade_files_of_a_newer_version_are_set_aside_and_named_and_the_agent_is_ready() {
    let mut written = files::read(Path::new(WRITTEN));
    let newer = "# pod-index checkpoint 2 sha256:0\nunknown\n".to_owned();
    written.insert("Pod_newer.yaml".to_owned(), newer.clone());
    written.insert("index".to_owned(), "a file that only the newer version knows".to_owned());
    let (checkpoints, manifests) = (directory_with(&written), Directory::new());
    manifests.write("web.yaml", &manifest("web"));
    let (path, of_manifests) = (checkpoints.0.to_str().unwrap(), manifests.0.to_str().unwrap());
    let flags =
        ["--pod-manifest-path", of_manifests, "--hostname-override", "node-1", "--checkpoint-dir", path];
    let mut agent = Agent::start(&[&flags[..], &["--checkpoint-all-pods"]].concat());
    agent.until("/readyz", |answer| answer.code == 200);
    assert_eq!(agent.get("/pods/default/web-node-1").code, 200);
    agent.signal("TERM");
    assert_eq!(agent.wait(), Some(0));
    let log = agent.whole_log();
    let [line] = &log.iter().filter(|line| line.contains("Pod_newer.yaml")).collect::<Vec<_>>()[..] else {
        panic!("one line names the file: {log:#?}")
    };
    for words in ["ERROR", path, "it is of version 2", "Pod_newer.yaml.unusable"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(log.iter().any(|line| line.contains("restored pods from checkpoints pods=3")), "{log:#?}");
    let left = files::read(&checkpoints.0);
    assert_eq!(left.get("Pod_newer.yaml.unusable"), Some(&newer), "as it was");
    assert!(!left.contains_key("Pod_newer.yaml"));
    assert_eq!(left.get("index"), written.get("index"));
}
