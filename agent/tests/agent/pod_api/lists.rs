//! Discovery, get and list.

use super::*;
use crate::support::node_1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_lists_pods_with_get_list_and_watch() {
    let world = World::new().await;
    let get = |path: &str| world.agent.get(path).json::<Value>();
    assert_eq!(get("/api")["versions"], json!(["v1"]));
    assert_eq!((&get("/apis")["kind"], &get("/apis")["groups"]), (&json!("APIGroupList"), &json!([])));
    let resources = get("/api/v1");
    assert_eq!((&resources["kind"], &resources["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    let [pods] = resources["resources"].as_array().unwrap().as_slice() else { panic!("{resources}") };
    assert_eq!(json!([pods["name"], pods["kind"], pods["namespaced"]]), json!(["pods", "Pod", true]));
    assert_eq!(pods["verbs"], json!(["get", "list", "watch"]));
    assert_eq!(get("/version")["major"], "1");
    // The requests that kubectl makes first.
    let aggregated =
        "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json\r\n";
    for path in ["/api", "/apis", "/api/v1", "/version"] {
        assert_eq!(get(&format!("{path}/")), get(path), "clients generated from OpenAPI write a slash");
    }
    let answer = world.agent.send("GET /api", aggregated, "");
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_the_selected_pods_with_the_agents_versions() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "web-1", &json!({ "app": "web", "tier": "front" })));
    world.server.put("pods", &pod("shop", "web-2", &json!({ "app": "web" })));
    world.server.put("pods", &pod("shop", "db", &json!({ "app": "db" })));
    world.server.put("pods", &pod("bank", "web-1", &json!({ "app": "web" })));
    let all = world.until("", 4);
    assert_eq!((&all["kind"], &all["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(names(&all), ["web-1", "db", "web-1", "web-2"], "by namespace and name");
    let mut versions: Vec<_> = all["items"].as_array().unwrap().iter().map(version).collect();
    versions.sort_unstable();
    assert_eq!(versions[3], version(&all), "the list is as new as its newest pod");
    versions.dedup();
    assert_eq!(versions.len(), 4, "each pod has its own");
    let db = &all["items"][1];
    assert_eq!((&db["kind"], &db["apiVersion"]), (&json!("Pod"), &json!("v1")));

    for (query, selected) in [
        ("labelSelector=app%3Dweb", &["web-1", "web-1", "web-2"][..]),
        ("labelSelector=app%20in%20(web),tier", &["web-1"]),
        ("labelSelector=app!=web", &["db"]),
        ("fieldSelector=metadata.namespace%3Dshop,metadata.name!=db", &["web-1", "web-2"]),
        ("fieldSelector=status.phase%3DFailed", &[]),
        ("resourceVersion=0", &["web-1", "db", "web-1", "web-2"]),
        ("resourceVersion=0&limit=1", &["web-1", "db", "web-1", "web-2"]),
    ] {
        assert_eq!(names(&world.list(query)), selected, "{query}");
    }
    let of_shop: Value = world.agent.get("/api/v1/namespaces/shop/pods?labelSelector=app=web").json();
    assert_eq!(names(&of_shop), ["web-1", "web-2"]);
    let none: Value = world.agent.get("/api/v1/namespaces/sho/pods").json();
    assert_eq!(none["items"], json!([]));

    let one: Value = world.agent.get("/api/v1/namespaces/shop/pods/db").json();
    assert_eq!(&one, db);
    let list = world.agent.send("GET /api/v1/pods", PARTIAL_LIST, "").json::<Value>();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][1]["kind"], "PartialObjectMetadata");
    assert_eq!((&list["items"][1]["metadata"], &list["items"][1]["spec"]), (&db["metadata"], &Value::Null));
    let one = world.agent.send("GET /api/v1/namespaces/shop/pods/db", PARTIAL, "").json::<Value>();
    assert_eq!(one, list["items"][1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_has_the_cells_that_kubectl_prints() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "web-1", &json!({})));
    world.until("", 1);
    for (query, object) in [("", "PartialObjectMetadata"), ("?includeObject=Object", "Pod")] {
        let table: Value = world.agent.send(&format!("GET /api/v1/pods{query}"), TABLE, "").json();
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(columns.iter().filter(|column| column["priority"] == 0).count(), 5);
        let row = &table["rows"][0];
        let cells = row["cells"].as_array().unwrap();
        assert_eq!(cells.len(), columns.len());
        assert_eq!(cells[..3], ["web-1", "0/1", "Running"]);
        assert_eq!(row["object"]["kind"], object);
    }
    let one: Value = world.agent.send("GET /api/v1/namespaces/shop/pods/web-1", TABLE, "").json();
    assert_eq!((&one["kind"], &one["rows"][0]["cells"][0]), (&json!("Table"), &json!("web-1")));
    // A list in `/pods` has the agent's own columns, with and without parameters of the pod API.
    let rows: Value = world.agent.send("GET /pods?resourceVersion=0", TABLE, "").json();
    let plain: Value = world.agent.send("GET /pods", TABLE, "").json();
    assert_eq!((&rows["columnDefinitions"], &rows["rows"]), (&plain["columnDefinitions"], &plain["rows"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_whole_whatever_its_limit() {
    let world = World::new().await;
    world.server.put_all("pods", (0..10).map(|n| pod("shop", &format!("web-{n}"), &json!({ "app": "web" }))));
    let all = world.until("", 10);
    assert_eq!(world.list("limit=3"), all);
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", version(&all));
    assert_eq!(world.list(&exact), all);
    world.server.put("pods", &pod("shop", "web-33", &json!({ "app": "web" })));
    world.until("", 11);
    assert_eq!(world.agent.get(&format!("/api/v1/pods?{exact}")).code, 410, "only the latest is listed");
    let newer = world.list(&format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&all)));
    assert!(version(&newer) > version(&all));
    // A token is another server's, or an older agent's.
    let answer = world.agent.get("/api/v1/pods?limit=3&continue=abc");
    assert_eq!((answer.code, &answer.json::<Value>()["reason"]), (410, &json!("Expired")));
}

/// Before the pods are read, no client sees an empty list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_list_before_every_source_was_read() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.refuse();
    let kubeconfig = kubeconfig(&directory, &server);
    let agent = Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig]);
    for path in ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods/b"] {
        let answer = agent.get(path);
        assert_eq!(
            (answer.code, &answer.json::<Value>()["reason"]),
            (503, &json!("ServiceUnavailable")),
            "{path}"
        );
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(agent.get("/pods").code, 200, "the kubelet\'s list does not wait");
    server.accept().await;
    agent.has("/api/v1/pods");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configured_object_of_a_static_pod_is_shown() {
    let directory = Directory::new();
    directory.write("web.yaml", &crate::support::manifest("web"));
    let server = ApiServer::start().await;
    let args = format!("{} --kubeconfig {}", node_1(&directory.0), kubeconfig(&directory, &server));
    let node = Agent::start(&args);
    let mirror = Agent::start(&format!("{args} --static-pod-object mirror"));
    let shown = |agent: &Agent| {
        agent.get("/api/v1/namespaces/default/pods/web-node-1").json::<Value>()["metadata"]["uid"].clone()
    };
    for agent in [&node, &mirror] {
        agent.has("/api/v1/namespaces/default/pods/web-node-1");
    }
    let uid = shown(&node);
    assert_eq!(shown(&mirror), uid, "as long as there is no mirror");
    let mut watch = Watch::open(mirror.address, "/api/v1/pods?watch=1", "").unwrap();
    assert_eq!(summary(&watch.take(1)), [("ADDED", "web-node-1")]);
    let annotations = json!({ "kubernetes.io/config.mirror": uid });
    let object = server.put("pods", &crate::api::pod("web-node-1", "node-1", &annotations));
    let theirs = object.value["metadata"]["uid"].clone();
    let events = watch.take(2);
    assert_eq!(
        summary(&events),
        [("DELETED", "web-node-1"), ("ADDED", "web-node-1")],
        "another UID is another pod"
    );
    assert_eq!(events[1]["object"]["metadata"]["uid"], theirs);
    node.until("/mirrors", |answer| answer.body.contains("mirrorUID"));
    assert_eq!((shown(&node), shown(&mirror)), (uid, theirs));
}

/// All but the version, which is the agent's own.
fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_shown_as_the_api_server_has_them() {
    let world = World::with("--static-pod-object mirror").await;
    let mut mirror = pod("shop", "static-node-1", &json!({}));
    let hash = "b4000000000000000000000000000001";
    mirror["metadata"]["annotations"] = json!({
        "kubernetes.io/config.mirror": hash, "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file",
        "kubernetes.io/config.seen": "2026-01-02T03:04:05Z",
    });
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n", "controller": true }]);
    let mut web = pod("shop", "web", &json!({ "app": "web" }));
    world.server.put("pods", &mirror);
    world.server.put("pods", &web);
    let mut watch = world.watch("fieldSelector=metadata.name%3Dweb");
    let all =
        |list: &Value| -> Vec<_> { list["items"].as_array().unwrap().iter().map(without_version).collect() };
    let theirs = || world.server.objects("pods").iter().map(without_version).collect::<Vec<_>>();
    assert_eq!(all(&world.until("", 2)), theirs());
    assert_eq!(without_version(&watch.next().unwrap()["object"]), theirs()[1]);
    let uid = theirs()[1]["metadata"]["uid"].clone();
    // Each change alone: an annotation, an owner, a finalizer.
    for (field, value) in [
        ("annotations", json!({ "note": "x" })),
        (
            "ownerReferences",
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r" }]),
        ),
        ("finalizers", json!(["a/b"])),
    ] {
        web["metadata"]["uid"] = uid.clone();
        web["metadata"][field] = value;
        world.server.put("pods", &web);
        assert_eq!(without_version(&watch.next().unwrap()["object"]), theirs()[1], "{field}");
    }
    let last = theirs()[1].clone();
    let listed = world.agent.get("/pods").json::<Value>();
    let annotations = &listed["items"][1]["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "api", "as in the kubelet");
    world.server.remove("pods", "shop", "web");
    let event = watch.next().unwrap();
    assert_eq!((&event["type"], without_version(&event["object"])), (&json!("DELETED"), last));
}
