//! HTTP features for frequent clients, and endpoints for authorized clients.

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::metrics::value;
use crate::support::{Agent, Answer, Directory, manifest, run, shipped, stderr};

#[test]
fn a_client_with_the_current_generation_gets_not_modified() {
    let directory = Directory::new();
    directory.write("a.yaml", &manifest("a"));
    let agent = Agent::on(&directory.0);
    for path in ["/pods", "/mirrors/pods"] {
        let first = agent.get(path);
        let tag = first.header("etag").unwrap();
        let again = |tag: &str| agent.send(&format!("GET {path}"), &format!("If-None-Match: {tag}\r\n"), "");
        let answer = again(tag);
        assert_eq!((answer.code, &*answer.body, answer.header("etag")), (304, "", Some(tag)), "{path}");
        assert_eq!(again("\"another\"").code, 200);
    }
    let tag = agent.get("/pods").header("etag").unwrap().to_owned();
    directory.write("b.yaml", &manifest("b"));
    agent.until("/pods/default/b-node-1", |answer| answer.code == 200);
    let answer = agent.send("GET /pods", &format!("If-None-Match: {tag}\r\n"), "");
    assert_eq!(answer.code, 200);
    assert_eq!(answer.json::<List<Pod>>().items.len(), 2);
    assert_ne!(answer.header("etag"), Some(&*tag));

    // Another run counts its generations from the start, so its first generation has other content.
    let other = Agent::on(&directory.0);
    let answer = other.send("GET /pods", &format!("If-None-Match: {tag}\r\n"), "");
    assert_eq!((answer.code, answer.json::<List<Pod>>().items.len()), (200, 2));
}

#[test]
fn a_forgotten_pod_does_not_change_the_tag() {
    let directory = Directory::new();
    for name in ["a", "b"] {
        directory.write(&format!("{name}.yaml"), &manifest(name));
    }
    let path = directory.0.to_str().unwrap();
    let args = ["--pod-manifest-path", path, "--hostname-override", "node-1", "--keep-removed", "5s"];
    let agent = Agent::start(&args);
    agent.until("/pods", |answer| answer.json::<List<Pod>>().items.len() == 2);
    std::fs::remove_file(directory.0.join("a.yaml")).unwrap();
    agent.until("/pods/default/a-node-1", |answer| answer.code == 404);
    let tags = ["/pods", "/mirrors/pods"].map(|path| agent.get(path).header("etag").unwrap().to_owned());
    let removed = |answer: &Answer| value(&answer.body, "pod_index_removed_pods");
    assert_eq!(removed(&agent.get("/metrics")), 1, "the tags are older than what follows");
    agent.until("/metrics", |answer| removed(answer) == 0);
    for (path, tag) in ["/pods", "/mirrors/pods"].into_iter().zip(&tags) {
        let answer = agent.send(&format!("GET {path}"), &format!("If-None-Match: {tag}\r\n"), "");
        assert_eq!(answer.code, 304, "{path}");
    }
}

#[test]
fn a_pod_is_served_as_yaml_to_clients_that_ask_for_it_first() {
    let agent = Agent::on(&shipped());
    for path in ["/pods/default/static-web-node-1", "/pods/default%2Fstatic-web-node-1"] {
        let ask = |accept: &str| agent.send(&format!("GET {path}"), &format!("Accept: {accept}\r\n"), "");
        let json = ask("application/json, application/yaml");
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
fn a_table_has_a_row_for_each_pod_and_a_tag_of_its_own() {
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
    assert_eq!(columns, ["Namespace", "Name", "UID", "Source", "Kind", "Phase", "Node"]);
    let pod = &whole.json::<List<Pod>>().items[0];
    let uid = pod.metadata.uid.as_deref().unwrap();
    let cells = json!(["default", "web-node-1", uid, "file", "static", "Pending", "node-1"]);
    assert_eq!(table["rows"], json!([{ "cells": cells, "object": null }]));

    let tag = answer.header("etag").unwrap();
    assert_ne!(whole.header("etag"), Some(tag), "who has the one has not the other");
    let known = format!("If-None-Match: {tag}\r\n");
    assert_eq!(agent.send("GET /pods", &(ACCEPT.to_owned() + &known), "").code, 304);
    assert_eq!(agent.send("GET /pods", &known, "").code, 200);
}

#[test]
fn large_lists_are_compressed_on_request_without_changes() {
    let directory = Directory::new();
    for i in 0..100 {
        directory.write(&format!("p{i}.yaml"), &manifest(&format!("p{i}")));
    }
    let agent = Agent::on(&directory.0);
    let plain = agent.get("/pods");
    let squeezed = agent.send("GET /pods", "Accept-Encoding: br, gzip\r\n", "");
    assert_eq!((plain.header("content-encoding"), squeezed.header("content-encoding")), (None, Some("gzip")));
    assert_eq!(squeezed.header("vary"), Some("accept, accept-encoding"));
    assert_eq!(squeezed.json::<List<Pod>>().items.len(), 100);
    assert_eq!(plain.body, squeezed.body);
    let small = agent.send("GET /mirrors/pods", "Accept-Encoding: gzip\r\n", "");
    assert_eq!((small.code, small.header("content-encoding")), (200, None), "not worth it");
}

#[test]
fn only_authorized_clients_change_the_log_level() {
    let path = shipped();
    let args = ["--pod-manifest-path", path.to_str().unwrap()];
    let agent = Agent::start(&args);
    assert_eq!(agent.get("/log-level").code, 404);
    assert_eq!(agent.send("PUT /log-level", "", "debug").code, 404);

    let agent = Agent::start(&[&args[..], &["--debug-endpoints"]].concat());
    assert_eq!(agent.get("/log-level").body, "info\n");
    let answer = agent.send("PUT /log-level", "", "debug\n");
    assert_eq!((answer.code, &*answer.body), (200, "debug\n"));
    assert_eq!(agent.get("/log-level").body, "debug\n");
    // Any message at that level will do: a connection that ends early.
    drop(std::net::TcpStream::connect(agent.address).unwrap());
    agent.send("GET /pods", "Content-Length: x\r\n", "");
    agent.wait_for_log("DEBUG");
    for body in ["loud", "", &"x".repeat(1_000)] {
        let answer = agent.send("PUT /log-level", "", body);
        assert!(answer.code == 400 || answer.code == 413, "{}", answer.code);
        let status: Value = answer.json();
        assert!(status["message"].as_str().unwrap().contains("error, warn, info, debug, trace"), "{status}");
    }
    assert_eq!(agent.get("/log-level").body, "debug\n");
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
    assert!(answer.body.starts_with("not seen yet: http (http://127.0.0.1:1/pods): "), "{}", answer.body);
    assert!(agent.get("/metrics").body.contains("pod_index_ready 0"));
}

#[test]
fn serving_beyond_loopback_needs_an_explicit_flag() {
    let path = shipped();
    let args = ["--check", "--pod-manifest-path", path.to_str().unwrap(), "--address", "0.0.0.0"];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--allow-remote-clients"), "{}", stderr(&output));
    let output = run(&[&args[..], &["--allow-remote-clients"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
