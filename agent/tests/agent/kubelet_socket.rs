//! The kubelet's Pods API: read from a kubelet, and served to another agent, which reads it like a kubelet's.

use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::protobuf::encode_pod;
use pod_index_test_support::pods_api::{Answers, Event, Kubelet};
use serde_json::{Value, json};

use crate::support::{Agent, Directory, wait_for};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn pod(uid: &str, label: &str, ip: &str) -> Vec<u8> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "ns", "labels": {"a": label}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        "status": {"phase": "Running", "podIP": ip, "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{CONTAINER}"), "state": {"running": {}},
        }]},
    }))
    .unwrap();
    encode_pod(&pod)
}

fn items(agent: &Agent) -> Vec<Value> {
    let list: Value = agent.get("/pods").json();
    list["items"].as_array().unwrap().clone()
}

fn label_of(agent: &Agent, uid: &str) -> Option<String> {
    let pods = items(agent);
    let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == uid)?;
    pod["metadata"]["labels"]["a"].as_str().map(str::to_owned)
}

fn whois(agent: &Agent, query: &str) -> Value {
    agent.get(&format!("/whois?q={query}")).json()
}

fn args(socket: &std::path::Path) -> String {
    format!("--kubelet-socket {} --node-name n1 --kubelet-check-frequency 1s", socket.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_waits_for_the_kubelet_in_words_and_then_knows_what_it_knows() {
    let directory = Directory::new();
    let socket = directory.0.join("pods-api.sock");
    let agent = Agent::start(&args(&socket));
    agent.until("/readyz", |answer| answer.body.contains("there is no socket"));
    let kubelet = Kubelet::start(&socket);
    kubelet.put("one", &pod("one", "x", "10.0.0.1"));
    kubelet.answers(Answers::NotReady);
    agent.until("/readyz", |answer| answer.body.contains("does not know all its pods yet"));
    kubelet.answers(Answers::Pods);
    let agent = agent.ready();
    assert_eq!(whois(&agent, CONTAINER)["podUID"], "one");
    assert_eq!(whois(&agent, "10.0.0.1")["podUID"], "one");

    // Its containers have ended. Another pod gets the address before the kubelet forgets the first.
    kubelet.send(Event::Deleted, &pod("one", "x", ""));
    wait_for(|| "the address is free".to_owned(), || whois(&agent, "10.0.0.1")["podUID"] != "one");
    assert_eq!(items(&agent).len(), 1, "the kubelet lists it");
    kubelet.put_status("two", &pod("two", "x", "10.0.0.1"));
    wait_for(|| "the new pod".to_owned(), || whois(&agent, "10.0.0.1")["podUID"] == "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_serves_is_read_like_a_kubelets() {
    let directory = Directory::new();
    let (socket, served) = (directory.0.join("pods-api.sock"), directory.0.join("served.sock"));
    let kubelet = Kubelet::start(&socket);
    kubelet.put("one", &pod("one", "x", "10.0.0.1"));
    kubelet.answers(Answers::NotReady);
    let first = Agent::start(&format!(
        "{} --pods-api-socket {} --socket-mode 0600 --redact-env",
        args(&socket),
        served.display()
    ));
    let client = Agent::start(&args(&served));
    // It serves nothing before it knows its pods.
    client.until("/readyz", |answer| answer.body.contains("does not know all its pods yet"));
    kubelet.answers(Answers::Pods);
    let _first = first.ready();
    let client = client.ready();
    assert_eq!(std::fs::metadata(&served).unwrap().permissions().mode() & 0o777, 0o600);
    let pods = items(&client);
    assert_eq!((pods.len(), &pods[0]["status"]["podIP"]), (1, &json!("10.0.0.1")));
    assert!(!pods[0].to_string().contains("hunter2"), "the values of variables are left out");

    // A label, a new pod, and the end of one.
    kubelet.put("one", &pod("one", "y", "10.0.0.1"));
    wait_for(|| "the new label".to_owned(), || label_of(&client, "one").as_deref() == Some("y"));
    kubelet.put_status("two", &pod("two", "x", "10.0.0.2"));
    wait_for(|| "the new pod".to_owned(), || whois(&client, "10.0.0.2")["podUID"] == "two");
    kubelet.send(Event::Deleted, &pod("two", "x", ""));
    wait_for(|| "its end".to_owned(), || whois(&client, "10.0.0.2")["podUID"] != "two");
    kubelet.remove("two");
    wait_for(|| "its removal".to_owned(), || items(&client).len() == 1);
    // The agents' own marks go to nobody.
    assert!(!items(&client)[0].to_string().contains("pod-index/ended"));
}
