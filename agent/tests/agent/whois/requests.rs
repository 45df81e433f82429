//! Requests with many queries, waiting ones, and hostile ones.

use pod_index::identity::ParseIdentityError;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_finds_a_pod_that_comes_later_and_ends_when_it_does_not() {
    let setup = Setup::new().await;
    // Adds the pod once a lookup more had this outcome.
    let after = |outcome: &str, later: &Value, ask: &dyn Fn() -> Output| {
        let series = format!("pod_index_lookups_total{{outcome=\"{outcome}\"}}");
        let before = value(&setup.agent.get("/metrics").body, &series);
        thread::scope(|scope| {
            scope.spawn(|| {
                setup.agent.until("/metrics", |answer| value(&answer.body, &series) > before);
                setup.server.put("pods", later);
            });
            ask()
        })
    };
    for args in [&["later-uid", WEB, "-o", "json"][..], &["-o", "json"]] {
        let uid = if args.len() > 2 { "later-uid" } else { "still-later-uid" };
        let mut later = pod(uid, "node-1", &json!({}));
        later["metadata"]["uid"] = json!(uid);
        // The pod that is known has been found, so the query waits for the other one.
        let output = after("found", &later, &|| {
            setup.pipe(&[args, &["--wait", "60s"]].concat(), format!("{uid}\n{WEB}\n").as_bytes())
        });
        assert!(output.status.success(), "{} {}", stdout(&output), stderr(&output));
        let answers = lines(stdout(&output));
        let uids: Vec<_> = answers.iter().map(|answer| answer["podUID"].as_str().unwrap()).collect();
        assert_eq!(uids, [uid, WEB]);
    }

    // A process may start before the agent hears of its pod.
    setup.process("4712", "0::/kubepods/podu-of-4712\n");
    let mut later = pod("of-4712", "node-1", &json!({}));
    later["metadata"]["uid"] = json!("u-of-4712");
    let output =
        after("unknown", &later, &|| setup.agent.ask(&["whois", "4712", "--wait", "60s", "-o", "json"]));
    assert_eq!(lines(stdout(&output))[0]["podUID"], "u-of-4712", "{}", stderr(&output));

    let began = Instant::now();
    let output = setup.agent.ask(&["whois", "never", WEB, "--wait", "300ms", "-o", "json"]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(output.status.code(), Some(1));
    let found: Vec<_> = lines(stdout(&output)).iter().map(|answer| answer["found"].clone()).collect();
    assert_eq!(found, [false, true]);
    // Invalid queries do not wait.
    let began = Instant::now();
    let output = setup.agent.ask(&["whois", "/no/pod", "4711", "shop/web-0 at=x", "--wait", "5m"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_to_one_request_are_limited() {
    let setup = Setup::new().await;
    let mut large = pod("large", "node-1", &json!({}));
    // Below the limit of one object, so that it is kept whole.
    large["metadata"]["labels"] = json!({ "x": "x".repeat(400_000) });
    large["metadata"]["uid"] = json!("large-uid");
    setup.server.put("pods", &large);
    setup.agent.until("/whois?q=large-uid", |answer| answer.body.contains(r#""found":true"#));
    let body = setup.agent.send("POST /whois", "", &"large-uid\n".repeat(200)).body;
    let line = body.split_inclusive('\n').next().unwrap().len();
    // The answer that passes the limit is the last one.
    let most = (64_usize << 20).div_ceil(line);
    assert!((160..170).contains(&most), "{most}");
    let answers = lines(&body);
    let found: Vec<_> = answers.iter().map(|answer| answer["found"] == true).collect();
    let expected: Vec<_> = (0..200).map(|at| at < most).collect();
    assert_eq!(found, expected);
    let error = "the answers to one request are limited to 64 MiB; send this query in another request";
    assert_eq!((&answers[199]["query"], &answers[199]["error"]), (&json!("large-uid"), &json!(error)));
    assert_eq!(answers[199]["retry"], "now");
    assert_eq!(setup.get(&["large-uid", WEB])[1]["podUID"], WEB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lines_get_as_many_answers_in_their_order() {
    const LINES: usize = 50_000;
    let setup = Setup::new().await;
    let mut input = String::new();
    for line in 0..LINES {
        let line = if line % 1000 == 17 { format!("unknown-{line}") } else { cgroup(WEB, &id('a')) };
        input.extend([line.as_str(), "\n"]);
    }
    let output = setup.pipe(&["-o", "json"], input.as_bytes());
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), ""));
    let answers = lines(stdout(&output));
    assert_eq!(answers.len(), LINES);
    for (answer, query) in answers.iter().zip(input.lines()) {
        assert_eq!(json!([answer["query"], answer["found"]]), json!([query, !query.starts_with("unknown")]));
    }
    // In batches, not one by one. A batch ends where the pipe is empty for a moment.
    let metrics = setup.agent.get("/metrics").body;
    let requests = value(&metrics, r#"pod_index_http_requests_total{path="/whois",outcome="ok"}"#);
    assert!((1..=5000).contains(&requests), "{requests} requests for {LINES} lines");
    let found = value(&metrics, r#"pod_index_lookups_total{outcome="found"}"#);
    assert_eq!(usize::try_from(found).unwrap(), LINES - LINES / 1000);

    let output = setup.pipe(&[], input.as_bytes());
    assert_eq!(stdout(&output).lines().count(), 1 + LINES - LINES / 1000);
    assert_eq!(stderr(&output).lines().count(), LINES / 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_are_counted_by_outcome() {
    let setup = Setup::new().await;
    setup.process("4711", &format!("0::/kubepods/pod{WEB}\n"));
    setup.get(&[WEB, MIRROR, "nobody", "4711", "4712", "/nothing", "10.9.9.9", "\u{0}"]);
    setup.agent.get("/pods/shop_nobody");
    setup.agent.get("/pods/web-0_shop");
    setup.agent.get("/pods/%2Fnothing");
    let metrics = setup.agent.get("/metrics").body;
    for (outcome, expected) in [("found", 4), ("unknown", 4), ("invalid", 3)] {
        let series = format!("pod_index_lookups_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&metrics, &series), expected, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_queries_each_get_an_error_and_affect_no_other() {
    let setup = Setup::new().await;
    let send = |request: &str, body: &str| setup.agent.send(request, "", body);
    // Limits of a request.
    let many = |count: usize| format!("/whois?{}", vec!["q=u"; count].join("&"));
    for (request, body, code, says) in [
        (format!("GET {}", many(100)), String::new(), 200, ""),
        (format!("GET {}", many(101)), String::new(), 400, "at most 100"),
        // As the reference says, so much fits into a URL.
        (format!("GET /whois?q={}", "x".repeat(12 << 10)), String::new(), 200, "error"),
        ("GET /whois".to_owned(), String::new(), 400, "q is missing"),
        ("GET /whois?uid=u".to_owned(), String::new(), 400, "unknown parameter \\\"uid\\\""),
        ("POST /whois?q=u".to_owned(), String::new(), 400, "in the body"),
        ("POST /whois".to_owned(), "x".repeat((128 << 10) + 1), 413, "131072 bytes"),
        ("POST /whois".to_owned(), String::new(), 200, ""),
        ("DELETE /whois".to_owned(), String::new(), 405, ""),
    ] {
        let answer = send(&request, &body);
        let request: String = request.chars().take(60).collect();
        assert_eq!(answer.code, code, "{request}: {}", answer.body);
        assert!(answer.body.contains(says), "{request}: {}", answer.body);
    }

    // Texts that are not identities.
    let long = "x".repeat(70_000);
    let line = "y".repeat(3 << 20);
    let control = "\u{1b}[2J";
    let body = format!("a\0b\n\n{long}\n..\n/../../x\n{control}\n{WEB}");
    let answers = lines(&send("POST /whois", &body).body);
    let errors: Vec<_> = answers.iter().map(|answer| answer["error"].as_str().unwrap_or_default()).collect();
    assert_eq!(
        errors,
        [
            "an identity must not contain NUL",
            "an identity must not be empty",
            "an identity must not be longer than 64 KiB",
            "not recognised; no pod has this UID",
            "the path names no pod and no container",
            &*ParseIdentityError::Unknown.to_string(),
            "",
        ]
    );
    assert_eq!(answers[2]["query"].as_str().unwrap().len(), 4096);
    let output = setup.pipe(&["-o", "json"], &[line.as_bytes(), b"\n\xff\xfe\n", WEB.as_bytes()].concat());
    let answers = lines(stdout(&output));
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["error"], "an identity must not be longer than 64 KiB");
    assert_eq!(answers[1]["error"], "an identity must be UTF-8");
    assert_eq!(answers[2]["podUID"], WEB);
    let output = setup.agent.ask(&["whois", control]);
    assert!(!stderr(&output).contains('\u{1b}'), "{}", stderr(&output));

    assert_eq!(setup.get(&[WEB])[0]["found"], true);
}

#[test]
fn until_every_source_was_read_an_unknown_pod_may_still_be_added() {
    let agent = Agent::start("--manifest-url http://127.0.0.1:1/");
    let why = "pod-index: \"u-1\": not recognised; no pod has this UID; not every source has been read\n";
    agent.refuses("whois u-1", 1, why);
}

#[test]
fn a_namespace_is_put_before_names_and_is_not_for_standard_input() {
    let agent = Agent::on(&crate::support::shipped());
    let name = "etcd-node-1";
    for arguments in [&["whois", "kube-system/etcd-node-1"][..], &["whois", "-n", "kube-system", name]] {
        let output = succeeded(agent.ask(&arguments.join(" ")));
        assert!(stdout(&output).contains("etcd-node-1"), "{}", stdout(&output));
    }
    let output = piped(&["whois", "--port", &agent.port(), "-n", "kube-system"], b"etcd-node-1\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("a line of standard input has NAMESPACE/NAME"), "{}", stderr(&output));
}

#[test]
fn a_closed_output_ends_whois_and_no_agent_is_exit_code_3() {
    let agent = Agent::on(&crate::support::shipped());
    let port = agent.port();
    let mut command = binary(&["whois", "--port", &port]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // Until it ends.
    while stdin.write_all(b"kube-system/etcd-node-1\n").is_ok() {}
    assert!(child.wait().unwrap().code().is_some());
    drop(agent);
    let output = piped(&["whois", "--port", &port], b"u\n");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("no agent answers"), "{}", stderr(&output));
}
