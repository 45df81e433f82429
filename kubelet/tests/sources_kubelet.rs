//! The kubelet as a source, against an HTTPS server on loopback that answers like a kubelet.

use crate::http_server;
use crate::sources_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_server::{Server, answer};
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_static_pod};
use pod_index_kubelet::sources::http::HttpConfig;
use pod_index_kubelet::sources::{
    Merge, Nudge, ProblemKind, Source, SourceStatus, SourceUpdate, Updates, kubelet,
};
use pod_index_test_support::kubelet::{Kubelet as Restarting, Stage, pod as running};
use serde_json::{Value, json};
use sources_support::{Directory, names, next_complete as next, problem, until_status, update};

/// A kubelet's answer to a client with the token.
struct Kubelet {
    server: Server,
    body: Arc<Mutex<String>>,
}

impl Kubelet {
    async fn start(token: &str, body: &Value) -> Self {
        let wanted = format!("authorization: bearer {token}\r\n");
        let body = Arc::new(Mutex::new(body.to_string()));
        let current = Arc::clone(&body);
        let server = Server::start_with_tls(move |request| {
            let is_alone = request.matches("authorization:").count() == 1;
            Some(if is_alone && request.contains(&wanted) {
                answer("200 OK", "", &current.lock().expect("a body"))
            } else {
                answer("401 Unauthorized", "", "Unauthorized")
            })
        });
        Self { server: server.await, body }
    }

    fn answers(&self, body: &Value) {
        *self.body.lock().expect("a body") = body.to_string();
    }

    fn config(&self, token: &Directory) -> HttpConfig {
        let config = HttpConfig::of_kubelet(&self.server.url("")).expect("a URL");
        // The token replaces it.
        let mut config = config.header("Authorization", "Bearer other").expect("a header");
        (config.token_file, config.period) = (Some(token.at("token")), Duration::from_millis(10));
        config
    }

    fn trusted(&self, token: &Directory) -> Updates<Pod> {
        let config = self.config(token).certificate_authorities(self.server.authority.as_bytes());
        kubelet::follow(config.expect("an authority")).expect("a source")
    }
}

fn token(text: &str) -> Directory {
    let directory = Directory::new();
    directory.write("token", text);
    directory
}

fn pod(uid: &str, name: &str, source: &str) -> Value {
    json!({"metadata": {"uid": uid, "name": name, "namespace": "ns", "annotations": {"kubernetes.io/config.source": source}}})
}

/// A kubelet with these pods, its token, and a source that has both.
async fn trusted(pods: &[Value]) -> (Kubelet, Directory, Updates<Pod>) {
    let (kubelet, token) = (Kubelet::start("secret", &list(pods)).await, token("secret"));
    let source = kubelet.trusted(&token);
    (kubelet, token, source)
}

fn list(pods: &[Value]) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
}

#[tokio::test]
async fn the_kubelets_pods_keep_the_marks_that_it_gave_them() {
    let pods = [pod("s", "web-n1", "file"), pod("a", "api", "api")];
    let kubelet = Kubelet::start("secret", &list(&pods)).await;
    let token = token("secret\n");
    let mut source = kubelet.trusted(&token);
    let pods = next(&mut source).await;
    assert_eq!(names(&pods), ["api", "web-n1"]);
    assert!(kubelet.server.requests()[0].starts_with("get /pods http/1.1\r\n"));

    let mut merge = Merge::new([Source::Kubelet]);
    let merged = merge.update(Source::Kubelet, SourceUpdate::Set(pods));
    assert!(merge.all_sources_seen());
    let is_static: Vec<_> = merged.added.iter().map(|pod| is_static_pod(&**pod)).collect();
    assert_eq!(is_static, [false, true]);
}

