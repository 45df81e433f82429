//! Watches: the version they start from, their events, and how they end.

use super::*;

/// An event's type, and its object's name and version.
fn seen(event: &Value) -> (String, String, u64) {
    let object = &event["object"];
    (
        event["type"].as_str().unwrap().to_owned(),
        object["metadata"]["name"].as_str().unwrap().to_owned(),
        version(object),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_without_a_version_begins_with_the_current_pods_and_continues_with_events() {
    let world = World::new().await;
    world.server.put_all("pods", ["b", "a"].map(|name| pod("shop", name, &json!({}))));
    world.until("", 2);
    for query in ["", "resourceVersion=0", "resourceVersion="] {
        let mut watch = world.watch(query);
        let events = watch.take(2);
        let versions: Vec<_> = events.iter().map(|event| version(&event["object"])).collect();
        assert!(versions.is_sorted(), "a disconnected client resumes from the last one: {versions:?}");
        assert!(events.iter().all(|event| event["type"] == "ADDED" && event["object"]["kind"] == "Pod"));
        world.server.put("pods", &pod("shop", "a", &json!({ "query": query.len().to_string() })));
        let event = watch.next().unwrap();
        assert_eq!(summary(std::slice::from_ref(&event)), [("MODIFIED", "a")]);
        assert!(version(&event["object"]) > versions[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initial_events_end_with_a_bookmark_if_the_client_allows_bookmarks() {
    let world = World::new().await;
    world.server.put_all("pods", ["a", "b"].map(|name| pod("shop", name, &json!({ "n": name }))));
    let list = world.until("", 2);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for query in [
        format!("{initial}&allowWatchBookmarks=true"),
        format!("{initial}&allowWatchBookmarks=true&resourceVersion=0"),
        format!("{initial}&allowWatchBookmarks=true&resourceVersion={}", version(&list)),
        format!("{initial}&allowWatchBookmarks=true&resourceVersion=1"),
        "allowWatchBookmarks=true".to_owned(),
    ] {
        let mut watch = world.watch(&query);
        let events = watch.take(3);
        assert_eq!(summary(&events), [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")], "{query}");
        let bookmark = &events[2]["object"];
        assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("Pod"), &json!("v1")));
        assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(version(bookmark), version(&list));
    }
    // A watch that selects nothing ends, too.
    let mut none = world.watch(&format!("{initial}&allowWatchBookmarks=true&labelSelector=absent"));
    assert_eq!(summary(&none.take(1)), [("BOOKMARK", "")]);
    // Without bookmarks and without initial events.
    let mut plain = world.watch(initial);
    let mut silent =
        world.watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    world.server.put("pods", &pod("shop", "c", &json!({})));
    assert_eq!(summary(&plain.take(3)), [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]);
    assert_eq!(summary(&silent.take(1)), [("ADDED", "c")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_cut_in_the_middle_of_a_publication_continues_with_the_next_event() {
    let world = World::new().await;
    let start = version(&world.list(""));
    world.server.hold();
    world.server.put_all("pods", (0..64).map(|n| pod("shop", &format!("web-{n}"), &json!({}))));
    world.server.release();
    world.until("", 64);
    let mut whole = world.watch(&format!("resourceVersion={start}"));
    let whole: Vec<_> = whole.take(64).iter().map(seen).collect();
    let versions: Vec<_> = whole.iter().map(|(_, _, version)| *version).collect();
    assert_eq!(versions, (start + 1..=start + 64).collect::<Vec<_>>(), "unique and growing");
    for cut in [1, 10, 63] {
        let mut first = world.watch(&format!("resourceVersion={start}"));
        let mut events: Vec<_> = first.take(cut).iter().map(seen).collect();
        drop(first);
        let mut second = world.watch(&format!("resourceVersion={}", events[cut - 1].2));
        events.extend(second.take(64 - cut).iter().map(seen));
        assert_eq!(events, whole, "cut after {cut}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_entering_a_selection_is_added_and_one_leaving_it_is_deleted_as_last_seen() {
    let world = World::new().await;
    let start = version(&world.list(""));
    let mut watch = world.watch(&format!("labelSelector=app%3Dweb&resourceVersion={start}"));
    let mut all = world.watch(&format!("resourceVersion={start}"));
    let mut versions = Vec::new();
    for (labels, what) in [
        (Some(json!({ "app": "db" })), None),
        (Some(json!({ "app": "web", "step": "1" })), Some("ADDED")),
        (Some(json!({ "app": "web", "step": "2" })), Some("MODIFIED")),
        (Some(json!({ "app": "db" })), Some("DELETED")),
        (Some(json!({ "app": "web", "step": "3" })), Some("ADDED")),
        (None, Some("DELETED")),
    ] {
        match &labels {
            Some(labels) => drop(world.server.put("pods", &pod("shop", "web", labels))),
            None => drop(world.server.remove("pods", "shop", "web")),
        }
        let of_all = all.next().unwrap();
        versions.push(version(&of_all["object"]));
        let Some(what) = what else { continue };
        let event = watch.next().unwrap();
        assert_eq!(event["type"], what);
        assert_eq!(event["object"]["metadata"]["labels"]["app"], "web", "as it last matched the selection");
        assert_eq!(version(&event["object"]), version(&of_all["object"]), "with the version of the event");
    }
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_another_uid_under_the_same_name_is_a_removal_and_an_addition() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "web", &json!({})));
    let old = world.until("", 1)["items"][0]["metadata"]["uid"].clone();
    let mut watch = world.watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    world.server.hold();
    world.server.remove("pods", "shop", "web");
    world.server.put("pods", &pod("shop", "web", &json!({})));
    world.server.release();
    let events = watch.take(2);
    assert_eq!(summary(&events), [("DELETED", "web"), ("ADDED", "web")]);
    assert_eq!(events[0]["object"]["metadata"]["uid"], old);
    assert_ne!(events[1]["object"]["metadata"]["uid"], old);
    assert!(version(&events[0]["object"]) < version(&events[1]["object"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_too_old_of_another_run_or_of_the_future_is_410_at_once() {
    let world = World::new().await;
    let first = version(&world.list(""));
    // More events than are stored.
    world.server.put_all("pods", (0..4200).map(|n| pod("shop", &format!("web-{n:04}"), &json!({}))));
    let page = world.until("", 4200);
    let now = version(&page);
    let other_run = {
        let agent = World::agent(&world.server, &world.directory, "");
        version(&agent.get("/api/v1/pods?limit=1").json())
    };
    for (what, of, is_gone) in [
        ("too old", first, true),
        ("of an earlier run", first - 1_000_000, true),
        ("of a later run", other_run, true),
        ("one too far", now + 1, true),
        ("just kept", now - 4096, false),
        ("the latest", now, false),
    ] {
        // An error ends the watch at once. One that is late for its time shows none.
        let seconds = if is_gone { 30 } else { 1 };
        let mut watch = world.watch(&format!("resourceVersion={of}&timeoutSeconds={seconds}"));
        let event = watch.next();
        if is_gone {
            let event = event.expect(what);
            assert_eq!(event["type"], "ERROR", "{what}");
            let status = &event["object"];
            let status = [&status["kind"], &status["code"], &status["reason"]];
            assert_eq!(json!(status), json!(["Status", 410, "Expired"]));
            assert_eq!(watch.next(), None, "{what}");
        } else {
            assert!(event.is_none_or(|event| event["type"] == "ADDED"), "{what}");
        }
    }
    for (query, code) in [
        (format!("resourceVersion={}", now + 1), 410),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), 410),
        (format!("resourceVersion={first}&limit=1"), 200),
        (format!("resourceVersion={first}"), 200),
        (
            format!(
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={first}&timeoutSeconds=1"
            ),
            200,
        ),
    ] {
        let answer = world.agent.get(&format!("/api/v1/pods?{query}"));
        assert_eq!(answer.code, code, "{query}");
        if code == 410 {
            assert_eq!(answer.json::<Value>()["reason"], "Expired");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_time_is_over_with_a_bookmark() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "a", &json!({})));
    let list = world.until("", 1);
    let from = format!("resourceVersion={}", version(&list));
    let mut watch =
        world.watch(&format!("{from}&timeoutSeconds=1&allowWatchBookmarks=true&labelSelector=absent"));
    world.server.put("pods", &pod("shop", "b", &json!({})));
    let now = version(&world.until("", 2));
    let bookmark = watch.next().unwrap();
    // Its version passes events that it does not select.
    assert_eq!(json!([bookmark["type"], version(&bookmark["object"])]), json!(["BOOKMARK", now]));
    assert_eq!(bookmark["object"]["metadata"]["annotations"], Value::Null);
    assert_eq!(watch.next(), None);
    assert_eq!(world.watch(&format!("{from}&timeoutSeconds=-5")).next(), None);
    // Zero counts as absent: the watch continues.
    let mut endless = world.watch(&format!("{from}&timeoutSeconds=0"));
    assert_eq!(summary(&endless.take(1)), [("ADDED", "b")]);
    world.server.put("pods", &pod("shop", "c", &json!({})));
    assert_eq!(summary(&endless.take(1)), [("ADDED", "c")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sends_events_in_the_requested_form() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "a", &json!({})));
    world.until("", 1);
    let open = |path: &str, headers: &str| Watch::open(world.agent.address, path, headers).unwrap();
    let mut partial = open("/api/v1/pods?watch=1", PARTIAL);
    let mut table = open("/api/v1/pods?watch=1", TABLE);
    let mut rows = open("/pods?watch=true&labelSelector=!absent", TABLE);
    let mut of_namespace = open("/api/v1/namespaces/other/pods?watch=1", "");
    let mut firsts = Vec::new();
    for watch in [&mut partial, &mut table, &mut rows] {
        firsts.push(watch.next().unwrap());
    }
    let first = &firsts[0]["object"];
    assert_eq!(json!([first["kind"], first["spec"]]), json!(["PartialObjectMetadata", null]));
    // As the API server prints pods.
    assert_eq!(firsts[1]["object"]["columnDefinitions"].as_array().unwrap().len(), 9);
    assert_eq!(firsts[1]["object"]["rows"][0]["object"]["metadata"]["name"], "a");
    assert_eq!(firsts[2]["object"]["rows"][0]["cells"][1], "a");
    world.server.put("pods", &pod("shop", "b", &json!({})));
    world.server.put("pods", &pod("other", "c", &json!({})));
    for watch in [&mut table, &mut rows] {
        let event = watch.next().unwrap();
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
        assert_eq!(event["object"]["columnDefinitions"], Value::Null, "in the first event alone");
        assert_eq!(event["object"]["rows"].as_array().unwrap().len(), 1);
    }
    assert_eq!(summary(&of_namespace.take(1)), [("ADDED", "c")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_when_the_agent_shuts_down() {
    let mut world = World::new().await;
    let mut watch = world.watch("");
    world.agent.signal("TERM");
    assert_eq!(watch.next(), None);
    assert_eq!(world.agent.wait(), Some(0));
}
