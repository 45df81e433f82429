//! Tests of the API server double, over HTTP, with the client that the source uses.

use pod_index_test_support::api_server;

use std::time::{Duration, Instant};

use api_server::{ApiServer, DEADLINE, Fault, Verb};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, PostParams, Preconditions, WatchEvent, WatchParams,
};
use pod_index_test_support::proxy::{Forwards, Proxy};
use serde_json::{Value, json};

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn typed(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("not refused: {other:?}"),
    }
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
}

type Events = std::pin::Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>;

async fn watch(api: &Api<Pod>, from: &str, params: &WatchParams) -> Events {
    api.watch(params, from).await.unwrap().boxed()
}

/// The next event, abbreviated: its kind and its object.
async fn next(events: &mut Events) -> String {
    let event = tokio::time::timeout(DEADLINE, events.next()).await.expect("an event");
    match event {
        None => "end".to_owned(),
        Some(Err(error)) => format!("error: {error}"),
        Some(Ok(WatchEvent::Error(status))) => format!("ERROR {}", status.code),
        Some(Ok(WatchEvent::Bookmark(mark))) => format!("BOOKMARK {:?}", mark.metadata.annotations),
        Some(Ok(WatchEvent::Added(pod))) => format!("ADDED {}", pod.metadata.name.unwrap()),
        Some(Ok(WatchEvent::Modified(pod))) => format!("MODIFIED {}", pod.metadata.name.unwrap()),
        Some(Ok(WatchEvent::Deleted(pod))) => format!("DELETED {}", pod.metadata.name.unwrap()),
    }
}

