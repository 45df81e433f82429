//! The kubelet's Pods API as a source, against a server that behaves like the measured kubelet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{ENDED_ANNOTATION, PodMeta, PodUid};
use pod_index_kubelet::protobuf::encode_pod;
use pod_index_kubelet::sources::kubelet_socket::{KubeletSocket, follow};
use pod_index_kubelet::sources::{Nudge, ProblemKind, SourceStatus, SourceUpdate, Updates};
use pod_index_test_support::pods_api::{Answers, Event, Kubelet};
use serde_json::{Value, json};

use crate::sources_support::{DEADLINE, Directory, names};

/// Far longer than any test: what it waits for never comes by itself.
const NEVER: Duration = Duration::from_secs(3600);

struct Node {
    kubelet: Kubelet,
    directory: Directory,
    nudge: Nudge,
}

impl Node {
    fn start() -> Self {
        let directory = Directory::new();
        let kubelet = Kubelet::start(&directory.at("pods-api.sock"));
        Self { kubelet, directory, nudge: Nudge::default() }
    }

    /// A source whose lists are a consequence of something, however long an answer takes.
    fn source(&self) -> Updates<Pod> {
        self.source_with(NEVER)
    }

    /// A source with this as its period and its time limit.
    fn source_with(&self, never: Duration) -> Updates<Pod> {
        let mut socket = KubeletSocket::new(self.directory.at("pods-api.sock"));
        socket.period = never;
        socket.timeout = never;
        socket.nudge = Arc::clone(&self.nudge);
        follow(socket)
    }
}

fn pod(uid: &str, status: &Value) -> Vec<u8> {
    labelled(uid, "", status)
}

fn labelled(uid: &str, label: &str, status: &Value) -> Vec<u8> {
    let pod = json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "ns", "labels": {"a": label}},
        "spec": {"nodeName": "n1"}, "status": status,
    });
    encode_pod(&serde_json::from_value(pod).unwrap())
}

fn running(ip: &str) -> Value {
    let container = json!({"name": "c", "containerID": "containerd://1", "state": {"running": {}}});
    json!({"phase": "Running", "podIPs": [{"ip": ip}], "containerStatuses": [container]})
}

fn ip_of(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().pod_ips.as_ref().map_or("", |ips| &ips[0].ip)
}

/// The pods of the next update, complete or not.
async fn next(source: &mut Updates<Pod>) -> Vec<Arc<Pod>> {
    match tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time") {
        Some(SourceUpdate::Set(pods) | SourceUpdate::Incomplete(pods)) => pods,
        other => panic!("{other:?} is not a set"),
    }
}

/// The pods once a list counts as complete: a second after the first.
async fn complete(source: &mut Updates<Pod>) -> Vec<Arc<Pod>> {
    loop {
        let update = tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time");
        if let Some(SourceUpdate::Set(pods)) = update {
            return pods;
        }
    }
}

/// The next set in which this is so.
async fn until(source: &mut Updates<Pod>, wanted: impl Fn(&[Arc<Pod>]) -> bool) -> Vec<Arc<Pod>> {
    let found = async {
        loop {
            let pods = next(source).await;
            if wanted(&pods) {
                return pods;
            }
        }
    };
    tokio::time::timeout(DEADLINE, found).await.expect("what the test waits for")
}

/// Polls a source until its status is as wanted, whatever it reports.
async fn until_status(source: &mut Updates<Pod>, wanted: impl Fn(&SourceStatus) -> bool) -> SourceStatus {
    let mut status = source.status();
    let polled = async { while source.next().await.is_some() {} };
    tokio::select! {
        () = polled => panic!("the source has ended"),
        status = tokio::time::timeout(DEADLINE, status.wait_for(wanted)) => {
            status.expect("that status in time").expect("a living source").clone()
        }
    }
}

