//! The agent checks mirror pods against the UID of the node's Node object, if it may read the object.

use serde_json::{Value, json};

use crate::api::{following, pod};
use crate::api_server::{ApiServer, Right, Verb, shipped};
use crate::support::{Agent, Directory};

const NODE: &str = "node-1";
const WEB: &str = "b4000000000000000000000000000001";
const FORGED: &str = "b4000000000000000000000000000002";

fn node(uid: &str, day: u32) -> Value {
    json!({ "metadata": { "name": NODE, "uid": uid, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z") } })
}

/// The mirror pod of a static pod, created on this day, owned by the Node object with the UID `owner`.
fn mirror(name: &str, uid: &str, owner: &str, day: u32) -> Value {
    let mut mirror = crate::api::mirror(name, uid);
    mirror["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
    mirror["metadata"]["creationTimestamp"] = json!(format!("2026-01-{day:02}T12:00:00Z"));
    // A kubelet reports it within seconds.
    mirror["status"] = json!({ "phase": "Running", "containerStatuses": [
        { "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0 },
    ] });
    mirror
}

fn start(server: &ApiServer, directory: &Directory, more: &[&str]) -> Agent {
    // Otherwise `/pods/{uid}` finds a refused pod for a minute more.
    following(server, directory, &[&["--keep-removed", "0"], more].concat()).ready()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_nodes_credentials_a_mirror_pod_of_another_node_object_is_refused() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.restrict_to_node(NODE);
    server.put("nodes", &node("n1", 1));
    server.put("pods", &mirror("web-node-1", WEB, "n1", 2));
    server.put("pods", &mirror("forged-node-1", FORGED, "n0", 2));
    let agent = start(&server, &directory, &[]);
    let sources =
        agent.until("/sources", |answer| answer.body.contains("must have the UID of the Node object"));
    let sources: Value = sources.json();
    let problem = &sources["sources"][0]["problems"][0];
    assert_eq!((&problem["kind"], &problem["field"]), (&json!("claim"), &json!("metadata.ownerReferences")));
    assert!(problem["message"].as_str().unwrap().contains("default/forged-node-1"), "{problem}");
    agent.lacks(&format!("/pods/{FORGED}"));
    assert_eq!(agent.get(&format!("/pods/{WEB}")).code, 200);

    // The Node object is deleted and created again. Its old mirror pods go, and the kubelet creates new ones.
    server.remove("nodes", "", NODE);
    server.put("nodes", &node("n2", 3));
    server.remove("pods", "default", "web-node-1");
    let of_web = format!("/pods/{WEB}");
    agent.until(&of_web, |answer| answer.body.contains("pod-index/unconfirmed"));
    server.put("pods", &mirror("web-node-1", WEB, "n2", 3));
    agent.until(&of_web, |answer| {
        assert_eq!(answer.code, 200, "it never goes");
        !answer.body.contains("pod-index/unconfirmed")
    });
    assert_eq!(agent.get(&format!("/pods/{FORGED}")).code, 404, "what was refuted stays refuted");
    assert_eq!(server.requests(Verb::Get), 2, "only when a mirror pod has another owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_the_node_is_not_requested_and_uids_are_not_compared() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.grant(shipped("pod-index", &["base"]));
    server.put("nodes", &node("n1", 1));
    server.put("pods", &mirror("web-node-1", WEB, "n0", 2));
    let agent = start(&server, &directory, &["--log-level", "debug"]);
    // It has asked for its rights, and has read the answer.
    agent.wait_for_log("the UID of the Node object in mirror pods is not checked");
    assert!(server.requests(Verb::Create) > 0);
    agent.has(&format!("/pods/{WEB}"));
    let is_node = |right: &Right| right.resource == "nodes";
    assert!(!server.asked().iter().any(is_node), "{:?}", server.asked());
    assert!(!agent.get("/sources").body.contains("claim"));
    assert!(server.requests(Verb::Create) < 5, "with long pauses");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_mirror_pods_nothing_is_requested() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("nodes", &node("n1", 1));
    server.put("pods", &pod("web", NODE, &json!({})));
    let agent = start(&server, &directory, &[]);
    server.put("pods", &pod("later", NODE, &json!({})));
    agent.has("/pods/default/later");
    assert_eq!((server.requests(Verb::Create), server.requests(Verb::Get)), (0, 0));
}
