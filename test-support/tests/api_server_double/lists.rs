use super::*;

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
    for (labels, selected) in [
        ("app!=one", &["three", "four"][..]),
        ("app in (one,four),app", &["one", "four"]),
        ("app notin (one), !gone", &["three", "four"]),
        ("!app", &[]),
    ] {
        assert_eq!(names(&list(on_n1.clone().labels(labels)).await.items), selected, "{labels}");
    }
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
    let (gone, status) = get_json(&server, &format!("/api/v1/pods?limit=2&continue={token}")).await;
    assert_eq!((gone, &status["reason"]), (410, &json!("Expired")));
    let fresh = status["metadata"]["continue"].as_str().expect("the list can go on");
    let rest = list(ListParams::default().limit(2).continue_token(fresh)).await;
    assert_eq!(names(&rest.items), ["two", "four"], "behind the first page, at the latest version");
    assert_eq!(rest.metadata.remaining_item_count, Some(1));
    let rest = rest.metadata.continue_.unwrap();
    assert_eq!(names(&list(ListParams::default().continue_token(&rest)).await.items), ["late"]);
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
    let (_, all) = get_json(&server, "/api/v1/pods?resourceVersion=0&limit=1").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "no limit at 0");
    server.compact();
    assert_eq!(code(list(exact).await), (410, "Expired".to_owned()));

    let future = ListParams::default().at(&(new + 1).to_string());
    let path = format!("/api/v1/pods?resourceVersion={}", new + 1);
    let (refused, headers, status) = get(&server, &path, &[]).await;
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!((refused, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(
        (&headers["retry-after"], &status["details"]["retryAfterSeconds"]),
        (&"1".parse().unwrap(), &json!(1))
    );
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
    let raw = async |path: &str| get_json(&server, path).await.0;
    assert_eq!(raw("/api/v1/pots").await, 404);
    assert_eq!(raw("/apis/apps/v1/controllerrevisions").await, 404);
    assert_eq!(raw("/api/v1/pods?watch=true&sendInitialEvents=true").await, 422);
    assert_eq!(raw("/api/v1/pods?watch=true&resourceVersionMatch=NotOlderThan").await, 422);
    assert_eq!(raw("/api/v1/pods?sendInitialEvents=true").await, 422);
    assert_eq!(raw("/api/v1/pods?resourceVersion=0&resourceVersionMatch=Exact").await, 422);
    assert_eq!(raw("/api/v1/pods?resourceVersionMatch=NotOlderThan").await, 422);
    assert_eq!(raw("/api/v1/pods?fieldSelector=spec.nodeName").await, 400);
    assert_eq!(raw("/api/v1/pods?labelSelector=app%20within%20(a)").await, 400);
    assert_eq!(get(&server, "/api/v1/pods", &[("accept", "application/yaml")]).await.0, 406);

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