#[tokio::test]
async fn a_list_is_selected_paged_and_of_one_version() {
    let server = ApiServer::start().await;
    for (namespace, name, node) in
        [("b", "four", "n1"), ("a", "one", "n1"), ("a", "two", "n2"), ("a", "three", "n1")]
    {
        server.put("pods", &pod(namespace, name, node));
    }
    let all: Api<Pod> = Api::all(server.client());
    let list = async |params: ListParams| all.list(&params).await.unwrap();
    assert_eq!(names(&list(ListParams::default()).await.items), ["one", "three", "two", "four"]);
    let on_n1 = ListParams::default().fields("spec.nodeName=n1");
    assert_eq!(names(&list(on_n1.clone()).await.items), ["one", "three", "four"]);
    assert_eq!(names(&list(on_n1.clone().labels("app!=one")).await.items), ["three", "four"]);
    let in_a: Api<Pod> = Api::namespaced(server.client(), "a");
    assert_eq!(names(&in_a.list(&on_n1).await.unwrap().items), ["one", "three"]);

    let first = list(on_n1.clone().limit(2)).await;
    server.put("pods", &pod("c", "late", "n1"));
    let token = first.metadata.continue_.clone().unwrap();
    let second = list(on_n1.clone().limit(2).continue_token(&token)).await;
    assert_eq!((names(&first.items), names(&second.items)), (vec!["one", "three"], vec!["four"]));
    assert_eq!(first.metadata.resource_version, second.metadata.resource_version);
    assert_eq!(second.metadata.continue_, None);

    server.compact();
    let gone = all.list(&on_n1.limit(2).continue_token(&token)).await;
    assert_eq!(code(gone), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn a_watch_sends_changes_since_a_version_and_pods_that_start_or_stop_matching() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    let since = server.put("pods", &pod("a", "one", "n1")).version.to_string();
    server.put("pods", &pod("a", "two", "n1"));
    let mut events = watch(&api, &since, &WatchParams::default().fields("spec.nodeName=n1")).await;
    assert_eq!(next(&mut events).await, "ADDED two");
    server.put("pods", &pod("a", "one", "n1"));
    server.put("pods", &pod("a", "two", "n2"));
    server.put("pods", &pod("a", "two", "n1"));
    server.put("pods", &pod("a", "three", "n2"));
    server.remove("pods", "a", "one");
    for expected in ["MODIFIED one", "DELETED two", "ADDED two", "DELETED one"] {
        assert_eq!(next(&mut events).await, expected);
    }
    server.watched_by(1).await;
    drop(events);
    server.watched_by(0).await;
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    server.put("pods", &pod("a", "one", "n1"));
    let mut events = watch(&api, "0", &WatchParams::default().initial_events()).await;
    assert_eq!(next(&mut events).await, "ADDED one");
    assert_eq!(next(&mut events).await, r#"BOOKMARK {"k8s.io/initial-events-end": "true"}"#);
    server.send_bookmarks();
    assert_eq!(next(&mut events).await, "BOOKMARK {}");
}

#[tokio::test]
async fn a_version_too_old_is_gone_by_an_event_or_by_a_status() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    let old = server.put("pods", &pod("a", "one", "n1")).version.to_string();
    server.put("pods", &pod("a", "two", "n1"));
    let mut open = watch(&api, &old, &WatchParams::default()).await;
    assert_eq!(next(&mut open).await, "ADDED two");
    server.expire_watches();
    assert_eq!((next(&mut open).await, next(&mut open).await), ("ERROR 410".to_owned(), "end".to_owned()));
    let mut late = watch(&api, &old, &WatchParams::default()).await;
    assert_eq!(next(&mut late).await, "ERROR 410");
    server.gone_as_status();
    let refused = api.watch(&WatchParams::default(), &old).await.map(|_| ());
    assert_eq!(code(refused), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn a_watch_can_be_cut_in_an_event_ended_closed_held_and_turned_round() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    let since = server.put("pods", &pod("a", "zero", "n1")).version.to_string();
    for name in ["one", "two"] {
        server.put("pods", &pod("a", name, "n1"));
    }
    let params = WatchParams::default();
    server.fail(Verb::Watch, Fault::CutInEvent(1));
    let mut events = watch(&api, &since, &params).await;
    assert_eq!(next(&mut events).await, "ADDED one");
    let cut = next(&mut events).await;
    assert!(cut == "end" || cut.starts_with("error"), "{cut}");

    server.fail(Verb::Watch, Fault::End(1));
    let mut events = watch(&api, &since, &params).await;
    assert_eq!(
        (next(&mut events).await, next(&mut events).await),
        ("ADDED one".to_owned(), "end".to_owned())
    );

    server.hold();
    let mut events = watch(&api, &since, &params).await;
    server.watched_by(1).await;
    server.release_reversed();
    assert_eq!(
        (next(&mut events).await, next(&mut events).await),
        ("ADDED two".to_owned(), "ADDED one".to_owned())
    );
    server.close_watches();
    assert_eq!(next(&mut events).await, "end");

    let mut events = watch(&api, &since, &params).await;
    assert_eq!(next(&mut events).await, "ADDED one");
    server.cut_connections();
    server.watched_by(0).await;
}

#[tokio::test]
async fn faults_hit_the_requests_they_are_meant_for_and_are_counted() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    server.fail(Verb::List, Fault::Status(500));
    server.fail(Verb::List, Fault::Drop);
    server.fail(Verb::List, Fault::Garbage);
    server.fail(Verb::List, Fault::TooManyRequests(1));
    let list = async || api.list(&ListParams::default()).await;
    assert_eq!(code(list().await), (500, "InternalError".to_owned()));
    assert!(list().await.is_err());
    assert!(list().await.is_err());
    let start = Instant::now();
    list().await.expect("the client repeats the request after Retry-After");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests(Verb::List), 5);

    server.fail(Verb::Create, Fault::DropAfter);
    let in_a: Api<Pod> = Api::namespaced(server.client(), "a");
    let made = in_a.create(&PostParams::default(), &typed(pod("a", "one", "n1"))).await;
    assert!(made.is_err() && server.object("pods", "a", "one").is_some());

    server.refuse();
    assert!(list().await.is_err());
    server.accept().await;
    list().await.expect("it is back");
}

