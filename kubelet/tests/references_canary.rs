//! No output reveals the content of a Secret: no log line of any level, no debug output, no error, no status.
//! A canary is placed in valid Secrets and in unreadable answers. Then all output is searched for it, in
//! every form in which bytes are printed.

use pod_index_test_support::api_server;

use crate::log;

use std::fmt::Write as _;
use std::time::Duration;

use api_server::{ApiServer, DEADLINE, Verb};
use k8s_openapi::api::core::v1::Pod;
use log::Log;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::references::{GetError, Options, SecretManager, Times};
use pod_index_test_support::canary::{CANARY, IN_BASE64, tells};
use serde_json::{Value, json};

fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "ns", "name": name },
        "data": { "k": IN_BASE64 }, "stringData": { "k": CANARY },
    })
}

/// Answers that break the decoder at, before and after the canary.
fn unreadable() -> Vec<Value> {
    let mut broken = Vec::new();
    for (field, value) in [
        ("data", json!(CANARY)),
        ("data", json!({ "k": [IN_BASE64, CANARY] })),
        ("data", json!({ "k": format!("{CANARY}!") })),
        ("immutable", json!(CANARY)),
        ("stringData", json!([CANARY])),
        ("kind", json!(CANARY)),
        ("type", json!({ "k": CANARY })),
    ] {
        let mut secret = secret(&format!("broken-{}", broken.len()));
        secret[field] = value;
        broken.push(secret);
    }
    broken
}

fn pod(names: &[String]) -> Pod {
    let volumes: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "secret": { "secretName": name } })).collect();
    let pod = json!({
        "metadata": { "namespace": "ns", "name": "p", "uid": "u1" }, "spec": { "containers": [], "volumes": volumes },
    });
    serde_json::from_value(pod).unwrap()
}

#[tokio::test]
async fn no_output_contains_a_secrets_content() {
    let log = Log::of_the_process();

    let server = ApiServer::start().await;
    server.put("secrets", &secret("good"));
    let broken = unreadable();
    let names: Vec<String> = ["good".to_owned()]
        .into_iter()
        .chain((0..broken.len()).map(|number| format!("broken-{number}")))
        .collect();
    server.put_all("secrets", broken);

    let mut said = String::new();
    let backoff = Pauses::new(Duration::from_millis(1), Duration::from_millis(10));
    let times = Times { backoff, ..Times::default() };
    let options = Options { times, first_sync: Duration::from_secs(5), ..Options::default() };
    let secrets = SecretManager::new(server.client(), options);
    secrets.register_pod(&pod(&names));
    let good = secrets.get("ns", "good").await.unwrap();
    assert_eq!(good.data.as_ref().unwrap()["k"].0, CANARY.as_bytes(), "it is there");
    writeln!(said, "{good:?} {good:#?} {:?}", Some(&good)).unwrap();
    for name in &names[1..] {
        let secrets = SecretManager::new(
            server.client(),
            Options { first_sync: Duration::from_millis(1), ..Options::default() },
        );
        let lists = server.requests(Verb::List);
        secrets.register_pod(&pod(std::slice::from_ref(name)));
        // The answer has arrived and could not be decoded.
        server.seen(Verb::List, lists + 1).await;
        let error = secrets.get("ns", name).await.unwrap_err();
        assert!(matches!(error, GetError::NotSynced(_)));
        writeln!(said, "{error} {error:?} {error:#?}").unwrap();
    }
    // A valid Secret that becomes invalid during a watch.
    let mut bad = secret("good");
    bad["data"] = json!(CANARY);
    server.put("secrets", &bad);
    let stumbled = async {
        while secrets.status().failing != names.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(DEADLINE, stumbled).await.unwrap();
    writeln!(said, "{:?} {:?}", secrets.get("ns", "good").await, secrets.cached("ns", "good")).unwrap();
    let status = serde_json::to_string(&secrets.status()).unwrap();
    writeln!(said, "{secrets:?} {:?} {status}", secrets.status()).unwrap();
    assert!(said.contains("cannot be decoded"), "{said}");
    assert!(!tells(&said), "{said}");

    let log = log.text();
    assert!(log.contains("TRACE") && log.contains("cannot be followed"), "the log is taken down");
    let leak = log.lines().find(|line| tells(line));
    assert_eq!(leak, None);
}
