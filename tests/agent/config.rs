//! The configuration file, the environment and the command line; and the URL as a source.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::Value;

use crate::support::{Agent, Directory, binary, manifest, run, stderr, stdout};

#[test]
fn the_command_line_counts_over_the_environment_and_that_over_the_file() {
    let directory = Directory::new();
    let path = directory.0.join("config.yaml");
    std::fs::write(&path, "staticPodPath: manifests\nhostnameOverride: by-file\nfileCheckFrequency: 1m\n")
        .unwrap();
    let config = path.to_str().unwrap();
    let node = |environment: Option<&str>, args: &[&str]| {
        let mut command = binary(&[&["--check", "--config", config], args].concat());
        command.envs(environment.map(|name| ("POD_INDEX_HOSTNAME_OVERRIDE", name)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let line = stdout(&output).lines().find(|line| line.starts_with("node")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(node(None, &[]), "by-file");
    assert_eq!(node(Some("by-environment"), &[]), "by-environment");
    assert_eq!(node(Some("by-environment"), &["--hostname-override", "by-flag"]), "by-flag");

    // A relative path is relative to the file, as the kubelet has it.
    let output = run(&["--check", "--config", config]);
    let expected = format!("{} every 60s", directory.0.join("manifests").display());
    assert!(stdout(&output).contains(&expected), "{}", stdout(&output));
}

#[test]
fn a_bad_configuration_is_exit_code_2_and_names_the_place() {
    let directory = Directory::new();
    let path = directory.0.join("config.yaml");
    let config = path.to_str().unwrap();
    for (text, line, word) in [
        ("staticPodPath: /x\nstaticPodPaht: /y\n", "config.yaml:2:", "staticPodPaht"),
        ("staticPodPath: /x\nfileCheckFrequency: soon\n", "config.yaml:2:", "such as 20s"),
        ("staticPodPath: [/x\n", "config.yaml:", ""),
        ("staticPodURL: ftp://example.org\n", "staticPodURL", "http://"),
        ("staticPodURL: http://e.org\nstaticPodURLHeader: {a b: [c]}\n", "staticPodURLHeader", "a b"),
    ] {
        std::fs::write(&path, text).unwrap();
        for args in [&["--check", "--config", config][..], &["--once", "--config", config]] {
            let output = run(args);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(stderr(&output).contains(line) && stderr(&output).contains(word), "{}", stderr(&output));
        }
    }
    let output = run(&["--check", "--config", "/nonexistent/config.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/config.yaml"));
}

/// A server of manifests that answers with what is in the cell, and remembers what it was asked with.
pub(crate) fn serve_manifests(body: Arc<Mutex<String>>, asked: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pods", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            *asked.lock().unwrap() = head.join("\n");
            let body = body.lock().unwrap().clone();
            let code = if body.is_empty() { "500 Oh" } else { "200 OK" };
            let _ = write!(
                stream,
                "HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[test]
fn files_and_a_url_meet_in_one_index_and_the_agent_is_ready_when_both_were_read() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("from-file"));
    let (body, asked) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(String::new())));
    let url = serve_manifests(Arc::clone(&body), Arc::clone(&asked));
    let agent = Agent::start(&[
        "--pod-manifest-path",
        directory.0.to_str().unwrap(),
        "--manifest-url",
        &url,
        "--manifest-url-header",
        "X-Token:a:b,X-Node:n",
        "--http-check-frequency",
        "20ms",
        "--hostname-override",
        "node-1",
    ]);
    agent.until("/pods/default/from-file-node-1", |answer| answer.code == 200);
    let answer = agent.get("/readyz");
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("http") && answer.body.contains(&url), "{}", answer.body);
    assert!(!answer.body.contains("file"), "{}", answer.body);

    *body.lock().unwrap() = manifest("from-url");
    agent.until("/readyz", |answer| answer.code == 200);
    let list: List<Pod> = agent.get("/pods").json();
    let mut sources: Vec<_> = list
        .items
        .iter()
        .map(|pod| (pod.name(), pod.annotation("kubernetes.io/config.source").unwrap()))
        .collect();
    sources.sort_unstable();
    assert_eq!(sources, [("from-file-node-1", "file"), ("from-url-node-1", "http")]);
    let head = asked.lock().unwrap().to_lowercase();
    assert!(head.contains("x-token: a:b") && head.contains("x-node: n"), "{head}");

    // A server that fails takes nothing away, and is seen to fail.
    body.lock().unwrap().clear();
    let failing = |answer: &crate::support::Answer| {
        let sources: Value = answer.json();
        !sources["sources"][1]["problems"].as_array().unwrap().is_empty()
    };
    agent.until("/sources", failing);
    assert_eq!(agent.get("/pods/default/from-url-node-1").code, 200);
    assert_eq!(agent.get("/readyz").code, 200);
}