#[tokio::test]
async fn writes_meet_the_rules_of_a_real_server() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::namespaced(server.client(), "a");
    let mut mirror = pod("a", "one", "n1");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h1" });
    let post = PostParams::default();
    let made = api.create(&post, &typed(mirror.clone())).await.unwrap();
    assert_eq!(code(api.create(&post, &typed(mirror)).await), (409, "AlreadyExists".to_owned()));

    let mut changed = made.clone();
    changed
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("kubernetes.io/config.mirror".into(), "h2".into());
    assert_eq!(code(api.replace("one", &post, &changed).await), (422, "Invalid".to_owned()));

    let mut events =
        watch(&api, made.metadata.resource_version.as_deref().unwrap(), &WatchParams::default()).await;
    let other = DeleteParams::default()
        .preconditions(Preconditions { uid: Some("other".into()), ..Default::default() });
    assert_eq!(code(api.delete("one", &other).await), (409, "Conflict".to_owned()));
    let terminating = api.delete("one", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(terminating.metadata.deletion_timestamp.is_some());
    let now = DeleteParams::default()
        .grace_period(0)
        .preconditions(Preconditions { uid: made.metadata.uid, ..Default::default() });
    api.delete("one", &now).await.unwrap();
    assert_eq!(
        (next(&mut events).await, next(&mut events).await),
        ("MODIFIED one".to_owned(), "DELETED one".to_owned())
    );
    assert_eq!(code(api.delete("one", &now).await), (404, "NotFound".to_owned()));
    assert_eq!(code(api.get("one").await), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn a_node_may_do_only_what_node_restriction_lets_it() {
    let server = ApiServer::start().await;
    let uid = server.put("nodes", &json!({ "metadata": { "name": "n1" } })).uid().to_owned();
    server.restrict_to_node("n1");
    let nodes: Api<Node> = Api::all(server.client());
    assert_eq!(nodes.get("n1").await.unwrap().metadata.uid.unwrap(), uid);
    let all: Api<Pod> = Api::all(server.client());
    assert_eq!(code(all.list(&ListParams::default()).await).0, 403);
    all.list(&ListParams::default().fields("spec.nodeName=n1")).await.expect("its own pods");

    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true });
    let mut good = pod("a", "one", "n1");
    good["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h1" });
    good["metadata"]["ownerReferences"] = json!([owner]);
    let spoilt = |pointer: &str, value: Value| {
        let mut pod = good.clone();
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    };
    let owned_by = |change: &str, value: Value| {
        let mut owner = owner.clone();
        owner[change] = value;
        spoilt("/metadata/ownerReferences", json!([owner]))
    };
    let api: Api<Pod> = Api::namespaced(server.client(), "a");
    let mut with_secret = good.clone();
    with_secret["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "s" } }]);
    for (why, pod) in [
        ("no annotation", spoilt("/metadata/annotations", json!({}))),
        ("another node", spoilt("/spec/nodeName", json!("n2"))),
        ("no owner", spoilt("/metadata/ownerReferences", json!([]))),
        ("two owners", spoilt("/metadata/ownerReferences", json!([owner, owner]))),
        ("another UID", owned_by("uid", json!("other"))),
        ("another name", owned_by("name", json!("n2"))),
        ("no controller", owned_by("controller", json!(false))),
        ("blocks", owned_by("blockOwnerDeletion", json!(true))),
        ("a secret", with_secret),
    ] {
        let refused = api.create(&PostParams::default(), &typed(pod)).await;
        assert_eq!(code(refused).0, 403, "{why}");
    }
    api.create(&PostParams::default(), &typed(good)).await.expect("a mirror pod of its own");
    server.put("pods", &pod("a", "foreign", "n2"));
    assert_eq!(code(api.delete("foreign", &DeleteParams::default()).await).0, 403);
}

#[tokio::test]
async fn a_request_for_metadata_gets_only_metadata() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("a", "one", "n1"));
    let api: Api<PartialObjectMeta<Pod>> = Api::all(server.client());
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].types.as_ref().unwrap().kind, "PartialObjectMetadata");
    assert_eq!(list.items[0].metadata.name.as_deref(), Some("one"));
    let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(partial))) = events.next().await else { panic!("the pod comes first") };
    assert_eq!(partial.types.unwrap().kind, "PartialObjectMetadata");
}

