use super::*;

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
    server.say_gone();
    let refused = api.watch(&WatchParams::default(), &old).await.map(|_| ());
    assert_eq!(code(refused), (410, "Gone".to_owned()));
    server.fail(Verb::List, Fault::Status(410));
    assert_eq!(code(api.list(&ListParams::default()).await), (410, "Gone".to_owned()));
    server.fail(Verb::Watch, Fault::ErrorEvent(410));
    let mut planted = watch(&api, "0", &WatchParams::default()).await;
    let Some(Ok(WatchEvent::Error(status))) = planted.next().await else { panic!("an error") };
    assert_eq!((status.code, &*status.reason), (410, "Gone"));
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
async fn bookmarks_come_by_the_clock_and_two_seconds_before_the_end_but_not_at_the_end_of_a_short_watch() {
    let server = ApiServer::start().await;
    server.bookmark_every(Duration::from_millis(50));
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
    server.bookmark_every(DEADLINE);
    let mut short = watch(&api, &since, &WatchParams::default().timeout(1)).await;
    assert_eq!(next(&mut short).await, "end");
    let mut long = watch(&api, &since, &WatchParams::default().timeout(3)).await;
    assert_eq!((&*next(&mut long).await, &*next(&mut long).await), ("BOOKMARK {}", "end"));
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
async fn without_progress_notices_a_bookmark_comes_only_after_a_change_of_the_kind() {
    let server = ApiServer::start().await;
    server.without_progress_notices();
    server.bookmark_every(Duration::from_millis(20));
    let api: Api<Pod> = Api::all(server.client());
    server.put("pods", &pod("a", "one", "n1"));
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    let since = server.put("nodes", &node).version.to_string();
    let of_n1 = WatchParams::default().fields("spec.nodeName=n1");
    let mut events = watch(&api, &since, &of_n1).await;
    server.put("nodes", &node);
    let silence = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
    assert!(silence.is_err(), "no bookmark for another kind's change: {silence:?}");
    let changed = server.put("pods", &pod("a", "elsewhere", "n2")).version.to_string();
    let Some(Ok(WatchEvent::Bookmark(bookmark))) = events.next().await else { panic!("a bookmark") };
    assert_eq!(bookmark.metadata.resource_version, changed);
    // From there on it is silent again, but for a progress notice that comes.
    let mut quiet = watch(&api, &changed, &of_n1.timeout(3)).await;
    let silence = tokio::time::timeout(Duration::from_millis(200), quiet.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    server.send_bookmarks();
    assert_eq!((&*next(&mut quiet).await, &*next(&mut quiet).await), ("BOOKMARK {}", "end"));
}
