//! What `deploy/` holds: of the shape that a cluster knows, with no more rights than are used, and started with flags and
//! keys that this very binary understands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, shipped};
use crate::support::{Directory, binary, stderr, stdout};

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn objects(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn daemonset() -> DaemonSet {
    serde_json::from_value(objects(&deploy("kubernetes/daemonset.yaml")).remove(0)).unwrap()
}

/// Read as its type and written again; what the type does not know is lost on the way.
fn known<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn every_shipped_manifest_is_of_the_shape_that_the_api_server_knows() {
    let mut kinds = BTreeSet::new();
    for file in std::fs::read_dir(deploy("kubernetes")).unwrap() {
        let path = file.unwrap().path();
        for object in objects(&path) {
            let kind = object["kind"].as_str().unwrap();
            let known = match kind {
                "Namespace" => known::<Namespace>(&object),
                "ServiceAccount" => known::<ServiceAccount>(&object),
                "ClusterRole" => known::<ClusterRole>(&object),
                "ClusterRoleBinding" => known::<ClusterRoleBinding>(&object),
                "Role" => known::<Role>(&object),
                "RoleBinding" => known::<RoleBinding>(&object),
                "DaemonSet" => known::<DaemonSet>(&object),
                other => panic!("{}: {other}: add it here", path.display()),
            };
            assert_eq!(known, object, "{}: {kind}", path.display());
            kinds.insert(kind.to_owned());
        }
    }
    assert_eq!(kinds.len(), 7);
}

#[test]
fn the_daemonset_runs_with_no_more_than_it_needs() {
    let rights = shipped("pod-index", &["read-only.yaml", "mirror-pods.yaml"]);
    let rights: Vec<_> = rights.iter().map(|right| (&*right.group, &*right.resource, &*right.verb)).collect();
    assert_eq!(rights, [("", "pods", "list"), ("", "pods", "watch")]);

    let pod = daemonset().spec.template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("pod-index"));
    assert_eq!(pod.volumes, None, "nothing of the host's");
    let security = serde_json::to_value(pod.security_context).unwrap();
    assert_eq!(
        (&security["runAsNonRoot"], &security["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
    let [container] = pod.containers.as_slice() else { panic!("one container") };
    let restricted = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(serde_json::to_value(&container.security_context).unwrap(), restricted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deployed_is_started_with_flags_and_keys_that_the_agent_knows() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let kubeconfig = crate::api::kubeconfig(&directory, &server);
    let container = daemonset().spec.template.spec.unwrap().containers.remove(0);
    let args = container.args.unwrap();
    let mut command = binary(&args.iter().map(String::as_str).chain(["--check"]).collect::<Vec<_>>());
    for variable in container.env.unwrap() {
        assert!(variable.value_from.is_some(), "the name of the node");
        command.env(variable.name, "node-7");
    }
    let output = command.env("KUBECONFIG", &kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("node-7") && stdout(&output).contains("pods of this node"),
        "{}",
        stdout(&output)
    );

    // As /etc/pod-index would have it, but for the directory of manifests, which this machine need not have.
    let config = directory.0.join("config.yaml");
    std::fs::copy(deploy("systemd/config.yaml"), &config).unwrap();
    std::fs::copy(&kubeconfig, directory.0.join("kubeconfig")).unwrap();
    let manifests = directory.0.to_str().unwrap();
    let args = ["--config", config.to_str().unwrap(), "--check", "--pod-manifest-path", manifests];
    let output = binary(&args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("managed, unless there is a kubelet"), "{}", stdout(&output));
    let unit = std::fs::read_to_string(deploy("systemd/pod-index.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/pod-index --config /etc/pod-index/config.yaml\n"));
}