#[tokio::test]
async fn a_new_status_comes_with_its_event_and_a_label_with_the_next_list() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &json!({"phase": "Pending"})));
    let mut source = node.source();
    let first = complete(&mut source).await;
    assert_eq!((names(&first), ip_of(&first[0])), (vec!["1"], ""));

    node.kubelet.put_status("1", &pod("1", &running("10.0.0.1")));
    let second = next(&mut source).await;
    assert_eq!(ip_of(&second[0]), "10.0.0.1");

    node.kubelet.put("1", &labelled("1", "new", &running("10.0.0.1")));
    node.nudge.notify_one();
    let third = until(&mut source, |pods| pods[0].metadata.labels.as_ref().unwrap()["a"] == "new").await;
    assert_eq!(ip_of(&third[0]), "10.0.0.1");
}

#[tokio::test]
async fn a_period_without_an_end_waits_for_a_nudge() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    let mut source = node.source_with(Duration::MAX);
    complete(&mut source).await;
    node.kubelet.put("1", &labelled("1", "new", &running("10.0.0.1")));
    node.nudge.notify_one();
    until(&mut source, |pods| pods[0].metadata.labels.as_ref().unwrap()["a"] == "new").await;
    assert_eq!(source.status().borrow().problems, []);
}

#[tokio::test]
async fn a_burst_of_events_is_followed_by_one_list() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &json!({"phase": "Pending"})));
    let mut source = node.source();
    complete(&mut source).await;
    let lists = node.kubelet.lists();
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        node.kubelet.put_status("1", &pod("1", &running(ip)));
    }
    // Two changes in the wrong order: the last event is the older one.
    node.kubelet.send(Event::Modified, &pod("1", &running("10.0.0.2")));
    until(&mut source, |pods| ip_of(&pods[0]) == "10.0.0.2").await;
    until(&mut source, |pods| ip_of(&pods[0]) == "10.0.0.3").await;
    assert_eq!(node.kubelet.lists(), lists + 1);
}

#[tokio::test]
async fn a_deleted_pod_holds_no_ip_and_stays_until_it_is_not_listed() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    node.kubelet.put("2", &pod("2", &running("10.0.0.2")));
    let mut source = node.source();
    let (mut writer, reader) = pod_index::new::<Pod>();
    let first = complete(&mut source).await;
    let _ = writer.set_pods(first);
    let ip = "10.0.0.1".parse().unwrap();
    assert!(reader.load().pod_by_ip(ip).is_some());

    node.kubelet.send(Event::Deleted, &pod("1", &json!({})));
    let second = next(&mut source).await;
    assert_eq!(names(&second), ["1", "2"]);
    assert!(
        second[0].annotation(ENDED_ANNOTATION).is_some() && second[1].annotation(ENDED_ANNOTATION).is_none()
    );
    assert_eq!(ip_of(&second[0]), "10.0.0.1", "the status is the kubelet's");
    let _ = writer.set_pods(second);
    assert!(reader.load().pod_by_ip(ip).is_none());

    // A late event and a list of the pod do not bring it back. Its removal has no event.
    let finished = json!({"phase": "Succeeded", "podIPs": [{"ip": "10.0.0.1"}]});
    node.kubelet.put_status("1", &pod("1", &finished));
    let third = next(&mut source).await;
    assert!(third[0].annotation(ENDED_ANNOTATION).is_some());
    // Nor does anything else tell of it, and the next list is an hour away.
    node.kubelet.remove("1");
    until(&mut source, |pods| names(pods) == ["2"]).await;
}

#[tokio::test]
async fn a_pod_brings_no_marks_along() {
    let node = Node::start();
    let mut forged: Pod =
        serde_json::from_value(json!({"metadata": {"uid": "1", "name": "1", "namespace": "ns"}})).unwrap();
    let forged_marks =
        [ENDED_ANNOTATION, "pod-index/claimed-by"].map(|mark| (mark.to_owned(), String::new()));
    forged.metadata.annotations = Some(forged_marks.into());
    node.kubelet.put("1", &encode_pod(&forged));
    let pods = next(&mut node.source()).await;
    assert_eq!(
        pods[0].annotation(ENDED_ANNOTATION),
        None,
        "nobody but the kubelet can say that a pod has ended"
    );
    assert_eq!(pods[0].annotation("pod-index/claimed-by"), None);
}

