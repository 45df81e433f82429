//! Pods that are gone, and lookups for the time of an event.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pod_is_found_by_each_of_its_identities_and_says_when_it_was_removed() {
    let setup = Setup::with("--keep-removed 1h").await;
    setup.process("4711", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    setup.process("4712", &format!("0::/../cri-containerd-{}.scope\n", id('b')));
    let forms = forms();
    let queries: Vec<_> = forms.iter().map(|(query, ..)| &**query).collect();
    let before = setup.get(&queries);
    let start = Timestamp::now();
    setup.server.remove("pods", "shop", "web-0").expect("a known pod");
    setup.agent.lacks("/pods/shop/web-0");

    let answers = setup.get(&queries);
    for (answer, before) in answers.iter().zip(before) {
        let mut answer = answer.clone();
        let removed = answer.as_object_mut().unwrap().remove("removed").expect("it was removed");
        let removed: Timestamp = removed.as_str().unwrap().parse().expect("RFC 3339");
        let since = removed.duration_since(start).as_secs();
        assert!(
            (-1..=i64::try_from(PATIENCE.as_secs()).unwrap()).contains(&since),
            "{since} s after the removal"
        );
        assert_eq!(answer, before, "all else is as before");
    }
    let output = setup.agent.ask(&["whois", WEB]);
    let table = stdout(&output);
    assert!(output.status.success() && table.contains("UID, removed 20"), "{table}");

    let output = setup.agent.ask(&["get", WEB]);
    assert!(
        output.status.success() && stderr(&output).contains("the pod was removed at 20"),
        "{}",
        stderr(&output)
    );

    // One pod is marked. Nothing else shows it.
    let pod: Value = setup.agent.get(&format!("/pods/{WEB}")).json();
    let time = pod["metadata"]["annotations"]["pod-index/removed"].as_str().expect("the annotation");
    assert!(time.parse::<Timestamp>().is_ok(), "{time}");
    for list in ["/pods", "/api/v1/pods", "/api/v1/namespaces/shop/pods"] {
        assert!(!setup.agent.get(list).body.contains("web-0"), "{list}");
    }
    assert_eq!(setup.agent.get("/api/v1/namespaces/shop/pods/web-0").code, 404);
    let metrics = setup.agent.get("/metrics").body;
    assert_eq!(value(&metrics, "pod_index_removed_pods"), 1);

    // A query that waits takes the removed pod only at the end of its time.
    let began = Instant::now();
    let waited = lines(&setup.agent.get("/whois?q=10.0.0.7&wait=300ms").body).remove(0);
    assert_eq!((&waited["podUID"], waited["removed"].is_string()), (&json!(WEB), true));
    assert!(began.elapsed() >= Duration::from_millis(300));
    // Not by what no other pod can have, nor for a time.
    for query in [WEB, &id('a'), &format!("10.0.0.7&at={}", Timestamp::now())] {
        let began = Instant::now();
        setup.agent.get(&format!("/whois?q={query}&wait=10s"));
        assert!(began.elapsed() < Duration::from_secs(9), "{query}");
    }

    // Another pod takes the name and the IP. Queries that wait do not end with the removed one.
    let mut next = pod_of("u-2");
    next["status"]["podIPs"] = json!([{ "ip": "10.0.0.7" }]);
    let found = |metrics: &str| value(metrics, r#"pod_index_lookups_total{outcome="found"}"#);
    let before = found(&setup.agent.get("/metrics").body);
    let output = thread::scope(|scope| {
        let answer = scope.spawn(|| setup.agent.get("/whois?q=10.0.0.7&q=shop/web-0&wait=10s").body);
        scope.spawn(|| {
            setup.agent.until("/metrics", |answer| found(&answer.body) >= before + 3);
            setup.server.put("pods", &next);
            let answers = lines(&answer.join().unwrap());
            assert!(answers.iter().all(|answer| answer["podUID"] == "u-2"), "{answers:?}");
        });
        let name_only = format!("/var/log/containers/web-0_shop_nginx-{}.log", id('e'));
        setup.agent.ask(&["whois", "shop/web-0", "10.0.0.7", &name_only, "--wait", "60s", "-o", "json"])
    });
    let answers = lines(stdout(&output));
    let all_next = answers.iter().all(|answer| answer["podUID"] == "u-2");
    assert!(answers.len() == 3 && all_next, "{answers:?}");
    setup.agent.has("/pods/shop/web-0");
    // Late events of the removed one do not lead to the other one.
    let link = |digit| format!("/var/log/containers/web-0_shop_nginx-{}.log", id(digit));
    let uids = |queries: &[&str]| -> Vec<_> {
        setup
            .get(queries)
            .iter()
            .map(|answer| (answer["podUID"].clone(), answer["removed"].is_string()))
            .collect()
    };
    let (old, new) = ((json!(WEB), true), (json!("u-2"), false));
    assert_eq!(
        uids(&[WEB, &id('a'), &link('a'), "4711", "shop/web-0", "10.0.0.7", &link('e')]),
        [&old, &old, &old, &old, &new, &new, &new].map(Clone::clone)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ip_is_found_with_the_pod_that_had_it_at_the_time() {
    let setup = Setup::with("--keep-removed 1h --clock-skew 0s --source-delay 0s").await;
    let get = |query: &str, at: &str| setup.agent.get(&format!("/whois?q={query}&at={at}"));
    // Waits until it is certain who had the IP. Another pod's event shows that the watch is alive.
    let holder = |at: &str| -> Value {
        let mut other = pod("other", "node-1", &json!({}));
        other["metadata"]["annotations"] = json!({ "at": at });
        setup.server.put("pods", &other);
        let path = format!("/whois?q=10.0.0.7&at={at}");
        setup.agent.until(&path, |answer| answer.body.contains(r#""found":true"#)).json()
    };
    let first = Timestamp::now().to_string();
    let answer = holder(&first);
    assert_eq!((&answer["podUID"], &answer["at"]), (&json!(WEB), &json!(first)), "{answer}");
    let bound =
        |time: &Value| time.as_str().and_then(|time| time.parse::<Timestamp>().ok()).expect("RFC 3339");
    let asked: Timestamp = first.parse().unwrap();
    assert!(
        bound(&answer["from"]["latest"]) <= asked && asked < bound(&answer["until"]["earliest"]),
        "{answer}"
    );

    let named: Value = get("shop/web-0", &first).json();
    assert_eq!((&named["podUID"], named["from"].is_object()), (&json!(WEB), true), "{named}");

    // Waits until it is certain, although nothing is published: bookmarks show that the watch is alive.
    let asked = Timestamp::now();
    let agent = &setup.agent;
    thread::scope(|scope| {
        let path = format!("/whois?q=10.0.0.7&at={asked}");
        let waits = scope.spawn(move || agent.until(&path, |answer| answer.body.contains(r#""found":true"#)));
        while !waits.is_finished() {
            setup.server.send_bookmarks();
            thread::sleep(Duration::from_millis(50));
        }
    });

    // Another pod gets the IP.
    setup.server.remove("pods", "shop", "web-0").expect("a known pod");
    let mut next = web();
    (next["metadata"]["uid"], next["metadata"]["name"]) = (json!("u-2"), json!("web-1"));
    setup.server.put("pods", &next);
    setup.agent.until("/whois?q=shop/web-1", |answer| answer.body.contains(r#""found":true"#));
    let second = Timestamp::now().to_string();
    assert_eq!(holder(&second)["podUID"], "u-2");
    let answer = holder(&first);
    assert!(answer["podUID"] == WEB && answer["removed"].is_string(), "{answer}");
    let body = format!("10.0.0.7 at={first}\n{{\"query\": \"10.0.0.7\", \"at\": \"{second}\"}}");
    let answers = lines(&setup.agent.send("POST /whois", "", &body).body);
    assert_eq!([&answers[0]["podUID"], &answers[1]["podUID"]], [WEB, "u-2"], "{answers:?}");

    // Not certain, for one reason or another.
    let future: Value = get("10.0.0.7", "2100-01-01T00:00:00Z").json();
    assert_eq!(
        (&future["found"], &future["candidates"][0]["podUID"]),
        (&json!(false), &json!("u-2")),
        "{future}"
    );
    assert_eq!(future["retry"], "later", "its time has not come");
    let past: Value = get("10.0.0.99", "0").json();
    assert_eq!(past["retry"], "never", "{past}");
    assert!(past["error"].as_str().unwrap().contains("before what the agent knows"), "{past}");
    assert!(past["known"]["earliest"].is_string(), "{past}");
    let never: Value = get("10.0.0.99", &second).json();
    assert_eq!(never["retry"], "never", "{never}");
    assert!(never["error"].as_str().unwrap().contains("at that time"), "{never}");
    // After a gap in the watch, another pod may have had it.
    setup.server.compact();
    setup.server.expire_watches();
    setup.agent.until(&format!("/whois?q=10.0.0.99&at={second}"), |answer| {
        answer.body.contains("before what the agent knows")
    });
    assert_eq!(get("10.0.0.7", "yesterday").code, 400);
    let process: Value = get("1", &second).json();
    assert!(process["error"].as_str().unwrap().contains("PID@NANOSECONDS"), "{process}");
    // What needs no time.
    assert_eq!(get(WEB, "0").json::<Value>()["podUID"], WEB);
    let unknown: Value = get("nobody", &second).json();
    assert!(unknown["error"].as_str().unwrap().contains("no pod has this UID"), "{unknown}");

    let output = setup.agent.ask(&["whois", "--at", &first, "10.0.0.7"]);
    assert!(
        output.status.success() && stdout(&output).contains(&format!("IP at {first}, removed 20")),
        "{output:?}"
    );
    let output = setup.pipe(&["--time-field", "1"], format!("{second} 10.0.0.7\n").as_bytes());
    assert!(output.status.success() && stdout(&output).contains("web-1"), "{output:?}");
    let output = setup.agent.ask(&["whois", "--at", "2100-01-01T00:00:00Z", "10.0.0.7"]);
    assert!(stderr(&output).contains("perhaps shop/web-1"), "{output:?}");
    setup.agent.refuses("whois --time-field 1 10.0.0.7", 2, "--time-field is for lines of standard input");
}

/// A manifest may set any UID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_uid_looks_like_an_ip_is_found_by_it_only_while_no_pod_has_the_ip() {
    let setup = Setup::with("--keep-removed 1h").await;
    let mut odd = pod("odd", "node-1", &json!({}));
    odd["metadata"]["uid"] = json!("10.0.0.7");
    setup.server.put("pods", &odd);
    setup.agent.has("/pods/default/odd");
    assert_eq!(setup.get(&["10.0.0.7"])[0]["podUID"], WEB);
    // At a time when it is not certain who had the IP, the UID is no answer.
    let future: Value = setup.agent.get("/whois?q=10.0.0.7&at=2100-01-01T00:00:00Z").json();
    assert_eq!(
        (&future["found"], &future["candidates"][0]["podUID"]),
        (&json!(false), &json!(WEB)),
        "{future}"
    );
    setup.server.remove("pods", "shop", "web-0").expect("a known pod");
    setup.agent.lacks("/pods/shop/web-0");
    assert_eq!(setup.get(&["10.0.0.7"])[0]["podUID"], "10.0.0.7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_id_with_another_start_is_another_process() {
    let setup = Setup::new().await;
    setup.process("4711", &format!("0::{}\n", cgroup(WEB, &id('a'))));
    let answers = setup.get(&["4711@0", "4711", "4711@50000000", "4711@x"]);
    assert_eq!(answers[0]["podUID"], WEB, "{answers:?}");
    assert_eq!(answers[1]["podUID"], WEB, "{answers:?}");
    assert!(answers[2]["error"].as_str().unwrap().contains("no process has this ID"), "{answers:?}");
    assert_eq!(answers[3]["found"], false, "{answers:?}");
}

/// A pod with the name of `web`, and without a status.
fn pod_of(uid: &str) -> Value {
    let mut pod = web();
    pod["metadata"]["uid"] = json!(uid);
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pod_is_unknown_when_its_time_is_over() {
    for args in ["--keep-removed 300ms", "--keep-removed 0", "--keep-removed-max 0"] {
        let setup = Setup::with(args).await;
        setup.server.remove("pods", "shop", "web-0").expect("a known pod");
        // Nothing is written after the removal.
        for query in [WEB, &id('a'), "10.0.0.7", "shop/web-0"] {
            setup
                .agent
                .until(&format!("/whois?q={query}"), |answer| answer.body.contains(r#""found":false"#));
        }
        assert_eq!(setup.agent.get(&format!("/pods/{WEB}")).code, 404);
        let metrics = setup.agent.get("/metrics").body;
        assert_eq!(value(&metrics, "pod_index_removed_pods"), 0, "{args:?}");
        // Forgetting a pod is a publication, too. It is counted after it is published.
        setup.agent.until("/metrics", |answer| {
            let generation = value(&answer.body, "pod_index_generation");
            generation == value(&answer.body, "pod_index_publications_total")
        });
    }
}