#[tokio::test]
async fn a_list_of_any_version_may_be_stale_one_of_a_version_is_not_older_and_one_of_the_future_is_refused() {
    let server = ApiServer::start().await;
    server.wait_for_versions(Duration::from_millis(50));
    let api: Api<Pod> = Api::all(server.client());
    let old = server.put("pods", &pod("a", "one", "n1")).version;
    server.fall_behind();
    let new = server.put("pods", &pod("a", "two", "n1")).version;
    let list = async |params: ListParams| api.list(&params).await;
    let version = |list: &kube::core::ObjectList<Pod>| list.metadata.resource_version.clone().unwrap();
    let any = list(ListParams::default().at("0")).await.unwrap();
    assert_eq!((names(&any.items), version(&any)), (vec!["one"], old.to_string()));
    for fresh in [ListParams::default(), ListParams::default().at(&new.to_string())] {
        assert_eq!(names(&list(fresh).await.unwrap().items), ["one", "two"]);
    }
    let of_a: Api<Pod> = Api::namespaced(server.client(), "a");
    let any = kube::api::GetParams::any();
    assert_eq!(code(of_a.get_with("two", &any).await), (404, "NotFound".to_owned()));
    server.catch_up();
    of_a.get_with("two", &any).await.expect("it exists now");

    let exact = ListParams::default().at(&old.to_string()).matching(kube::api::VersionMatch::Exact);
    assert_eq!(names(&list(exact.clone()).await.unwrap().items), ["one"]);
    assert_eq!(
        names(&list(ListParams::default().at(&old.to_string()).limit(5)).await.unwrap().items),
        ["one"]
    );
    // By hand: kube omits the version.
    let request = http_get("/api/v1/pods?resourceVersion=0&limit=1");
    let all: Value = server.client().request(request).await.unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "no limit at 0");
    server.compact();
    assert_eq!(code(list(exact).await), (410, "Expired".to_owned()));

    let future = ListParams::default().at(&(new + 1).to_string());
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    let impatient: Api<Pod> = Api::all(kube::Client::try_from(config).unwrap());
    let refused = impatient.list(&future).await;
    let Err(kube::Error::Api(status)) = &refused else { panic!("not refused: {refused:?}") };
    assert_eq!(status.details.as_ref().unwrap().causes[0].reason, "ResourceVersionTooLarge");
    assert_eq!(code(refused), (504, "Timeout".to_owned()));
    server.wait_for_versions(DEADLINE);
    let coming = async {
        server.seen(Verb::List, server.requests(Verb::List) + 1).await;
        server.put("pods", &pod("a", "three", "n1"));
    };
    let (came, ()) = tokio::join!(list(future), coming);
    assert_eq!(came.unwrap().items.len(), 3, "it was waited for");
}

#[tokio::test]
async fn requests_that_a_real_server_refuses_are_refused() {
    let server = ApiServer::start().await;
    let all: Api<Pod> = Api::all(server.client());
    let list = async |params: ListParams| code(all.list(&params).await);
    assert_eq!(list(ListParams::default().fields("spec.image=i")).await, (400, "BadRequest".to_owned()));
    assert_eq!(list(ListParams::default().at("one")).await, (400, "BadRequest".to_owned()));
    let watch = async |version: &str| code(all.watch(&WatchParams::default(), version).await.map(|_| ()));
    assert_eq!(watch("one").await, (400, "BadRequest".to_owned()));
    let raw = async |path: &str| {
        let request = http_get(path);
        code(server.client().request::<Value>(request).await).0
    };
    assert_eq!(raw("/api/v1/pots").await, 404);
    assert_eq!(raw("/apis/apps/v1/deployments").await, 404);
    assert_eq!(raw("/api/v1/pods?watch=true&sendInitialEvents=true").await, 422);

    let in_a: Api<Pod> = Api::namespaced(server.client(), "a");
    let post = PostParams { field_manager: Some("me".to_owned()), ..PostParams::default() };
    let foreign = in_a.create(&post, &typed(pod("b", "one", "n1"))).await;
    assert_eq!(code(foreign), (400, "BadRequest".to_owned()));
    let mut versioned = pod("a", "one", "n1");
    versioned["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(code(in_a.create(&post, &typed(versioned)).await).0, 500);
    let made = in_a.create(&post, &typed(pod("a", "one", "n1"))).await.unwrap();
    let managed = made.metadata.managed_fields.unwrap();
    assert_eq!(managed[0].manager.as_deref(), Some("me"));

    let written: Vec<_> = server.written().iter().map(|write| (write.key.name.clone(), write.code)).collect();
    assert_eq!(written, [400, 500, 201].map(|code| ("one".to_owned(), code)), "refused writes are recorded");
}

fn http_get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

#[tokio::test]
async fn an_object_leaving_a_selection_is_reported_as_last_matched_with_the_version_of_leaving() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    let since = server.put("pods", &pod("a", "one", "n1")).version.to_string();
    let mut events = watch(&api, &since, &WatchParams::default().fields("spec.nodeName=n1")).await;
    let left = server.put("pods", &pod("a", "one", "n2")).version.to_string();
    let Some(Ok(WatchEvent::Deleted(pod))) = events.next().await else { panic!("it left") };
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(pod.metadata.resource_version, Some(left));
}