#[tokio::test]
async fn a_kubelet_that_is_away_or_starting_is_waited_for_in_words() {
    let mut node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    node.kubelet.kill();
    std::fs::remove_file(node.directory.at("pods-api.sock")).unwrap();
    let mut source = node.source();
    let says = |text: &'static str| {
        move |status: &SourceStatus| status.problems.iter().any(|problem| problem.message.contains(text))
    };
    let status = until_status(&mut source, says("there is no socket")).await;
    assert_eq!((status.problems[0].kind, status.seen), (ProblemKind::Request, false));
    // A kubelet that knows nothing yet.
    node.kubelet.answers(Answers::NotReady);
    node.kubelet.restart();
    until_status(&mut source, says("the kubelet is starting and does not know all its pods yet")).await;
    node.kubelet.answers(Answers::Pods);
    let first = source.next().await;
    assert!(
        matches!(&first, Some(SourceUpdate::Set(pods)) if names(pods) == ["1"]),
        "it has said when it knew all: {first:?}"
    );
    // A stale file.
    node.kubelet.kill();
    until_status(&mut source, says("nobody serves at the socket")).await;
    node.kubelet.put("2", &pod("2", &running("10.0.0.2")));
    node.kubelet.restart();
    assert_eq!(names(&complete(&mut source).await), ["1", "2"]);
    let status = source.status().borrow().clone();
    assert!(status.relists > 0, "{status:?}");
    assert_eq!(status.until_next_try(), None, "it is connected, and waits for no other try");
}

/// Kubernetes 1.36: neither the list nor the watch says that pods are missing.
#[tokio::test]
async fn the_first_lists_of_a_new_kubelet_are_not_believed() {
    let mut node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    let mut source = node.source();
    complete(&mut source).await;
    node.kubelet.kill();
    node.kubelet.answers(Answers::Nothing);
    node.kubelet.restart();
    let incomplete = source.next().await;
    assert!(matches!(&incomplete, Some(SourceUpdate::Incomplete(pods)) if pods.is_empty()), "{incomplete:?}");
    let status = source.status().borrow().clone();
    assert!(status.problems.iter().any(|problem| problem.kind == ProblemKind::Incomplete));
    node.kubelet.answers(Answers::Pods);
    assert_eq!(names(&complete(&mut source).await), ["1"]);
    assert_eq!(source.status().borrow().problems, []);
}

fn static_pod(uid: &str) -> Vec<u8> {
    let pod = json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "ns", "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": "n1"}, "status": running("10.0.0.2"),
    });
    encode_pod(&serde_json::from_value(pod).unwrap())
}

/// The kubelet lists others of its files, so it has read these. Its API server is away, and not needed for that.
#[tokio::test]
async fn a_static_pod_that_a_new_kubelet_lacks_is_gone_once_its_other_static_pods_are_there() {
    let mut node = Node::start();
    node.kubelet.put("gone", &static_pod("gone"));
    node.kubelet.put("kept", &static_pod("kept"));
    node.kubelet.put("ordinary", &pod("ordinary", &running("10.0.0.1")));
    let mut source = node.source();
    assert_eq!(names(&complete(&mut source).await), ["gone", "kept", "ordinary"]);
    node.kubelet.kill();
    node.kubelet.remove("gone");
    node.kubelet.remove("ordinary");
    node.kubelet.restart();
    let incomplete = source.next().await;
    assert!(
        matches!(&incomplete, Some(SourceUpdate::Incomplete(pods)) if names(pods) == ["kept"]),
        "{incomplete:?}"
    );
    let gone = tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time");
    assert!(matches!(&gone, Some(SourceUpdate::Remove(uids)) if *uids == [PodUid::from("gone")]), "{gone:?}");
}

#[tokio::test]
async fn a_kubelet_that_never_answers_is_a_problem_and_is_tried_again() {
    let node = Node::start();
    node.kubelet.answers(Answers::Never);
    let mut socket = KubeletSocket::new(node.directory.at("pods-api.sock"));
    (socket.period, socket.timeout) = (NEVER, Duration::from_secs(2));
    let mut source = follow(socket);
    let is_late =
        |status: &SourceStatus| status.problems.iter().any(|it| it.message.contains("no complete answer"));
    until_status(&mut source, is_late).await;
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    node.kubelet.answers(Answers::Pods);
    assert_eq!(names(&complete(&mut source).await), ["1"]);
}

