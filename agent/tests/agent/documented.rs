//! The agent does what the operators' documents show.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use crate::support::{Agent, Directory, REFERENCE, code, shipped, started_by, table};

#[test]
fn every_path_in_the_reference_is_served() {
    let manifests = shipped();
    let agent = Agent::on(&manifests);
    let etcd: Pod = agent.get("/pods/kube-system/etcd-node-1").json();

    let rows = table(REFERENCE, "| path | answer |");
    let paths: Vec<_> = rows.iter().flat_map(|row| code(row[0])).collect();
    assert!(paths.len() > 10, "{paths:?}");
    for path in paths {
        let asked = path
            .replace("{full name}", "etcd-node-1_kube-system")
            .replace("{uid}", etcd.uid())
            .replace("{namespace}", "kube-system")
            .replace("{name}", "etcd-node-1");
        let answer = agent.get(&asked);
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    }
}

/// The output of a shell for these commands in turn, as a user would see it.
fn transcript(directory: &Path, commands: &[&str]) -> String {
    let agent = Path::new(env!("CARGO_BIN_EXE_pod-index")).parent().unwrap();
    let path = format!("{}:{}", agent.display(), std::env::var("PATH").unwrap());
    let mut printed = String::new();
    for command in commands {
        let mut shell = started_by(&["bash", "-c", &format!("exec 2>&1; {command}")], "");
        let output = shell.current_dir(directory).env("PATH", &path).output().unwrap();
        printed.extend(["$ ", command, "\n", str::from_utf8(&output.stdout).unwrap()]);
    }
    printed
}

#[test]
fn the_operators_documents_consoles_show_the_real_output() {
    let directory = Directory::new();
    let shipped = shipped();
    std::os::unix::fs::symlink(shipped.parent().unwrap(), directory.0.join("examples")).unwrap();
    let manifests = directory.0.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let write = |name: &str, text: &str| std::fs::write(manifests.join(name), text).unwrap();
    write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    write(
        "robot.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: robot}\nspec:\n  containers: [{name: c, image: i}]\n  serviceAccountName: r\n",
    );

    let operators = include_str!("../../../docs/operators.md");
    let mut consoles = 0;
    for block in operators.split("```console\n").skip(1) {
        let (block, rest) = block.split_once("```").unwrap();
        // In a list, the block is indented like its end.
        let indent = block.rsplit('\n').next().unwrap_or_default();
        assert!(!rest.is_empty());
        let shown: String =
            block.lines().map(|line| line.strip_prefix(indent).unwrap_or(line).to_owned() + "\n").collect();
        let shown = shown.trim_end();
        let commands: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        assert_eq!(transcript(&directory.0, &commands).trim_end(), shown);
        consoles += 1;
    }
    assert!(consoles >= 5, "{consoles} consoles");
}