#[tokio::test]
async fn an_open_watch_still_receives_compacted_changes() {
    let server = ApiServer::start().await;
    let api: Api<Pod> = Api::all(server.client());
    let since = server.put("pods", &pod("a", "one", "n1")).version.to_string();
    let mut events = watch(&api, &since, &WatchParams::default()).await;
    server.watched_by(1).await;
    server.hold();
    server.put("pods", &pod("a", "two", "n1"));
    server.compact();
    server.put("pods", &pod("a", "three", "n1"));
    server.compact();
    server.release();
    assert_eq!(next(&mut events).await, "ADDED two");
    assert_eq!(next(&mut events).await, "ADDED three");
    let mut late = watch(&api, &since, &WatchParams::default()).await;
    assert_eq!(next(&mut late).await, "ERROR 410");
}

#[tokio::test]
async fn bookmarks_come_by_the_clock_and_before_the_end_that_the_client_asked_for() {
    let server = ApiServer::start().await;
    server.bookmark_every(Duration::from_millis(300));
    let api: Api<Pod> = Api::all(server.client());
    let since = server.put("pods", &pod("a", "one", "n1")).version.to_string();
    let mut events = watch(&api, &since, &WatchParams::default().timeout(1)).await;
    let mut received = Vec::new();
    while received.last().is_none_or(|last| last != "end") {
        received.push(next(&mut events).await);
    }
    assert!(
        received.len() > 2 && received[..received.len() - 1].iter().all(|event| event == "BOOKMARK {}"),
        "{received:?}"
    );
    let mut quiet =
        watch(&api, &since, &WatchParams { bookmarks: false, ..WatchParams::default().timeout(1) }).await;
    assert_eq!(next(&mut quiet).await, "end");
}

#[tokio::test]
async fn a_watch_from_the_future_is_silent_and_a_restored_server_has_a_past() {
    let server = ApiServer::start().await;
    server.bookmark_every(Duration::from_millis(20));
    let api: Api<Pod> = Api::all(server.client());
    let backup = server.backup();
    server.put("pods", &pod("a", "lost", "n1"));
    let lost = server.put("pods", &pod("a", "lost-too", "n1"));
    let mut open = watch(&api, "0", &WatchParams::default()).await;
    assert_eq!(next(&mut open).await, "ADDED lost");
    server.restore(&backup);
    assert_eq!(server.objects("pods").len(), 0);
    let mut cut = next(&mut open).await;
    while cut.starts_with("ADDED") || cut.starts_with("BOOKMARK") {
        cut = next(&mut open).await;
    }
    assert!(cut == "end" || cut.starts_with("error"), "{cut}");

    let mut events = watch(&api, &lost.version.to_string(), &WatchParams::default()).await;
    let again = server.put("pods", &pod("a", "again", "n1"));
    assert!(again.version < lost.version && again.uid() != lost.uid());
    let silence = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
    assert!(silence.is_err(), "no event, no bookmark, no error: {silence:?}");
    server.jump(10);
    server.put("pods", &pod("a", "late", "n1"));
    while next(&mut events).await != "ADDED late" {}

    let initial = WatchParams::default().initial_events();
    server.wait_for_versions(Duration::from_millis(20));
    let mut streamed = watch(&api, "999999", &initial).await;
    assert_eq!(next(&mut streamed).await, "ERROR 504");
}