#[tokio::test]
async fn other_clients_that_use_up_the_limit_of_requests_delay_a_list() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    let mut source = node.source();
    complete(&mut source).await;
    let before = node.kubelet.lists();
    node.kubelet.exhaust();
    node.nudge.notify_one();
    let is_told =
        |status: &SourceStatus| status.problems.iter().any(|it| it.message.contains("RESOURCE_EXHAUSTED"));
    let status = until_status(&mut source, is_told).await;
    assert_eq!((status.relists, node.kubelet.watches()), (1, 1), "the watch goes on");
    node.kubelet.put("2", &pod("2", &running("10.0.0.2")));
    assert_eq!(names(&next(&mut source).await), ["1", "2"]);
    // Refused at 0, 1 and 3 s, and answered at 7 s: the limit is full again after 5 s, whatever the event asked for.
    let lists = node.kubelet.lists() - before;
    assert!(lists <= 4, "{lists} lists: the pauses do not double");
}

/// As a client that is stopped for a while, and that the kubelet drops.
#[tokio::test]
async fn a_source_that_is_too_slow_misses_nothing() {
    let node = Node::start();
    let large = |ip: u32| {
        let mut status = running(&format!("10.0.{}.{}", ip / 250, ip % 250));
        status["message"] = json!("x".repeat(60_000));
        pod("1", &status)
    };
    node.kubelet.put("1", &large(0));
    let mut source = node.source();
    complete(&mut source).await;
    for ip in 1..400 {
        node.kubelet.put_status("1", &large(ip));
        tokio::task::yield_now().await;
    }
    until(&mut source, |pods| ip_of(&pods[0]) == "10.0.1.149").await;
}

#[tokio::test]
async fn a_large_list_is_read_and_pods_that_did_not_change_stay_the_same_objects() {
    let node = Node::start();
    for uid in 0..500 {
        let mut status = running("10.0.0.1");
        status["message"] = json!("x".repeat(9_000));
        node.kubelet.put(&format!("{uid:03}"), &pod(&format!("{uid:03}"), &status));
    }
    let mut source = node.source();
    let first = complete(&mut source).await;
    assert_eq!(first.len(), 500);
    node.kubelet.put_status("007", &pod("007", &running("10.0.0.2")));
    // The events with which the watch began may be an update of their own, in which nothing has changed.
    let second = until(&mut source, |pods| ip_of(&pods[7]) == "10.0.0.2").await;
    let same = first.iter().zip(&second).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
    assert_eq!(same, 499);
}

#[tokio::test]
async fn a_pod_that_cannot_be_decoded_is_named_and_the_others_count() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    // Its spec is a number.
    let bad = b"\x0a\x0d\x0a\x03bad\x1a\x02ns\x2a\x02b1\x10\x07";
    node.kubelet.put("b1", bad);
    let mut source = node.source();
    assert_eq!(names(&complete(&mut source).await), ["1"]);
    let status = source.status().borrow().clone();
    assert_eq!(
        status.problems[0].to_string(),
        "ns/bad: spec: cannot be decoded: the encoding is not that of its kind"
    );
    assert_eq!(status.failed_checks, 0);
    // A known pod keeps its last state.
    node.kubelet.put("1", b"\x0a\x0a\x0a\x011\x1a\x02ns\x2a\x011\x10\x07");
    node.kubelet.put("2", &pod("2", &running("10.0.0.2")));
    node.nudge.notify_one();
    let pods = next(&mut source).await;
    assert_eq!((names(&pods), ip_of(&pods[0])), (vec!["1", "2"], "10.0.0.1"));
}

