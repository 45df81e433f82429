//! The programs in `examples/clients` run. They need curl, Python, Go and a C compiler, so they run in a step of `.ci/run`.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use crate::support::{Agent, Directory, shipped};

/// What the command printed, given the socket as its last argument.
fn printed(command: &[&str], socket: &Path) -> String {
    let output = Command::new("timeout").arg("300").args(command).arg(socket).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs curl, Python, Go and a C compiler; .ci/run clients"]
fn every_program_finds_pods_and_follows_changes() {
    let directory = Directory::new();
    let socket = directory.0.join("agent.sock");
    let manifests = shipped();
    let agent = Agent::on_with(&manifests, &["--socket", socket.to_str().unwrap()]);
    let etcd: Pod = agent.get("/pods/kube-system/etcd-node-1").json();

    let programs = manifests.parent().unwrap().join("clients");
    let program = |name: &str| programs.join(name).to_str().unwrap().to_owned();
    let c = program("pods.c");
    let compiled = directory.0.join("program").to_str().unwrap().to_owned();
    assert!(Command::new("cc").args(["-Wall", "-Werror", "-o", &compiled, &c]).status().unwrap().success());
    for (language, command) in [
        ("sh", vec!["bash".to_owned(), program("pods.sh")]),
        ("python", vec!["python3".to_owned(), program("pods.py")]),
        ("go", vec!["go".to_owned(), "run".to_owned(), program("pods.go")]),
        ("c", vec![compiled]),
    ] {
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        let printed = printed(&command, &socket);
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines.len(), 5, "{language}: {printed}");
        assert!(lines[0].contains(etcd.uid()), "{language}: {printed}");
        assert_eq!(lines[1], "2", "{language}");
        assert!(lines[2..].iter().all(|line| line.contains("ADDED")), "{language}: {printed}");
        println!("ran: {language}");
    }
}