#[tokio::test]
async fn a_pod_brings_no_marks_along() {
    let mut forged = pod("a", "api", "api");
    for mark in ["pod-index/ended", "pod-index/derived-workload", "pod-index/api-server-config.source"] {
        forged["metadata"]["annotations"][mark] = "forged".into();
    }
    let kubelet = Kubelet::start("secret", &list(&[forged])).await;
    let token = token("secret");
    let pods = next(&mut kubelet.trusted(&token)).await;
    let annotations: Vec<_> =
        pods[0].metadata.annotations.iter().flatten().map(|(key, _)| key.as_str()).collect();
    assert_eq!(annotations, ["kubernetes.io/config.source"], "ended, it would hide its IP");
}

/// Its period is an hour.
#[tokio::test]
async fn a_nudge_reads_the_kubelet_again_until_it_has_the_change() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let token = token("secret");
    let nudge = Nudge::default();
    let mut config = kubelet
        .config(&token)
        .certificate_authorities(kubelet.server.authority.as_bytes())
        .expect("an authority");
    (config.period, config.nudge) = (Duration::from_secs(3600), nudge.clone());
    let mut source = kubelet::follow(config).expect("a source");
    let status = source.status();
    assert_eq!(names(&next(&mut source).await), ["one"]);
    let first = status.borrow().last_read.expect("a read");
    nudge.notify_one();
    // The kubelet has the change only after the first of the reads that follow.
    let checks = status.borrow().checks;
    until_status(&mut source, |status| status.checks == checks + 1).await;
    assert!(status.borrow().last_read > Some(first));
    kubelet.answers(&list(&[pod("2", "two", "api")]));
    assert_eq!(names(&next(&mut source).await), ["two"]);
}

#[tokio::test]
async fn another_order_is_no_change_and_unchanged_pods_stay_the_same_objects() {
    let (one, two) = (pod("1", "one", "api"), pod("2", "two", "api"));
    let (kubelet, _token, mut source) = trusted(&[one.clone(), two.clone()]).await;
    let first = next(&mut source).await;
    kubelet.answers(&list(&[two.clone(), one.clone()]));
    let checks = source.status().borrow().checks;
    // Two more requests; the second ends after the first saw the new order.
    until_status(&mut source, |status| status.checks >= checks + 2).await;
    kubelet.answers(&list(&[two, one, pod("3", "three", "api")]));
    let second = next(&mut source).await;
    assert_eq!(names(&second), ["one", "three", "two"]);
    assert!(Arc::ptr_eq(&first[0], &second[0]));
}

#[tokio::test]
async fn a_rotated_token_is_read_again_and_never_shown() {
    let kubelet = Kubelet::start("second", &list(&[pod("1", "one", "api")])).await;
    let token = token("first");
    let mut source = kubelet.trusted(&token);
    let refused = problem(&mut source).await;
    assert_eq!((refused.kind, &*refused.message), (ProblemKind::Request, "answered 401 Unauthorized"));
    token.write("token", "second");
    assert_eq!(names(&next(&mut source).await), ["one"]);
    for (text, wrong) in [(Some("broken\u{1}token"), "it cannot be sent in a header"), (None, "No such file")]
    {
        match text {
            Some(text) => token.write("token", text),
            None => std::fs::remove_file(token.at("token")).expect("a file"),
        }
        let mut source = kubelet.trusted(&token);
        let problem = problem(&mut source).await;
        assert!(problem.message.contains(wrong) && !problem.message.contains("broken"), "{problem}");
    }
    assert!(!format!("{:?}", kubelet.config(&token)).contains("second"));
}

