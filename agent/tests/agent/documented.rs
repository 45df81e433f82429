//! The agent does what the operators' documents show.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use crate::support::{
    Agent, Directory, PATIENCE, REFERENCE, binary, code, shipped, started_by, stdout, table,
};

const WHOIS: &str = include_str!("../../../docs/whois.md");
const LANGUAGES: &str = include_str!("../../../docs/languages.md");
const AGENTS: &str = include_str!("../../../docs/point-your-agents.md");

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

/// The blocks of code of this kind, without the indentation that they have in a list.
fn blocks(document: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    let blocks = document.split(&fence).skip(1).map(|block| block.split_once("```").unwrap().0);
    blocks
        .map(|block| {
            // A block is indented as its end is.
            let indent = block.rsplit('\n').next().unwrap_or_default();
            block.lines().map(|line| line.strip_prefix(indent).unwrap_or(line).to_owned() + "\n").collect()
        })
        .map(|block: String| block.trim_end().to_owned())
        .collect()
}

/// Fails unless the commands in this console print what it shows. Client commands ask the agent on this port.
fn assert_prints(console: &str, directory: &Path, port: Option<u16>) {
    let commands: Vec<_> = console.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(transcript(directory, &commands, port).trim_end(), console);
}

/// A directory in which `examples` is this repository's: the UID of a static pod depends on the path of its manifest as given.
fn with_examples() -> Directory {
    let directory = Directory::new();
    std::os::unix::fs::symlink(shipped().parent().unwrap(), directory.0.join("examples")).unwrap();
    directory
}

/// The agent that the documents ask.
fn on_the_examples(directory: &Directory, more: &[&str]) -> Agent {
    let arguments = ["--pod-manifest-path", "examples/manifests", "--hostname-override", "node-1"];
    let mut command = binary(&[&arguments[..], more].concat());
    command.current_dir(&directory.0);
    let agent = Agent::spawn(command);
    agent.until_within(5 * PATIENCE, "/readyz", |answer| answer.code == 200);
    agent
}

/// The output of a shell for these commands in turn, as a user would see it.
fn transcript(directory: &Path, commands: &[&str], port: Option<u16>) -> String {
    let agent = Path::new(env!("CARGO_BIN_EXE_pod-index")).parent().unwrap();
    let path = format!("{}:{}", agent.display(), std::env::var("PATH").unwrap());
    let mut printed = String::new();
    for command in commands {
        let mut shell = started_by(&["bash", "-c", &format!("exec 2>&1; {command}")], "");
        shell.current_dir(directory).env("PATH", &path);
        if let Some(port) = port {
            shell.env("POD_INDEX_PORT", port.to_string());
        }
        let output = shell.output().unwrap();
        printed.extend(["$ ", command, "\n", str::from_utf8(&output.stdout).unwrap()]);
    }
    printed
}

#[test]
fn the_operators_documents_consoles_show_the_real_output() {
    let directory = with_examples();
    let manifests = directory.0.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let write = |name: &str, text: &str| std::fs::write(manifests.join(name), text).unwrap();
    write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    write(
        "robot.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: robot}\nspec:\n  containers: [{name: c, image: i}]\n  serviceAccountName: r\n",
    );

    let operators = include_str!("../../../docs/operators.md");
    let consoles = blocks(operators, "console");
    assert!(consoles.len() >= 5, "{consoles:?}");
    for console in consoles {
        assert_prints(&console, &directory.0, None);
    }
}

#[test]
fn the_documents_of_whois_show_what_it_prints() {
    let directory = with_examples();
    let agent = on_the_examples(&directory, &[]);
    let consoles = blocks(WHOIS, "console");
    assert!(consoles.len() >= 2, "{consoles:?}");
    for console in consoles {
        assert_prints(&console, &directory.0, Some(agent.address.port()));
    }
}

/// Their output depends on the time or on the machine, so only their exit code is checked: 2 means a wrong command line.
#[test]
fn the_commands_in_the_documents_are_understood() {
    let directory = with_examples();
    directory.write("flows", "2026-01-02T03:04:05Z 10.0.0.7\n");
    let agent = on_the_examples(&directory, &[]);
    let mut understood = 0;
    for block in [WHOIS, AGENTS].into_iter().flat_map(|document| blocks(document, "sh")) {
        for command in block.lines().filter(|line| line.starts_with("pod-index ")) {
            let with_code = format!("{command}\necho \"exit code $?\"");
            let printed = transcript(&directory.0, &[&with_code], Some(agent.address.port()));
            let code = printed.trim_end().rsplit_once("exit code ").unwrap().1;
            assert!(["0", "1"].contains(&code), "{printed}");
            understood += 1;
        }
    }
    assert!(understood >= 5, "{understood} commands");
}

#[test]
fn the_documents_show_what_curl_gets_from_whois() {
    let directory = with_examples();
    let [rules] = &blocks(WHOIS, "yaml")[..] else { panic!("one file of rules") };
    directory.write("extract.yaml", rules);
    let plain = on_the_examples(&directory, &[]);
    let with_rules = on_the_examples(&directory, &["--extract", "extract.yaml"]);
    let mut answers = 0;
    for block in [WHOIS, LANGUAGES].into_iter().flat_map(|document| blocks(document, "text")) {
        let Some(shown) = block.strip_prefix("$ curl -s 'localhost:10270") else { continue };
        let (path, answer) = shown.split_once("'\n").unwrap();
        let agent = if path.contains("attributes") { &with_rules } else { &plain };
        assert_eq!(agent.get(path).body.trim_end(), answer, "{path}");
        answers += 1;
    }
    assert!(answers >= 2, "{answers} answers");
}

#[test]
fn the_first_page_shows_the_pods_of_the_examples() {
    let directory = with_examples();
    let arguments = "--pod-manifest-path examples/manifests --hostname-override node-1 --once";
    let output = binary(arguments).current_dir(&directory.0).output().unwrap();
    let shown = blocks(include_str!("../../../README.md"), "text").remove(0);
    let rows: Vec<_> = shown.lines().filter(|line| *line != "…").collect();
    assert!(rows.len() >= 3, "{shown}");
    for row in rows {
        assert!(stdout(&output).lines().any(|line| line == row), "{row:?} is not in {}", stdout(&output));
    }
}
