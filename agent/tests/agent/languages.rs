//! The programs in docs/languages.md run as they stand there. They need curl, Python, Go and a C compiler, so they run in a
//! step of `.ci/run`.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use crate::support::{Agent, Directory, shipped};

const DOCUMENT: &str = include_str!("../../../docs/languages.md");

/// The program in the document, as a file in `directory`.
fn program(directory: &Directory, language: &str, name: &str) -> String {
    let fence = format!("```{language}\n");
    let text = DOCUMENT.split(&fence).nth(1).and_then(|rest| rest.split("```").next());
    directory.write(name, text.unwrap_or_else(|| panic!("no program in {language}")));
    directory.0.join(name).to_str().unwrap().to_owned()
}

/// What the command printed, given the socket as its last argument.
fn printed(command: &[&str], socket: &Path) -> String {
    let output = Command::new("timeout").arg("300").args(command).arg(socket).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs curl, Python, Go and a C compiler; .ci/run python"]
fn every_program_of_the_document_finds_pods_and_follows_changes() {
    let directory = Directory::new();
    let socket = directory.0.join("agent.sock");
    let manifests = shipped();
    let agent = Agent::start(&[
        "--pod-manifest-path",
        manifests.to_str().unwrap(),
        "--node-name",
        "node-1",
        "--socket",
        socket.to_str().unwrap(),
    ]);
    agent.until("/readyz", |answer| answer.code == 200);
    let etcd: Pod = agent.get("/pods/kube-system/etcd-node-1").json();

    let c = program(&directory, "c", "program.c");
    let compiled = directory.0.join("program").to_str().unwrap().to_owned();
    assert!(Command::new("cc").args(["-Wall", "-Werror", "-o", &compiled, &c]).status().unwrap().success());
    for (language, command) in [
        ("sh", vec!["bash".to_owned(), program(&directory, "sh", "program.sh")]),
        ("python", vec!["python3".to_owned(), program(&directory, "python", "program.py")]),
        ("go", vec!["go".to_owned(), "run".to_owned(), program(&directory, "go", "program.go")]),
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
