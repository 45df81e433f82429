//! HTTP features for frequent clients, and endpoints for authorized clients.

use std::net::TcpListener;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::api::kubeconfig_with;
use crate::support::{Agent, Answer, Directory, manifest, node_1, refused, run, shipped, stderr, stdout};

#[test]
fn a_pod_is_served_as_yaml_to_clients_that_ask_for_it() {
    let agent = Agent::on(&shipped());
    for path in ["/pods/default/static-web-node-1", "/pods/default%2Fstatic-web-node-1"] {
        let ask = |accept: &str| agent.send(&format!("GET {path}"), &format!("Accept: {accept}\r\n"), "");
        let json = ask("text/html, application/json, */*");
        assert_eq!(json.header("content-type"), Some("application/json"));
        for accept in ["application/yaml", "text/html, application/YAML;q=0.9, */*"] {
            let yaml = ask(accept);
            assert_eq!(yaml.header("content-type"), Some("application/yaml"), "{accept}");
            assert_eq!(yaml.header("vary"), Some("accept"));
            let yaml: Value = serde_saphyr::from_str(&yaml.body).unwrap();
            assert_eq!(yaml, json.json::<Value>());
            assert_eq!((&yaml["kind"], &yaml["apiVersion"]), (&json!("Pod"), &json!("v1")));
        }
    }
}

#[test]
fn a_table_has_a_row_for_each_pod() {
    const ACCEPT: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io, application/json\r\n";
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let agent = Agent::on(&directory.0);
    let whole = agent.get("/pods");
    let answer = agent.send("GET /pods", ACCEPT, "");
    let table: Value = answer.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&"Table".into(), &"meta.k8s.io/v1".into()));
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    let (first, added) = columns.split_at(7);
    assert_eq!(first, ["Namespace", "Name", "UID", "Source", "Kind", "Phase", "Node"]);
    assert_eq!(added, ["Ready", "Status", "Restarts", "Created", "IP", "Workload", "Images", "Labels"]);
    let pod = &whole.json::<List<Pod>>().items[0];
    let uid = pod.metadata.uid.as_deref().unwrap();
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    let created = created.unwrap_or_default();
    let cells =
        format!("default|web-node-1|{uid}|file|static|Pending|node-1|0/1|Pending|0|{created}|||nginx|");
    let cells = cells.split('|').collect::<Vec<_>>();
    assert_eq!(table["rows"], json!([{ "cells": cells, "object": null }]));
}

#[test]
fn large_lists_are_compressed_on_request_without_changes() {
    let directory = Directory::new();
    for i in 0..100 {
        directory.write(&format!("p{i}.yaml"), &manifest(&format!("p{i}")));
    }
    let agent = Agent::on(&directory.0);
    for path in ["/pods", "/api/v1/pods"] {
        let plain = agent.get(path);
        let squeezed = agent.send(&format!("GET {path}"), "Accept-Encoding: br, gzip\r\n", "");
        let encodings = [&plain, &squeezed].map(|answer| answer.header("content-encoding"));
        assert_eq!(encodings, [None, Some("gzip")], "{path}");
        assert_eq!(squeezed.header("vary"), Some("accept, accept-encoding"));
        assert_eq!(squeezed.json::<List<Pod>>().items.len(), 100);
        assert_eq!(plain.body, squeezed.body);
    }
    let small = Agent::on(&shipped()).send("GET /pods", "Accept-Encoding: gzip\r\n", "");
    assert_eq!((small.code, small.header("content-encoding")), (200, None), "not worth it");
}

#[test]
fn the_probes_answer_and_readiness_names_what_is_missing() {
    let agent = Agent::start(&["--manifest-url", "http://127.0.0.1:1/pods"]);
    for path in ["/livez", "/healthz"] {
        let answer = agent.get(path);
        assert_eq!((answer.code, &*answer.body), (200, "ok"));
    }
    let answer = agent.until("/readyz", |answer| answer.body.contains("refused"));
    assert_eq!(answer.code, 503);
    assert!(answer.body.starts_with("not read yet: http (http://127.0.0.1:1/pods): "), "{}", answer.body);
    assert!(agent.get("/metrics").body.contains("pod_index_ready 0"));
}

/// At night, "not ready" is not enough: is anything still tried, and when?
#[test]
fn a_source_that_is_not_ready_says_what_it_waits_for_and_when_it_tries_again() {
    let directory = Directory::new();
    let server = json!({ "server": "http://127.0.0.1:1" });
    let kubeconfig = kubeconfig_with(&directory, &server, &json!({}));
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/pods", silent.local_addr().unwrap());
    let socket = directory.0.join("kubelet.sock").display().to_string();
    let agent = Agent::start(&[
        "--node-name=node-1",
        "--manifest-url",
        &silent_url,
        "--kubeconfig",
        &kubeconfig,
        "--kubelet-socket",
        &socket,
    ]);
    let source = |answer: &Answer, name: &str| {
        let sources = answer.json::<Value>()["sources"].clone();
        sources.as_array().unwrap().iter().find(|source| source["source"] == name).unwrap().clone()
    };
    // Each of them is also tried now and then, so it is not always waiting for the next try.
    for name in ["api", "kubelet"] {
        let answer = agent.until("/sources", |answer| {
            let source = source(answer, name);
            source["failedChecks"].as_u64() > Some(0) && source["nextTry"].is_string()
        });
        let waits_for = source(&answer, name)["waitsFor"].as_str().unwrap().to_owned();
        assert!(
            waits_for.starts_with("its next try in ") && waits_for.ends_with(" s"),
            "{name}: {waits_for}"
        );
    }
    let answer = agent.until("/sources", |answer| !source(answer, "http")["nextTry"].is_string());
    assert_eq!(source(&answer, "http")["waitsFor"], "an answer of the server");
    agent.until("/readyz", |answer| {
        let [http, api] = ["http (", "api ("].map(|name| {
            let of_source = format!("not read yet: {name}");
            answer.body.lines().find(|line| line.starts_with(&of_source)).unwrap_or_default().to_owned()
        });
        http.ends_with("; it waits for an answer of the server")
            && api.contains("; it waits for its next try in ")
    });
    let found = agent.ask(&["doctor"]);
    assert!(stdout(&found).contains("; it waits for "), "{}", stdout(&found));

    // What is ready waits for nothing.
    let ready = Agent::on(&shipped()).get("/sources");
    assert_eq!(source(&ready, "file")["waitsFor"], Value::Null);
}

#[test]
fn serving_beyond_loopback_needs_an_explicit_flag() {
    let args = format!("--check {} --address 0.0.0.0", node_1(&shipped()));
    refused(&args, 2, "--allow-remote-clients");
    let output = run(&format!("{args} --allow-remote-clients"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
