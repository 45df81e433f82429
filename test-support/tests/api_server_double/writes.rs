use super::*;

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

    let same = api.replace("one", &post, &made).await.unwrap();
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version, "it changed nothing");

    let mut events =
        watch(&api, made.metadata.resource_version.as_deref().unwrap(), &WatchParams::default()).await;
    for other in [
        Preconditions { uid: Some("other".into()), resource_version: None },
        Preconditions { uid: None, resource_version: Some("1".into()) },
    ] {
        let other = DeleteParams::default().preconditions(other);
        assert_eq!(code(api.delete("one", &other).await), (409, "Conflict".to_owned()));
    }
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