/// What an embedder does with a pod may panic, as any program.
#[tokio::test]
async fn a_pod_on_which_the_transformation_panics_is_named_and_the_others_count() {
    let node = Node::start();
    node.kubelet.put("1", &pod("1", &running("10.0.0.1")));
    node.kubelet.put("2", &pod("2", &running("10.0.0.66")));
    let mut socket = KubeletSocket::new(node.directory.at("pods-api.sock"));
    socket.period = NEVER;
    socket.nudge = Arc::clone(&node.nudge);
    socket.transform = |pod| assert_ne!(ip_of(pod), "10.0.0.66", "the test's panic");
    let mut source = follow(socket);
    // Of a list.
    assert_eq!(names(&complete(&mut source).await), ["1"]);
    let defects = |status: &SourceStatus| {
        let defects = status.problems.iter().filter(|problem| problem.kind == ProblemKind::Defect);
        defects.map(|problem| problem.origin.clone()).collect::<Vec<_>>()
    };
    let status = source.status().borrow().clone();
    assert_eq!((defects(&status), status.failed_checks), (vec!["ns/2".to_owned()], 0));
    // Of an event: the pod keeps its last state.
    node.kubelet.put_status("1", &pod("1", &running("10.0.0.66")));
    until_status(&mut source, |status| defects(status).contains(&"ns/1".to_owned())).await;
    node.kubelet.put_status("2", &pod("2", &running("10.0.0.2")));
    let pods = next(&mut source).await;
    let ips: Vec<_> = pods.iter().map(|pod| ip_of(pod)).collect();
    assert_eq!((names(&pods), ips), (vec!["1", "2"], vec!["10.0.0.1", "10.0.0.2"]));
}

#[tokio::test]
async fn a_mirror_pod_is_from_no_kubelet() {
    let node = Node::start();
    let mirror = json!({"metadata": {"uid": "m", "name": "m", "namespace": "ns", "annotations": {"kubernetes.io/config.mirror": "x"}}});
    node.kubelet.put("m", &encode_pod(&serde_json::from_value(mirror).unwrap()));
    let mut source = node.source();
    let is_refused =
        |status: &SourceStatus| status.problems.iter().any(|it| it.message.contains("is a mirror pod"));
    assert!(!until_status(&mut source, is_refused).await.seen);
}

/// Any order of what a kubelet does, restarts included: once nothing happens any more, the source has what the kubelet has.
#[tokio::test]
async fn random_histories_end_with_the_kubelets_pods() {
    use pod_index_test_support::dice::Dice;
    for seed in 0..3 {
        let mut dice = Dice(seed);
        let mut node = Node::start();
        let mut source = node.source();
        let mut wanted = std::collections::BTreeMap::new();
        for _ in 0..60 {
            let uid = dice.pick(&["1", "2", "3"]).to_owned();
            let ip = format!("10.0.0.{}", dice.roll(200));
            match dice.roll(8) {
                0 | 1 => {
                    node.kubelet.put_status(&uid, &pod(&uid, &running(&ip)));
                    wanted.insert(uid, ip);
                }
                2 => {
                    node.kubelet.put(&uid, &pod(&uid, &running(&ip)));
                    wanted.insert(uid, ip);
                }
                3 => {
                    node.kubelet.send(Event::Deleted, &pod(&uid, &json!({})));
                    node.kubelet.remove(&uid);
                    wanted.remove(&uid);
                }
                // Late.
                4 => node.kubelet.send(Event::Added, &pod(&uid, &running(&ip))),
                5 => {
                    node.kubelet.remove(&uid);
                    wanted.remove(&uid);
                }
                6 => {
                    node.kubelet.kill();
                    node.kubelet.restart();
                }
                _ => {
                    let _ = tokio::time::timeout(Duration::from_millis(3), source.next()).await;
                }
            }
        }
        node.nudge.notify_one();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut last = Vec::new();
        while last != wanted {
            assert!(Instant::now() < deadline, "seed {seed}: {last:?}, not {wanted:?}");
            if let Ok(Some(SourceUpdate::Set(pods))) =
                tokio::time::timeout(Duration::from_secs(5), source.next()).await
            {
                last = pods.iter().map(|pod| (pod.uid().to_owned(), ip_of(pod).to_owned())).collect();
            }
        }
    }
}
