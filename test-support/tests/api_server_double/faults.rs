use super::*;

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
    assert_eq!(code(list().await).0, 429);
    assert_eq!(server.requests(Verb::List), 4);
    server.fail(Verb::List, Fault::TooManyRequests(7));
    let (refused, headers, body) = get(&server, "/api/v1/pods", &[]).await;
    assert_eq!((refused, &headers["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(body, "Too many requests, please try again later.\n", "text, as from priority and fairness");

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
        // Only a proxy that is silent lets the time pass.
        let patience = if forwards.to_client { DEADLINE } else { Duration::from_millis(100) };
        let received = tokio::time::timeout(patience, events.next()).await;
        assert_eq!(received.is_ok(), forwards.to_client, "{forwards:?}");
        let later: Api<Pod> = Api::all(client());
        later.list(&ListParams::default()).await.expect("another connection");
    }
}
