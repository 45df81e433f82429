//! kubectl against the agent. `POD_INDEX_KUBECTL` names it.

use std::process::{Command, Output, Stdio};

use super::*;
use crate::support::{stderr, stdout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: .ci/run clients"]
async fn kubectl_gets_watches_and_describes_what_the_agent_serves() {
    let kubectl = std::env::var("POD_INDEX_KUBECTL").unwrap_or("kubectl".to_owned());
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("nodes", &json!({ "metadata": { "name": "node-1", "labels": { "zone": "a" } } }));
    server.put("namespaces", &json!({ "metadata": { "name": "shop" }, "status": { "phase": "Active" } }));
    owners::put_all(&server);
    let agent = owners::agent(&server, &directory);
    agent.until("/apis/apps/v1/deployments", |answer| answer.body.contains("\"web\""));
    let command = |args: &str| {
        let mut command = Command::new(&kubectl);
        // Its own cache of what the server has, and no other configuration.
        command.env("HOME", &directory.0).env("KUBECONFIG", "/dev/null").stdin(Stdio::null());
        command.args(["--server", &format!("http://{}", agent.address)]).args(args.split(' '));
        command
    };
    let run = |args: &str| -> Output { command(args).output().unwrap() };
    for (args, expected) in [
        ("get pods -n shop", &["NAME", "READY", "web-too", "Running"][..]),
        ("get pods -A -o wide", &["NAMESPACE", "NODE", "node-1", "db-0"]),
        ("get pods -n shop -l pod-template-hash=1 -o name", &["pod/web", "pod/web-too", "pod/gone"]),
        ("get pod web -n shop -o yaml", &["kind: Pod", "  name: web", "nodeName: node-1"]),
        ("get pods -n shop -o json", &["\"kind\": \"List\"", "uid-of-web-too"]),
        ("describe pod web -n shop", &["Name:", "Controlled By:", "ReplicaSet/web-1", "Image:"]),
        ("get nodes", &["NAME", "STATUS", "node-1"]),
        ("get node node-1 -o yaml", &["kind: Node", "zone: a"]),
        ("get namespaces", &["shop", "Active"]),
        ("describe namespace shop", &["Name:", "shop", "Active"]),
        ("get deployments -A -o name", &["deployment.apps/web"]),
        ("get deployment web -n shop -o yaml", &["kind: Deployment", "kept: \"yes\""]),
        ("get replicasets,statefulsets,cronjobs -n shop -o name", &["web-1", "db", "cronjob.batch/backup"]),
    ] {
        let output = run(args);
        assert!(output.status.success(), "kubectl {args}: {}", stderr(&output));
        for text in expected {
            assert!(stdout(&output).contains(text), "kubectl {args}: no {text:?} in\n{}", stdout(&output));
        }
    }
    for (args, why) in [
        ("get pod none -n shop", "pods \"none\" not found"),
        ("get services", "the server doesn't have a resource type \"services\""),
        ("delete pod web -n shop", "the server does not allow this method"),
    ] {
        let output = run(args);
        assert!(!output.status.success() && stderr(&output).contains(why), "{args}: {}", stderr(&output));
    }

    let mut watch = command("get pods -n shop -w -o name").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "pod/web"));
    server.put("pods", &pod("shop", "late", &json!({})));
    assert!(lines.any(|line| line == "pod/late"));
    watch.kill().unwrap();
    watch.wait().unwrap();
}
