//! Nodes and Namespaces: the same rules as for pods, and nothing of them unless configured.

use super::*;
use crate::api::following;
use crate::api_server::{Fault, Verb, shipped};

const SERVED: &str = "--serve-resources nodes,namespaces";

fn namespace(name: &str, team: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "team": team } },
        "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
    })
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "node-role.kubernetes.io/worker": "", "zone": "a" } },
        "spec": { "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.2", "osImage": "Linux", "kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2" },
        },
    })
}

/// An agent of node-1 alone, with these arguments, once it is ready.
fn agent(server: &ApiServer, directory: &Directory, args: &str) -> Agent {
    following(server, directory, args).ready()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_and_the_own_node_are_served_as_by_the_api_server() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.grant(shipped("pod-index", &["base", "components/resources"]));
    server.put_all("namespaces", [namespace("bank", "a"), namespace("shop", "b")]);
    server.put_all("nodes", [node("node-1"), node("node-2")]);
    let agent = agent(&server, &directory, SERVED);
    let get = |path: &str| agent.until(path, |answer| answer.code != 503);
    for (path, expected) in [
        ("/api/v1/namespaces", &["bank", "shop"][..]),
        ("/api/v1/namespaces?labelSelector=team!%3Da", &["shop"]),
        ("/api/v1/namespaces?fieldSelector=metadata.name%3Dbank", &["bank"]),
        ("/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name!%3Dbank", &["shop"]),
        ("/api/v1/nodes", &["node-1"]),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1", &["node-1"]),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dnode-2", &[]),
        ("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue&labelSelector=zone", &["node-1"]),
        ("/api/v1/nodes/?fieldSelector=spec.unschedulable%3Dfalse", &[]),
    ] {
        let list: Value = get(path).json();
        assert_eq!(names(&list), expected, "{path}");
        let kind = if path.contains("nodes") { "NodeList" } else { "NamespaceList" };
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!(kind), &json!("v1")), "{path}");
    }
    let shop: Value = get("/api/v1/namespaces/shop").json();
    let theirs = &server.objects("namespaces")[1];
    assert_eq!((&shop["spec"], &shop["status"]), (&theirs["spec"], &theirs["status"]));
    assert_eq!(shop["metadata"].get("annotations"), theirs["metadata"].get("annotations"));
    let own: Value = get("/api/v1/nodes/node-1").json();
    assert_eq!(own["status"]["nodeInfo"]["osImage"], "Linux");
    for (path, code, message) in [
        ("/api/v1/namespaces/none", 404, r#"namespaces "none" not found"#),
        ("/api/v1/nodes/node-2", 404, r#"nodes "node-2" not found"#),
        ("/api/v1/nodes?fieldSelector=metadata.namespace%3Da", 400, "field label not supported"),
        ("/api/v1/namespaces/shop/nodes", 404, "the agent does not serve it"),
        ("/api/v1/services", 404, "the agent does not serve it"),
    ] {
        let answer = get(path);
        assert_eq!(answer.code, code, "{path}: {}", answer.body);
        let status: Value = answer.json();
        assert!(status["message"].as_str().unwrap().contains(message), "{path}: {status}");
    }
    let row = |path: &str| -> Value {
        let table: Value = agent.send(&format!("GET {path}"), TABLE, "").json();
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
        assert_eq!(columns, cells.len());
        // Without the age.
        cells
            .into_iter()
            .enumerate()
            .filter(|(at, _)| table["columnDefinitions"][at]["name"] != "Age")
            .map(|(_, cell)| cell)
            .collect()
    };
    assert_eq!(row("/api/v1/namespaces/shop"), json!(["shop", "Active"]));
    let cells = row("/api/v1/nodes");
    let cells: Vec<_> = cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
    assert_eq!(cells[..4], ["node-1", "Ready,SchedulingDisabled", "worker", "v1.36.2"]);
    assert_eq!(cells[6], "Linux", "the image of the operating system: {cells:?}");
    let core: Value = get("/api/v1").json();
    let resources: Vec<_> =
        core["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
    assert_eq!(resources, ["pods", "nodes", "namespaces"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_resource_has_its_own_events_and_versions() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("namespaces", &namespace("shop", "a"));
    server.put("nodes", &node("node-1"));
    let agent = agent(&server, &directory, SERVED);
    let list = |path: &str| -> Value { agent.has(path).json() };
    let (nodes, namespaces) = (list("/api/v1/nodes"), list("/api/v1/namespaces"));
    let watch = |path: &str, list: &Value, more: &str| {
        let path = format!("{path}?watch=1&resourceVersion={}{more}", version(list));
        Watch::open(agent.address, &path, "").unwrap()
    };
    let mut quiet = watch("/api/v1/nodes", &nodes, "&timeoutSeconds=4&allowWatchBookmarks=true");
    let mut all = watch("/api/v1/namespaces", &namespaces, "");
    let mut of_a = watch("/api/v1/namespaces", &namespaces, "&labelSelector=team%3Da");
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    server.put("namespaces", &namespace("shop", "b"));
    let (modified, deleted) = (all.next().unwrap(), of_a.next().unwrap());
    assert_eq!((kind(&modified), kind(&deleted)), ("MODIFIED".to_owned(), "DELETED".to_owned()));
    assert_eq!(version(&modified["object"]), version(&namespaces) + 1);
    server.put("namespaces", &namespace("late", "a"));
    for watch in [&mut all, &mut of_a] {
        let added = watch.next().unwrap();
        assert_eq!(summary(std::slice::from_ref(&added)), [("ADDED", "late")]);
        let object = &added["object"];
        assert_eq!(json!([object["kind"], object["apiVersion"]]), json!(["Namespace", "v1"]));
    }
    // Deleted and created again: another object.
    server.remove("namespaces", "", "late");
    server.put("namespaces", &namespace("late", "a"));
    let kinds = [all.next().unwrap(), all.next().unwrap()].map(|event| kind(&event));
    assert_eq!(kinds, ["DELETED", "ADDED"]);
    // Another resource's events change neither the versions nor the watches of this one.
    let bookmark = quiet.next().unwrap();
    assert_eq!((kind(&bookmark), version(&bookmark["object"])), ("BOOKMARK".to_owned(), version(&nodes)));
    assert_eq!(bookmark["object"]["kind"], "Node");

    // A watch of a version that is no longer stored gets 410, as for pods.
    let mut old = Watch::open(agent.address, "/api/v1/namespaces?watch=1&resourceVersion=1", "").unwrap();
    assert_eq!(old.next().unwrap()["object"]["code"], 410);
    let path = "/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut initial = Watch::open(agent.address, path, "").unwrap();
    let events: Vec<_> = (0..3).map(|_| initial.next().unwrap()).collect();
    assert_eq!(events.iter().map(kind).collect::<Vec<_>>(), ["ADDED", "ADDED", "BOOKMARK"]);
    assert_eq!(events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_api_server_everything_known_is_served_and_the_changes_meanwhile_follow() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put_all("namespaces", [namespace("stays", "a"), namespace("goes", "a"), namespace("again", "a")]);
    let agent = agent(&server, &directory, SERVED);
    agent.has("/api/v1/namespaces");
    let mut watch = Watch::open(agent.address, "/api/v1/namespaces?watch=1", "").unwrap();
    (0..3).for_each(|_| drop(watch.next()));
    server.fail_always(Verb::List, Fault::Status(500));
    server.fail_always(Verb::Watch, Fault::Status(500));
    server.close_watches();
    let sources = agent.until("/sources", |answer| answer.body.contains("planted"));
    let sources: Value = sources.json();
    let line =
        sources["resources"].as_array().unwrap().iter().find(|line| line["origin"] == "/api/v1/namespaces");
    assert!(line.unwrap()["secondsSinceHeard"].is_u64(), "{sources}");
    let known: Value = agent.get("/api/v1/namespaces").json();
    assert_eq!(names(&known), ["again", "goes", "stays"]);
    server.remove("namespaces", "", "goes");
    server.remove("namespaces", "", "again");
    server.put("namespaces", &namespace("again", "b"));
    // The history of the outage is gone, so everything is listed again.
    server.compact();
    server.heal();
    let events: Vec<_> = (0..3).map(|_| watch.next().unwrap()).collect();
    let told = |kind: &str, name: &str| {
        events
            .iter()
            .filter(|event| event["type"] == kind && event["object"]["metadata"]["name"] == name)
            .count()
    };
    assert_eq!(
        (told("DELETED", "goes"), told("DELETED", "again"), told("ADDED", "again")),
        (1, 1, 1),
        "{events:?}"
    );
    let known: Value = agent.get("/api/v1/namespaces").json();
    assert_eq!(names(&known), ["again", "stays"]);
}

/// The source sends all objects again, without those that the backup lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restored_backup_what_it_lacks_is_gone() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put_all("namespaces", [namespace("stays", "a"), namespace("changes", "a")]);
    let backup = server.backup();
    server.put_all("namespaces", [namespace("late", "a"), namespace("changes", "b")]);
    let agent = agent(&server, &directory, SERVED);
    let known: Value = agent.has("/api/v1/namespaces").json();
    assert_eq!(names(&known), ["changes", "late", "stays"]);
    let path = format!("/api/v1/namespaces?watch=1&resourceVersion={}", version(&known));
    let mut watch = Watch::open(agent.address, &path, "").unwrap();
    // A watch that began after the restore would not be cut off by it.
    server.until("pods, nodes and namespaces are watched", |server| server.open_watches() == 3).await;
    server.restore(&backup);
    // The others are sent again, too.
    let events: Vec<_> = (0..3).map(|_| watch.next().unwrap()).collect();
    let deleted: Vec<_> = events.iter().filter(|event| event["type"] == "DELETED").collect();
    assert_eq!(deleted.len(), 1, "{events:?}");
    assert_eq!(deleted[0]["object"]["metadata"]["name"], "late");
    let known: Value = agent.get("/api/v1/namespaces").json();
    assert_eq!(names(&known), ["changes", "stays"]);
    let found: Value = agent.get("/api/v1/namespaces/changes").json();
    assert_eq!(found["metadata"]["labels"]["team"], "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_configured_is_not_requested_and_its_404_says_what_it_takes() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.grant(shipped("pod-index", &["base"]));
    let agent = agent(&server, &directory, "");
    for (path, word) in [("/api/v1/nodes", "nodes"), ("/api/v1/namespaces/shop", "namespaces")] {
        let answer = agent.get(path);
        let status: Value = answer.json();
        let message = status["message"].as_str().unwrap();
        assert_eq!((answer.code, &status["reason"]), (404, &json!("NotFound")));
        assert!(message.contains(&format!("--serve-resources={word}")), "{message}");
        assert!(message.contains("components/resources"), "{message}");
    }
    assert!(server.asked().iter().all(|right| right.resource == "pods"), "{:?}", server.asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_nodes_all_nodes_are_served_and_a_missing_right_is_named() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put_all("nodes", [node("node-1"), node("node-2")]);
    let agent = agent(&server, &directory, "--all-nodes --serve-resources nodes");
    let nodes: Value = agent.has("/api/v1/nodes").json();
    assert_eq!(names(&nodes), ["node-1", "node-2"]);
    drop(agent);
    server.fail_always(Verb::List, Fault::Status(403));
    let agent = following(&server, &directory, "--serve-resources nodes");
    agent.until("/api/v1/nodes", |answer| {
        answer.code == 503 && answer.body.contains("nodes have not been read yet: planted: 403")
    });
}

/// Some agents ask once for a Namespace, and remember that it was refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_during_the_first_list_waits_for_it() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put_all("namespaces", [namespace("shop", "a")]);
    server.fail_always(Verb::List, Fault::Delay(std::time::Duration::from_secs(1)));
    let agent = following(&server, &directory, SERVED);
    let answer = agent.get("/api/v1/namespaces/shop");
    assert_eq!(answer.code, 200, "{}", answer.body);
}