#[tokio::test]
async fn an_answer_that_is_not_a_list_of_pods_changes_nothing() {
    let (kubelet, _token, mut source) = trusted(&[pod("1", "one", "api")]).await;
    assert_eq!(next(&mut source).await.len(), 1);
    let mut mirror = pod("m", "mirror", "file");
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    for (body, wrong) in [
        (json!("secret text"), "the answer is not a list of pods (line 1, column 13)"),
        (json!({"kind": "Pod", "items": []}), "the answer is a \"Pod\", not a PodList"),
        (list(&[mirror]), "the pod ns/mirror is a mirror pod; no kubelet lists those"),
        // It may be any pod.
        (list(&[pod("", "two", "api")]), "is missing from the pod ns/two"),
        (list(&[json!({})]), "is missing from the pod /"),
        (list(&[json!(5)]), "is missing from the pod /"),
    ] {
        kubelet.answers(&body);
        let is_it = |status: &SourceStatus| status.problems.iter().any(|problem| problem.message == wrong);
        until_status(&mut source, is_it).await;
    }
    // A kubelet without pods.
    kubelet.answers(&json!({"kind": "PodList", "items": null}));
    assert_eq!(next(&mut source).await.len(), 0);
}

/// The problems once there are `count`.
async fn problems(source: &mut Updates<Pod>, count: usize) -> Vec<String> {
    let status = until_status(source, |status| status.problems.len() == count).await;
    status.problems.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_pod_that_cannot_be_used_is_named_and_keeps_its_last_state_while_the_others_change() {
    let (kubelet, _token, mut source) = trusted(&["1", "2", "3"].map(|uid| pod(uid, uid, "api"))).await;
    let first = next(&mut source).await;
    assert_eq!(names(&first), ["1", "2", "3"]);

    let mut one = pod("1", "1", "api");
    one["metadata"]["labels"] = json!({"app": "web"});
    let mut undecodable = pod("2", "2", "api");
    undecodable["spec"] =
        json!({"containers": [{"name": "c", "env": [{"name": "E", "value": ["hunter2"]}]}]});
    let mut new = undecodable.clone();
    (new["metadata"]["uid"], new["metadata"]["name"]) = (json!("5"), json!("5"));
    let mut nameless = pod("6", "6", "api");
    nameless["metadata"]["name"] = json!("");
    // Commas in a text are no parts.
    let [whole, large] = [("4", vec![r#""\,,,"#; 5000]), ("7", vec!["a"; 12_000])].map(|(uid, args)| {
        let mut pod = pod(uid, uid, "api");
        pod["spec"] = json!({"containers": [{"name": "c", "args": args}], "nodeName": "n"});
        pod
    });
    kubelet.answers(&list(&[one, undecodable, pod("3", "3", "api"), whole, new, nameless, large]));
    let mut second = next(&mut source).await;
    second.sort_by(|a, b| a.name().cmp(b.name()));
    assert_eq!(names(&second), ["1", "2", "3", "4", "7"], "neither 5 nor 6 was ever decoded");
    let specs = [3, 4].map(|at: usize| second[at].spec.clone().expect("a spec"));
    assert_eq!(specs[0].containers[0].args.as_ref().map(Vec::len), Some(5000));
    assert_eq!((specs[1].containers.len(), specs[1].node_name.as_deref()), (0, Some("n")));
    assert!(!Arc::ptr_eq(&first[0], &second[0]), "1 has changed");
    assert!(Arc::ptr_eq(&first[1], &second[1]) && Arc::ptr_eq(&first[2], &second[2]));
    let said = problems(&mut source, 4).await;
    let wrong = "spec.containers[0].env[0].value: cannot be decoded: expected a string";
    let large = "ns/7: spec.containers: takes";
    let nameless = "ns/: metadata.name: is missing";
    let expected = [&*format!("ns/2: {wrong}"), &*format!("ns/5: {wrong}"), nameless, large];
    assert_eq!(said[..3], expected[..3]);
    let rest = " KiB with the whole object, more than 512 KiB: spec.containers left out";
    assert!(said[3].starts_with(large) && said[3].ends_with(rest), "{}", said[3]);
    let kinds: Vec<_> = source.status().borrow().problems.iter().map(|problem| problem.kind).collect();
    let [syntax, warning] = [ProblemKind::Syntax, ProblemKind::Warning];
    assert_eq!(kinds, [syntax, syntax, syntax, warning], "7 is not hidden");
    assert_eq!(source.status().borrow().failed_checks, 0, "the looks give information");

    // 2 is gone.
    kubelet.answers(&list(&[pod("1", "1", "api"), pod("3", "3", "api")]));
    assert_eq!(names(&next(&mut source).await), ["1", "3"]);
    assert_eq!(problems(&mut source, 0).await, [""; 0]);
}

#[tokio::test]
async fn an_untrusted_certificate_is_accepted_only_if_configured() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let token = token("secret");
    let other =
        rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate").cert.pem();
    let wary = kubelet.config(&token).certificate_authorities(other.as_bytes()).expect("an authority");
    let mut wary = kubelet::follow(wary).expect("a source");
    assert!(problem(&mut wary).await.message.contains("invalid peer certificate"));
    assert_eq!(kubelet.server.requests(), [""; 0], "the token was sent");
    let mut trusting = kubelet.config(&token);
    trusting.insecure = true;
    let mut trusting = kubelet::follow(trusting).expect("a source");
    assert_eq!(names(&next(&mut trusting).await), ["one"]);
}

/// What a source says, as `+` for a complete list and `-` for an incomplete one, and the names; or the UIDs of what is gone.
async fn said(source: &mut Updates<Pod>) -> String {
    match update(source).await {
        SourceUpdate::Set(pods) => format!("+{}", names(&pods).join(" ")),
        SourceUpdate::Incomplete(pods) => format!("-{}", names(&pods).join(" ")),
        SourceUpdate::Remove(uids) => {
            format!("gone: {}", uids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
        other @ SourceUpdate::Upsert(_) => panic!("{other:?}"),
    }
}

/// A kubelet that behaves as measured, and a source that asks it all the time.
async fn restarting() -> (Restarting, Updates<Pod>) {
    let static_pod = running("s", "static", "file", "10.0.0.1");
    let api_pods = ["a", "b"].map(|name| running(name, name, "api", "10.0.0.2"));
    let kubelet = Restarting::start(vec![static_pod], api_pods.into());
    let mut config = HttpConfig::of_kubelet(&kubelet.url()).expect("a URL");
    config.period = Duration::from_millis(10);
    let mut source = kubelet::follow(config).expect("a source");
    assert_eq!(said(&mut source).await, "-a b static", "the first list may be incomplete");
    assert_eq!(said(&mut source).await, "+a b static");
    assert_eq!(source.status().borrow().problems, []);
    (kubelet, source)
}

fn is_incomplete(status: &SourceStatus) -> bool {
    status.problems.iter().any(|problem| problem.kind == ProblemKind::Incomplete)
}

#[tokio::test]
async fn a_kubelet_that_was_restarted_says_nothing_about_the_pods_that_it_does_not_list_yet() {
    let (kubelet, mut source) = restarting().await;
    let status = source.status();
    let (read, relists) = {
        let status = status.borrow();
        (status.last_complete_read.expect("a read"), status.relists)
    };
    // So quick that no request fails. Only the connection is another one.
    kubelet.restart(Stage::Nothing);
    assert_eq!(said(&mut source).await, "-");
    kubelet.reach(Stage::Manifests);
    assert_eq!(said(&mut source).await, "-static");
    // The API server is away.
    let checks = status.borrow().checks;
    let later = until_status(&mut source, |status| status.checks > checks + 5).await;
    assert!(
        is_incomplete(&later) && !later.problems.iter().any(|problem| problem.kind.is_grave()),
        "{later:?}"
    );
    let (newest, at_the_restart) = (later.last_complete_read.expect("a read"), std::time::Instant::now());
    assert!(read <= newest && newest < at_the_restart && later.last_read > Some(newest));
    assert_eq!((later.failed_checks, later.relists), (0, relists));
    kubelet.set_api_pods(vec![running("a", "a", "api", "10.0.0.2")]);
    kubelet.reach(Stage::All);
    assert_eq!(said(&mut source).await, "-a static");
    assert_eq!(said(&mut source).await, "+a static", "b is gone");
    let status = status.borrow();
    assert_eq!((status.relists, status.last_complete_read), (relists + 1, status.last_read));
}

/// It lists others of its files, so it has read these. Its API server is away, and not needed for that.
#[tokio::test]
async fn a_static_pod_whose_file_went_while_the_kubelet_was_restarted_is_gone_before_the_api_server_is_back()
{
    let (kubelet, mut source) = restarting().await;
    let kept = running("k", "kept", "file", "10.0.0.3");
    kubelet.set_static_pods(vec![running("s", "static", "file", "10.0.0.1"), kept.clone()]);
    assert_eq!(said(&mut source).await, "+a b kept static");
    kubelet.restart(Stage::Nothing);
    assert_eq!(said(&mut source).await, "-");
    kubelet.set_static_pods(vec![kept]);
    kubelet.reach(Stage::Manifests);
    assert_eq!(said(&mut source).await, "-kept");
    assert_eq!(said(&mut source).await, "gone: s", "the pods of the API server stay");
    assert!(is_incomplete(&source.status().borrow()));
    kubelet.reach(Stage::All);
    assert_eq!(said(&mut source).await, "-a b kept");
    assert_eq!(said(&mut source).await, "+a b kept");
}

/// It may not have read its files: before its container runtime answers, it reads none of its sources.
#[tokio::test]
async fn a_kubelet_that_lists_no_static_pod_says_nothing_about_these() {
    let (kubelet, mut source) = restarting().await;
    kubelet.restart(Stage::Nothing);
    assert_eq!(said(&mut source).await, "-");
    // A second without a change would be enough if it listed any.
    let later = std::time::Instant::now() + Duration::from_secs(2);
    until_status(&mut source, |status| status.last_read > Some(later)).await;
    kubelet.reach(Stage::Manifests);
    assert_eq!(said(&mut source).await, "-static");
}

#[tokio::test]
async fn a_kubelet_that_was_unreachable_is_asked_twice_before_its_list_counts_and_nothing_changes_if_it_has_all()
 {
    let (kubelet, mut source) = restarting().await;
    kubelet.stop();
    until_status(&mut source, |status| status.problems.iter().any(|it| it.kind == ProblemKind::Request))
        .await;
    kubelet.reach(Stage::All);
    let relists = source.status().borrow().relists;
    until_status(&mut source, is_incomplete).await;
    until_status(&mut source, |status| status.problems.is_empty() && status.relists == relists + 1).await;
    // On this connection, the same process answers.
    kubelet.set_api_pods(Vec::new());
    assert_eq!(said(&mut source).await, "+static");
}

/// As some proxies do.
#[tokio::test]
async fn behind_a_server_that_closes_each_connection_the_loss_of_all_api_pods_is_an_interruption() {
    let body = Arc::new(Mutex::new(list(&[pod("s", "static", "file"), pod("a", "a", "api")])));
    let current = Arc::clone(&body);
    let close = "connection: close\r\n";
    let server =
        Server::start(move |_| Some(answer("200 OK", close, &current.lock().expect("a body").to_string())));
    let server = server.await;
    let mut config = HttpConfig::of_kubelet(&server.url("")).expect("a URL");
    config.period = Duration::from_millis(10);
    let mut source = kubelet::follow(config).expect("a source");
    assert_eq!(said(&mut source).await, "-a static");
    assert_eq!(said(&mut source).await, "+a static");
    *body.lock().expect("a body") = list(&[pod("s", "static", "file")]);
    assert_eq!(said(&mut source).await, "-static");
    *body.lock().expect("a body") = list(&[pod("b", "b", "api")]);
    assert_eq!(said(&mut source).await, "-b");
    assert_eq!(said(&mut source).await, "+b");
}

#[tokio::test]
async fn rotated_authorities_are_read_again_and_an_unusable_file_is_a_warning() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let directory = token("secret");
    directory.write("ca.crt", &kubelet.server.authority);
    let mut config = kubelet.config(&directory);
    config.authorities_file = Some(directory.at("ca.crt"));
    let mut source = kubelet::follow(config).expect("a source");
    assert_eq!(names(&next(&mut source).await), ["one"]);

    // Half of a file, as it is being written.
    directory.write("ca.crt", "-----BEGIN CERTIFICATE-----\n");
    let has = |status: &SourceStatus, text: &str| {
        status.problems.iter().any(|it| it.kind == ProblemKind::Warning && it.message.contains(text))
    };
    let status = until_status(&mut source, |status| has(status, "ca.crt")).await;
    let failed = status.failed_checks;
    until_status(&mut source, |status| status.checks > 5 && status.failed_checks == failed).await;

    // A new process has another certificate.
    let authority = kubelet.server.rotate_certificate();
    kubelet.answers(&list(&[pod("2", "two", "api")]));
    kubelet.server.close_connections();
    let is_refused = |status: &SourceStatus| {
        status.problems.iter().any(|it| it.kind == ProblemKind::Request && it.message.contains("certificate"))
    };
    until_status(&mut source, is_refused).await;
    directory.write("ca.crt", &authority);
    assert_eq!(names(&next(&mut source).await), ["two"]);
    until_status(&mut source, |status| status.problems.is_empty()).await;

    // Without a new certificate of the server, a new file still ends the old connection.
    let other = identity_of_nobody();
    directory.write("ca.crt", &other);
    until_status(&mut source, is_refused).await;
}

fn identity_of_nobody() -> String {
    rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate").cert.pem()
}

#[tokio::test]
async fn a_period_without_an_end_waits_for_a_nudge() {
    let (nudge, directory) = (Nudge::default(), token("secret"));
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let mut config = kubelet
        .config(&directory)
        .certificate_authorities(kubelet.server.authority.as_bytes())
        .expect("an authority");
    (config.period, config.timeout, config.nudge) = (Duration::MAX, Duration::MAX, nudge.clone());
    let mut source = kubelet::follow(config).expect("a source");
    assert_eq!(names(&next(&mut source).await), ["one"]);
    kubelet.answers(&list(&[pod("2", "two", "api")]));
    nudge.notify_one();
    assert_eq!(names(&next(&mut source).await), ["two"]);
}

#[tokio::test]
async fn a_pod_on_which_the_source_panics_costs_no_other_and_its_last_version_stays() {
    let (kubelet, token) = (Kubelet::start("secret", &list(&[])).await, token("secret"));
    let mut config =
        kubelet.config(&token).certificate_authorities(kubelet.server.authority.as_bytes()).unwrap();
    config.transform = |pod| assert!(pod.metadata.labels.is_none(), "the test's panic");
    let pods = [pod("1", "turns-bad", "file"), pod("2", "stays", "api")];
    kubelet.answers(&list(&pods));
    let mut source = kubelet::follow(config).unwrap();
    assert_eq!(names(&next(&mut source).await), ["stays", "turns-bad"]);
    let mut bad = pods[0].clone();
    bad["metadata"]["labels"] = json!({"a": "b"});
    kubelet.answers(&list(&[bad, pods[1].clone(), pod("3", "new", "api")]));
    let mut listed = names(&next(&mut source).await).join(" ");
    assert_eq!(listed, "new stays turns-bad");
    let problems = source.status().borrow().problems.clone();
    let [problem] = &problems[..] else { panic!("one problem, not {problems:?}") };
    assert_eq!((problem.kind, &*problem.origin), (ProblemKind::Defect, "ns/turns-bad"));
    kubelet.answers(&list(&pods));
    listed = names(&next(&mut source).await).join(" ");
    assert_eq!(listed, "stays turns-bad");
    assert_eq!(source.status().borrow().problems, []);
}
