//! Static pods from files and their mirrors from an API server, with the two UIDs of one pod.

use std::fs;
use std::process::Command;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, Verb, shipped};
use pod_index_test_support::skipped;

use crate::support::{Agent, Args, Directory, manifest, refused, started_by, stderr};
use crate::tls::Authority;

pub fn pod(name: &str, node: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "default", "name": name, "annotations": annotations },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

/// A mirror pod as a kubelet makes it: of the static pod with this UID, owned by the Node object with the UID `n1`.
pub fn mirror(name: &str, of: &str) -> Value {
    let annotations = json!({
        "kubernetes.io/config.mirror": of, "kubernetes.io/config.hash": of, "kubernetes.io/config.source": "file",
    });
    let mut mirror = pod(name, "node-1", &annotations);
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n1", "controller": true }]);
    mirror
}

/// A kubeconfig that names this server.
pub fn kubeconfig(directory: &Directory, server: &ApiServer) -> String {
    kubeconfig_with(directory, &json!({ "server": server.url() }), &json!({}))
}

/// A kubeconfig with these settings for the server and the user.
pub fn kubeconfig_with(directory: &Directory, cluster: &Value, user: &Value) -> String {
    let path = directory.0.join(".kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An agent of `node-1` that follows this server.
pub fn following(server: &ApiServer, directory: &Directory, more: &(impl Args + ?Sized)) -> Agent {
    let (kubeconfig, more) = (kubeconfig(directory, server), more.list().join(" "));
    Agent::start(&format!("--kubeconfig {kubeconfig} --hostname-override node-1 {more}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirrors_uid_translates_to_its_static_pods_uid_after_changes_of_either() {
    let server = ApiServer::start().await;
    server.grant(shipped("pod-index", &["base"]));
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    server.put("pods", &pod("other", "node-1", &json!({})));
    server.put("pods", &pod("elsewhere", "node-2", &json!({})));
    let agent =
        following(&server, &directory, &["--pod-manifest-path", directory.0.to_str().unwrap()]).ready();
    assert_eq!(agent.names(), ["other", "web-node-1"], "those of this node");
    let mirrored = || agent.get("/mirrors").body.matches("mirrorUID").count();
    assert_eq!(mirrored(), 0);

    let web: Pod = agent.get("/pods/default/web-node-1").json();
    let mirror = server
        .put("pods", &pod("web-node-1", "node-1", &json!({ "kubernetes.io/config.mirror": web.uid() })));
    let query = format!("/whois?q={}", mirror.uid());
    let translates_to =
        |uid: &str| agent.until(&query, |answer| answer.json::<Value>()["podUID"] == uid).json::<Value>();
    let answer = translates_to(web.uid());
    assert_eq!((&answer["foundBy"], &answer["mirrorUID"]), (&json!("mirrorUid"), &json!(mirror.uid())));
    assert_eq!(answer["name"], "web-node-1");
    assert_eq!((agent.names().len(), mirrored()), (2, 1));
    assert_eq!(agent.get(&format!("/pods/{}", mirror.uid())).code, 404);

    // Editing the manifest changes the static pod's UID. The mirror is still the old one.
    directory.write("web.yaml", &manifest("web").replace("nginx", "httpd"));
    agent.until("/pods/default/web-node-1", |answer| answer.body.contains("httpd"));
    let edited: Pod = agent.get("/pods/default/web-node-1").json();
    assert_ne!(edited.uid(), web.uid());
    translates_to(edited.uid());

    server.remove("pods", "default", "web-node-1");
    // Late events find the pod by its mirror's UID.
    let answer: Value = agent.until(&query, |answer| !answer.body.contains(r#""mirrorUID""#)).json();
    assert_eq!((&answer["podUID"], &answer["name"]), (&json!(edited.uid()), &json!("web-node-1")));
}

/// A pod with several selectable properties.
fn selectable(namespace: &str, name: &str, app: &str, phase: &str) -> Value {
    let mut pod = pod(name, "node-1", &json!({}));
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["labels"] = json!({ "app": app });
    pod["status"] = json!({ "phase": phase });
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_selected_pods_of_the_api_server_are_followed() {
    let server = ApiServer::start().await;
    for (namespace, name, app, phase) in [
        ("a", "meant", "web", "Running"),
        ("b", "in-another-namespace", "web", "Running"),
        ("a", "with-another-label", "db", "Running"),
        ("a", "in-another-phase", "web", "Pending"),
    ] {
        server.put("pods", &selectable(namespace, name, app, phase));
    }
    let mut elsewhere = selectable("a", "on-another-node", "web", "Running");
    elsewhere["spec"]["nodeName"] = json!("node-2");
    server.put("pods", &elsewhere);
    let directory = Directory::new();
    let config = directory.0.join(".config.yaml");
    kubeconfig(&directory, &server);
    let text =
        "kubeconfig: .kubeconfig\nnodeName: node-1\nnamespace: a\npodFieldSelector: status.phase=Running\n";
    std::fs::write(&config, text).unwrap();
    let agent =
        Agent::start(&["--config", config.to_str().unwrap(), "--pod-selector", "app=web,app!=db"]).ready();
    assert_eq!(agent.names(), ["meant"]);
    // No other pod has arrived.
    let sources = agent.get("/sources").body;
    let origin = "/api/v1/namespaces/a/pods?fieldSelector=status.phase=Running,spec.nodeName=node-1&labelSelector=app=web,app!=db";
    assert!(sources.contains(origin), "{sources}");

    server.put("pods", &selectable("a", "in-another-phase", "web", "Running"));
    agent.has("/pods/a/in-another-phase");
    server.put("pods", &selectable("a", "meant", "db", "Running"));
    agent.lacks("/pods/a/meant");
}

#[test]
fn an_invalid_selection_is_exit_code_2() {
    for (args, why) in [
        (
            "--api-server --pod-selector app=a\tb",
            "--pod-selector \"app=a\\tb\": unable to parse requirement: values",
        ),
        ("--api-server --pod-field-selector Running", "--pod-field-selector \"Running\": in"),
        ("--api-server --namespace a/pods", "--namespace \"a/pods\": must consist of"),
        ("--pod-manifest-path x --namespace a", "--namespace needs --kubeconfig or --api-server"),
        (
            "--kubeconfig x --pod-manifest-path x --node-name n --manage-mirror-pods --pod-selector a",
            "--manage-mirror-pods cannot be used with --pod-selector",
        ),
    ] {
        refused(args, 2, why);
    }
}

const TOKEN: &str = "a-token-that-was-issued";

/// A server with a certificate of this authority and one pod. Clients with the token may read pods.
async fn secure_server(authority: &Authority) -> ApiServer {
    let (certificate, key) = authority.sign("127.0.0.1");
    let server = ApiServer::start_with_tls(&certificate, &key).await;
    server.grant(shipped("pod-index", &["base"]));
    server.demand_token(TOKEN);
    server.put("pods", &pod("a", "node-1", &json!({})));
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_the_servers_certificate_must_be_of_the_authority_in_the_kubeconfig() {
    let authority = Authority::new();
    let server = secure_server(&authority).await;
    let directory = Directory::new();
    let trusting = |authority: &Authority, token: &str| {
        // JSON has bytes as base64.
        let pem = ByteString(authority.pem.clone().into_bytes());
        let cluster = json!({ "server": server.url(), "certificate-authority-data": pem });
        kubeconfig_with(&directory, &cluster, &json!({ "token": token }))
    };
    let problem = |agent: &Agent| agent.get("/sources").json::<Value>()["sources"][0]["problems"][0].clone();

    let start = |kubeconfig: String| Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig]);

    // A certificate from another authority is rejected.
    let agent = start(trusting(&Authority::new(), TOKEN));
    let answer = agent.until("/readyz", |answer| answer.body.contains("certificate"));
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("invalid peer certificate"), "{}", answer.body);
    let message = problem(&agent)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("invalid peer certificate"), "{message}");
    assert_eq!(Verb::ALL.map(|verb| server.requests(verb)), [0; 6], "untrusted servers get no request");

    // So is any other token.
    let agent = start(trusting(&authority, "another"));
    agent.until("/sources", |answer| answer.body.contains("Unauthorized"));
    assert_eq!((agent.get("/readyz").code, agent.get("/pods/default/a").code), (503, 404));

    let agent = start(trusting(&authority, TOKEN)).ready();
    assert_eq!(agent.get("/pods/default/a").code, 200);
    server.put("pods", &pod("b", "node-2", &json!({})));
    agent.has("/pods/default/b");
}

/// In a pod, the environment names the server, and files at a fixed absolute path hold the authority and the token. The
/// agent sees them through mounts of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_pod_the_service_account_leads_to_the_api_server() {
    let permitted =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs none /mnt"]).output().map_or_else(
            |error| Err(error.to_string()),
            |output| if output.status.success() { Ok(()) } else { Err(stderr(&output).to_owned()) },
        );
    if let Err(why) = permitted {
        skipped("in a pod", why);
        return;
    }
    let authority = Authority::new();
    let server = secure_server(&authority).await;
    let run = Directory::new();
    let account = run.0.join("secrets/kubernetes.io/serviceaccount");
    fs::create_dir_all(&account).unwrap();
    for (file, text) in [("token", TOKEN), ("ca.crt", &authority.pem), ("namespace", "pod-index")] {
        fs::write(account.join(file), text).unwrap();
    }
    let script = "mount --bind \"$RUN\" /var/run && exec \"$0\" \"$@\"";
    let mut command = started_by(&["unshare", "-m", "sh", "-c", script], "--api-server --all-nodes");
    // No kubeconfig is named, and there is none in the home directory.
    command.env_remove("KUBECONFIG").env("HOME", &run.0).env("RUN", &run.0);
    let port = server.port().to_string();
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", &port);
    let agent = Agent::spawn(command).ready();
    assert_eq!(agent.get("/pods/default/a").code, 200);
    server.put("pods", &pod("b", "node-2", &json!({})));
    agent.has("/pods/default/b");

    // The cluster's authority rotates: the server first, then the file, which the agent reads every 30 s.
    let newer = Authority::new();
    let (certificate, key) = newer.sign("127.0.0.1");
    server.set_certificate(&certificate, &key);
    server.cut_connections();
    agent.until("/sources", |answer| answer.body.contains("invalid peer certificate"));
    fs::write(account.join("ca.crt"), &newer.pem).unwrap();
    server.put("pods", &pod("c", "node-2", &json!({})));
    agent.has("/pods/default/c");
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_exit_code_2() {
    refused(&["--once", "--kubeconfig", "/nonexistent/kubeconfig"], 2, "/nonexistent/kubeconfig");
}