#[tokio::test]
async fn a_node_may_name_no_object_in_a_mirror_pod_and_read_only_its_own_objects() {
    let server = ApiServer::start().await;
    server.restrict_to_node("n1");
    let api: Api<Pod> = Api::namespaced(server.client(), "a");
    let mut good = pod("a", "one", "n1");
    good["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h1" });
    let owner = |uid: &str| json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true }]);
    good["metadata"]["ownerReferences"] = owner("gone");
    let create = async |pod: Value| api.create(&PostParams::default(), &typed(pod)).await;
    assert_eq!(code(create(good.clone()).await), (404, "NotFound".to_owned()), "there is no such node");
    let uid = server.put("nodes", &json!({ "metadata": { "name": "n1" } })).uid().to_owned();
    good["metadata"]["ownerReferences"] = owner(&uid);

    let volume = |volume: Value| json!({ "volumes": [volume] });
    let container = |container: Value| json!({ "containers": [container] });
    for spec in [
        json!({ "imagePullSecrets": [{ "name": "s" }] }),
        json!({ "serviceAccountName": "robot" }),
        json!({ "initContainers": [{ "name": "i", "envFrom": [{ "secretRef": { "name": "s" } }] }] }),
        container(json!({ "name": "c", "envFrom": [{ "configMapRef": { "name": "m" } }] })),
        container(
            json!({ "name": "c", "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
        ),
        container(
            json!({ "name": "c", "env": [{ "name": "E", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k" } } }] }),
        ),
        volume(json!({ "name": "v", "secret": { "secretName": "s" } })),
        volume(json!({ "name": "v", "configMap": { "name": "m" } })),
        volume(json!({ "name": "v", "projected": { "sources": [{ "secret": { "name": "s" } }] } })),
        volume(json!({ "name": "v", "projected": { "sources": [{ "configMap": { "name": "m" } }] } })),
        volume(json!({ "name": "v", "csi": { "driver": "d", "nodePublishSecretRef": { "name": "s" } } })),
        volume(json!({ "name": "v", "azureFile": { "secretName": "s", "shareName": "x" } })),
        volume(json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } })),
    ] {
        let mut named = good.clone();
        for (field, value) in spec.as_object().unwrap() {
            named["spec"][field] = value.clone();
        }
        assert_eq!(code(create(named).await).0, 403, "{spec}");
    }
    let made = create(good).await.unwrap();
    api.get("one").await.expect("its own pod");
    server.put("pods", &pod("a", "foreign", "n2"));
    for name in ["foreign", "none"] {
        assert_eq!(code(api.get(name).await).0, 403, "{name}: no relationship found");
    }
    assert_eq!(code(api.replace("one", &PostParams::default(), &made).await).0, 403);
    let nodes: Api<Node> = Api::all(server.client());
    assert_eq!(code(nodes.get("n2").await).0, 403);

    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(server.client(), "a");
    server.put("secrets", &json!({ "metadata": { "namespace": "a", "name": "s" } }));
    assert_eq!(code(secrets.get("s").await).0, 403);
    let mut user = pod("a", "user", "n1");
    user["spec"]["imagePullSecrets"] = json!([{ "name": "s" }]);
    server.put("pods", &user);
    secrets.get("s").await.expect("a pod of the node names it");
    secrets.list(&ListParams::default().fields("metadata.name=s")).await.expect("by its name");
    assert_eq!(code(secrets.list(&ListParams::default()).await).0, 403);
}

#[tokio::test]
async fn a_proxy_falls_silent_for_the_connections_that_are_open_and_for_no_other() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("a", "one", "n1"));
    let proxy = Proxy::before(server.port()).await;
    let client = || {
        let url = format!("http://127.0.0.1:{}", proxy.port()).parse().unwrap();
        kube::Client::try_from(kube::Config::new(url)).unwrap()
    };
    for forwards in [
        Forwards::NOTHING,
        Forwards { to_client: true, ..Forwards::NOTHING },
        Forwards { to_server: true, ..Forwards::NOTHING },
    ] {
        let api: Api<Pod> = Api::all(client());
        let mut events = watch(&api, "0", &WatchParams::default()).await;
        assert_eq!(next(&mut events).await, "ADDED one");
        proxy.silence(forwards);
        server.put("pods", &pod("a", "one", "n1"));
        let received = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
        assert_eq!(received.is_ok(), forwards.to_client, "{forwards:?}");
        let later: Api<Pod> = Api::all(client());
        later.list(&ListParams::default()).await.expect("another connection");
    }
}
