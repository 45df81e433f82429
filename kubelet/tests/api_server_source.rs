//! The API server source against a server with every kind of failure. After each fault the index is compared
//! with the server's pods, field by field. At each step, no change may be emitted twice and no pod may be
//! missing for a moment.
#![cfg(feature = "api-server")]

use pod_index_test_support::api_server;
use pod_index_test_support::proxy::{Forwards, Proxy};
#[path = "support/followed.rs"]
mod followed;

use std::time::{Duration, Instant};

use api_server::{ApiServer, DEADLINE, Fault, Store, Verb};
use followed::{Followed, STAYS, Said, truth};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_static_pod};
use pod_index_kubelet::sources::api_server::ApiServer as Source;
use pod_index_kubelet::sources::{Merge, NodeName, ProblemKind, SourceUpdate};
use serde_json::{Value, json};

const QUICK: Duration = Duration::from_millis(20);

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "a", "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

/// A later version of a pod.
fn changed(name: &str, version: u64) -> Value {
    let mut pod = pod(name, "n1");
    pod["spec"]["containers"][0]["image"] = json!(format!("i:{version}"));
    pod
}

/// A source that does not compare during a test: most tests count lists.
fn source(server: &ApiServer) -> Source {
    Source::new(server.client()).backoff(QUICK, 4 * QUICK).compare_after(10 * DEADLINE)
}

/// A source that compares soon.
fn comparing(server: &ApiServer) -> Source {
    source(server).compare_after(4 * QUICK)
}

fn of_n1(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("n1")
}

/// A server with three lasting pods and one of another node, and an index that follows it and has them.
async fn followed() -> (ApiServer, Followed) {
    let server = ApiServer::start().await;
    for number in 0..3 {
        server.put("pods", &pod(&format!("{STAYS}-{number}"), "n1"));
    }
    server.put("pods", &pod("elsewhere", "n2"));
    let followed = follow(&server).await;
    (server, followed)
}

async fn follow(server: &ApiServer) -> Followed {
    follow_with(server, source(server)).await
}

async fn follow_with(server: &ApiServer, source: Source) -> Followed {
    let mut followed = Followed::whole(source.node(&NodeName::new("n1")).pods());
    followed.equals(server, of_n1).await;
    server.watched_by(1).await;
    followed
}

/// Checks that the source works: a change made now arrives.
async fn follows_on(server: &ApiServer, followed: &mut Followed) {
    server.put("pods", &changed("last", 1));
    followed.equals(server, of_n1).await;
    followed.until_status("problem solved", |status| status.problems.is_empty()).await;
}

#[tokio::test]
async fn the_first_list_is_one_set_however_many_pages_it_has() {
    let server = ApiServer::start().await;
    server.put_all("pods", (0..25).map(|number| pod(&format!("p{number}"), "n1")));
    let mut followed = Followed::whole(source(&server).page_size(10).pods());
    followed.equals(&server, |_| true).await;
    assert_eq!(followed.said(), [Said::Set(25)]);
    assert_eq!((server.requests(Verb::List), followed.reader.load().generation()), (3, 1));
    let status = followed.status.borrow().clone();
    assert!(status.seen && status.pods == 25 && status.origin == "/api/v1/pods", "{status:?}");
}

#[tokio::test]
async fn an_empty_list_makes_the_source_seen() {
    let server = ApiServer::start().await;
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_status("seen", |status| status.seen).await;
    assert_eq!(followed.said(), [Said::Set(0)]);
}

#[tokio::test]
async fn changes_follow_and_simultaneous_ones_are_emitted_together() {
    let (server, mut followed) = followed().await;
    server.hold();
    server.put_all("pods", (0..10).map(|number| pod(&format!("p{number}"), "n1")));
    server.put("pods", &pod("elsewhere-too", "n2"));
    server.release();
    followed.equals(&server, of_n1).await;
    server.hold();
    for number in 0..10 {
        server.remove("pods", "a", &format!("p{number}"));
    }
    server.release();
    followed.equals(&server, of_n1).await;
    let total = |kind: fn(&Said) -> Option<usize>| followed.said().iter().filter_map(kind).sum::<usize>();
    assert_eq!(total(|said| if let Said::Upsert(pods) = said { Some(*pods) } else { None }), 10);
    assert_eq!(total(|said| if let Said::Remove(pods) = said { Some(*pods) } else { None }), 10);
    assert!(followed.said().len() < 20, "one by one: {:?}", followed.said());
}

#[tokio::test]
async fn a_pod_that_moves_to_or_from_the_node_is_added_or_removed() {
    let (server, mut followed) = followed().await;
    server.put("pods", &pod("elsewhere", "n1"));
    followed.equals(&server, of_n1).await;
    server.put("pods", &pod("elsewhere", "n2"));
    followed.equals(&server, of_n1).await;
    assert_eq!(followed.said()[1..], [Said::Upsert(1), Said::Remove(1)]);
}

#[tokio::test]
async fn history_that_is_gone_is_listed_anew_and_only_what_changed_is_said() {
    let (server, mut followed) = followed().await;
    server.put("pods", &pod("goes", "n1"));
    server.put("pods", &pod("reborn", "n1"));
    followed.equals(&server, of_n1).await;
    let before = followed.said().len();

    server.hold();
    server.put("pods", &changed("stays-0", 2));
    server.put("pods", &pod("new", "n1"));
    server.remove("pods", "a", "goes");
    server.remove("pods", "a", "reborn");
    server.put("pods", &pod("reborn", "n1"));
    server.expire_watches();
    server.release();
    followed.equals(&server, of_n1).await;
    assert_eq!(followed.said()[before..], [Said::Upsert(3), Said::Remove(2)]);
    assert_eq!(followed.status.borrow().relists, 1);

    server.seen(Verb::Watch, 2).await;
    server.watched_by(1).await;
    let before = followed.said().len();
    server.expire_watches();
    server.seen(Verb::Watch, 3).await;
    assert_eq!(followed.said().len(), before, "nothing changed, so nothing is said");
    assert_eq!(followed.status.borrow().relists, 2);
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn history_that_is_gone_by_http_status_is_listed_anew() {
    let (server, mut followed) = followed().await;
    server.gone_as_status();
    server.refuse();
    server.watched_by(0).await;
    server.put("pods", &changed("stays-1", 2));
    server.compact();
    server.accept().await;
    followed.equals(&server, of_n1).await;
    assert_eq!(server.requests(Verb::List), 2);
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_list_whose_pages_expire_begins_again() {
    let server = ApiServer::start().await;
    server.put_all("pods", (0..5).map(|number| pod(&format!("p{number}"), "n1")));
    server.fail(Verb::List, Fault::None);
    server.fail(Verb::List, Fault::Status(410));
    let mut followed = Followed::whole(source(&server).page_size(2).pods());
    followed.equals(&server, |_| true).await;
    assert_eq!(followed.said(), [Said::Set(5)], "half a list is never said");
}

#[tokio::test]
async fn a_connection_that_is_cut_in_an_event_loses_nothing() {
    let (server, mut followed) = followed().await;
    for after in [0, 1, 2, 0] {
        server.fail(Verb::Watch, Fault::CutInEvent(after));
        let watches = server.requests(Verb::Watch);
        server.hold();
        server.close_watches();
        server.seen(Verb::Watch, watches + 1).await;
        server.put("pods", &changed("stays-0", 10 + after as u64));
        server.put("pods", &pod("brief", "n1"));
        server.remove("pods", "a", "brief");
        server.put("pods", &changed("stays-2", 20 + after as u64));
        server.release();
        followed.equals(&server, of_n1).await;
        server.seen(Verb::Watch, watches + 2).await;
        server.watched_by(1).await;
    }
    assert_eq!(server.requests(Verb::List), 1, "a broken watch continues where it was");
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_server_that_goes_away_and_comes_back_is_caught_up_with() {
    let (server, mut followed) = followed().await;
    server.refuse();
    server.watched_by(0).await;
    let held = truth(&server, of_n1);
    server.put("pods", &changed("stays-0", 2));
    server.put("pods", &pod("new", "n1"));
    followed.until_status("a problem", |status| !status.problems.is_empty()).await;
    assert_eq!(followed.reader.load().pods().len(), held.len(), "what was said last stands");
    assert_eq!(followed.status.borrow().problems[0].kind(), ProblemKind::Request);
    server.accept().await;
    followed.equals(&server, of_n1).await;
    assert_eq!(server.requests(Verb::List), 1);
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("one", "n1"));
    server.refuse();
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_status("a problem", |status| status.failed_checks > 1).await;
    assert!(!followed.status.borrow().seen);
    server.accept().await;
    followed.equals(&server, |_| true).await;
}

#[tokio::test]
async fn connections_that_are_cut_at_any_time_are_opened_again() {
    let (server, mut followed) = followed().await;
    for version in 1..6 {
        server.cut_connections();
        server.put("pods", &changed("stays-1", version));
        followed.equals(&server, of_n1).await;
    }
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn events_out_of_order_are_detected_and_the_pods_are_listed_again() {
    let (server, mut followed) = followed().await;
    let mut lists = server.requests(Verb::List);
    let disorders: [&dyn Fn(); 3] = [
        // The older version comes last.
        &|| {
            server.put("pods", &changed("stays-0", 1));
            server.put("pods", &changed("stays-0", 2));
        },
        // A removed pod returns.
        &|| {
            server.put("pods", &pod("brief", "n1"));
            server.remove("pods", "a", "brief");
        },
        // It was removed and added again: the removal comes last.
        &|| {
            server.put("pods", &pod("moves", "n1"));
            server.put("pods", &pod("moves", "n2"));
            server.put("pods", &pod("moves", "n1"));
        },
    ];
    for disorder in disorders {
        server.hold();
        disorder();
        server.release_reversed();
        lists += 1;
        server.seen(Verb::List, lists).await;
        followed.equals(&server, of_n1).await;
        server.watched_by(1).await;
    }
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn versions_may_jump() {
    let (server, mut followed) = followed().await;
    for by in [1, 1000, 5_000_000_000, u64::from(u32::MAX)] {
        server.jump(by);
        server.put("pods", &changed("stays-0", by));
        followed.equals(&server, of_n1).await;
        server.close_watches();
    }
    follows_on(&server, &mut followed).await;
    assert_eq!(server.requests(Verb::List), 1);
}

/// A server with three lasting pods, its backup, and an index that follows later changes and compares soon.
async fn followed_since_a_backup() -> (ApiServer, Store, Followed) {
    let (server, followed) = followed().await;
    drop(followed);
    let backup = server.backup();
    server.put("pods", &changed("stays-0", 1));
    server.put("pods", &changed("stays-1", 1));
    for number in 0..10 {
        server.put("pods", &pod(&format!("forgotten-{number}"), "n1"));
    }
    let followed = follow_with(&server, comparing(&server)).await;
    (server, backup, followed)
}

#[tokio::test]
async fn a_server_restored_from_a_backup_is_detected_although_its_watch_is_silent() {
    let (server, backup, mut followed) = followed_since_a_backup().await;
    server.restore(&backup);
    // The same version of the same pod as before, with other content, and changes that the watch does not
    // report.
    server.put("pods", &changed("stays-0", 99));
    for number in 0..5 {
        server.put("pods", &pod(&format!("new-{number}"), "n1"));
    }
    followed.equals(&server, of_n1).await;
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_restored_server_that_overtook_the_lost_versions_is_listed_again() {
    let (server, backup, mut followed) = followed_since_a_backup().await;
    server.refuse();
    server.watched_by(0).await;
    server.restore(&backup);
    server.put("pods", &changed("stays-0", 99));
    for number in 0..10 {
        server.put("pods", &pod(&format!("new-{number}"), "n1"));
    }
    server.jump(1_000_000);
    server.put("pods", &pod("latest", "n1"));
    server.accept().await;
    followed.equals(&server, of_n1).await;
    let said_so = |said: &&Said| matches!(said, Said::Set(_));
    assert_eq!(followed.said().iter().filter(said_so).count(), 2, "from scratch: {:?}", followed.said());
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_restored_server_with_the_same_pods_is_watched_from_its_own_version() {
    let (server, followed) = followed().await;
    drop(followed);
    let backup = server.backup();
    server.jump(1_000);
    server.put("pods", &pod("elsewhere", "n2"));
    let mut followed = follow_with(&server, comparing(&server)).await;
    server.restore(&backup);
    server.until("a comparison", |server| server.comparisons() == 1).await;
    server.put("pods", &pod("new", "n1"));
    followed.equals(&server, of_n1).await;
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn after_a_cut_the_pods_are_compared_and_an_unchanged_server_is_not_listed_again() {
    let (server, followed) = followed().await;
    drop(followed);
    let mut followed = follow_with(&server, comparing(&server)).await;
    let lists = server.requests(Verb::List);
    for round in 1..=3 {
        server.cut_connections();
        server.put("pods", &changed("stays-0", round));
        server.put("pods", &pod(&format!("p{round}"), "n1"));
        server.remove("pods", "a", &format!("p{}", round - 1));
        server.until("a comparison", |server| server.comparisons() >= round).await;
        followed.equals(&server, of_n1).await;
    }
    // A watch that ends on time is no reason to compare.
    assert_eq!(server.requests(Verb::List) - lists, server.comparisons(), "{:?}", followed.said());
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_stale_cache_causes_a_relist_and_removes_no_pod() {
    let (server, followed) = followed().await;
    drop(followed);
    let mut followed = follow_with(&server, comparing(&server)).await;
    server.fall_behind();
    server.put("pods", &changed("stays-0", 1));
    followed.equals(&server, of_n1).await;
    let whole = |server: &ApiServer| server.requests(Verb::List) - server.comparisons();
    let lists = whole(&server);
    server.cut_connections();
    server.until("a list", |server| whole(server) > lists).await;
    followed.equals(&server, of_n1).await;
    server.catch_up();
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_silent_watch_is_dropped_and_the_pods_are_listed_again() {
    let server = ApiServer::start().await;
    server.bookmark_every(5 * QUICK);
    server.put("pods", &pod("stays-0", "n1"));
    let proxy = Proxy::before(server.port()).await;
    let url = format!("http://127.0.0.1:{}", proxy.port()).parse().unwrap();
    let client = kube::Client::try_from(kube::Config::new(url)).unwrap();
    let silence = Duration::from_secs(2);
    let source = Source::new(client).backoff(QUICK, 4 * QUICK).silence(silence);
    let mut followed = follow_with(&server, source).await;
    let lists = server.requests(Verb::List);
    tokio::time::sleep(silence + 5 * QUICK).await;
    assert_eq!(server.requests(Verb::List), lists, "a bookmark is a word");
    assert!(followed.status.borrow().silence().unwrap() < silence);
    proxy.silence(Forwards::NOTHING);
    server.put("pods", &changed("stays-0", 1));
    followed
        .until_status("a problem", |status| {
            status.problems.iter().any(|problem| problem.message().contains("silent for 2 s"))
        })
        .await;
    followed.equals(&server, of_n1).await;
    assert!(server.requests(Verb::List) > lists, "it was listed again");
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_bookmark_avoids_a_list_after_a_compaction() {
    let (server, mut followed) = followed().await;
    for version in 0..5 {
        server.put("pods", &changed(&format!("p{version}"), version));
    }
    followed.equals(&server, of_n1).await;
    // Only a bookmark advances the version of this watch.
    server.put("pods", &pod("elsewhere-too", "n2"));
    server.send_bookmarks();
    server.compact();
    server.close_watches();
    server.seen(Verb::Watch, 2).await;
    follows_on(&server, &mut followed).await;
    assert_eq!(server.requests(Verb::List), 1);
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("one", "n1"));
    server.fail(Verb::List, Fault::TooManyRequests(1));
    server.fail(Verb::Watch, Fault::TooManyRequests(1));
    let start = Instant::now();
    let mut followed = Followed::whole(source(&server).pods());
    server.seen(Verb::Watch, 2).await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!((server.requests(Verb::List), server.requests(Verb::Watch)), (2, 2));
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn failures_of_every_kind_wait_and_are_got_over() {
    let (server, mut followed) = followed().await;
    for fault in [
        Fault::Status(500),
        Fault::Status(403),
        Fault::Status(410),
        Fault::Drop,
        Fault::Garbage,
        Fault::ErrorEvent(500),
        Fault::ErrorEvent(410),
        Fault::End(0),
        Fault::CutInEvent(0),
    ] {
        for verb in [Verb::Watch, Verb::List] {
            server.fail_always(verb, fault.clone());
        }
        let count = server.requests(Verb::Watch) + server.requests(Verb::List);
        let watches = server.requests(Verb::Watch);
        server.hold();
        server.close_watches();
        server.seen(Verb::Watch, watches + 1).await;
        server.put("pods", &changed("stays-0", count));
        server.release();
        let more =
            |server: &ApiServer| server.requests(Verb::Watch) + server.requests(Verb::List) >= count + 4;
        server.until("more requests", more).await;
        server.heal();
        follows_on(&server, &mut followed).await;
        server.watched_by(1).await;
    }
}

#[tokio::test]
async fn failures_wait_longer_each_time() {
    let server = ApiServer::start().await;
    server.fail_always(Verb::List, Fault::Status(500));
    let start = Instant::now();
    let _followed = Followed::whole(source(&server).backoff(8 * QUICK, 32 * QUICK).pods());
    server.seen(Verb::List, 5).await;
    // Four waits, each at least half of 8, 16, 32, 32.
    assert!(start.elapsed() >= 44 * QUICK);
}

#[tokio::test]
async fn a_server_that_closes_each_watch_at_once_is_not_hammered() {
    let server = ApiServer::start().await;
    server.fail_always(Verb::Watch, Fault::End(0));
    let start = Instant::now();
    let _followed = Followed::whole(source(&server).backoff(8 * QUICK, 32 * QUICK).pods());
    server.seen(Verb::Watch, 5).await;
    assert!(start.elapsed() >= 44 * QUICK);
}

#[tokio::test]
async fn a_server_that_never_answers_is_asked_again() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("one", "n1"));
    let silence = Fault::Delay(2 * DEADLINE);
    server.fail(Verb::List, silence.clone());
    server.fail(Verb::Watch, silence);
    let mut followed = Followed::whole(source(&server).patience(10 * QUICK).pods());
    followed.equals(&server, |_| true).await;
    server.seen(Verb::Watch, 2).await;
    let checks = followed.status.borrow().failed_checks;
    assert!(checks >= 2, "both silences are problems: {checks}");
}

#[tokio::test]
async fn a_pod_that_cannot_be_read_is_reported_and_the_others_stay() {
    let (server, mut followed) = followed().await;
    let mut bad = pod("bad", "n1");
    bad["spec"]["containers"] = json!("none");
    server.put("pods", &bad);
    followed.until_status("a problem", |status| !status.problems.is_empty()).await;
    assert_eq!(followed.reader.load().pods().len(), 3);
    server.remove("pods", "a", "bad");
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn selectors_narrow_what_is_followed() {
    let server = ApiServer::start().await;
    for (namespace, name, phase) in [("a", "one", "Running"), ("a", "two", "Failed"), ("b", "one", "Running")]
    {
        let mut pod = pod(name, "n1");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["status"] = json!({ "phase": phase });
        server.put("pods", &pod);
    }
    let narrowed = source(&server).node(&NodeName::new("n1")).namespace("a");
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let mut running = Followed::whole(narrowed.clone().fields("status.phase=Running").pods());
    running.equals(&server, |pod| pod.namespace() == "a" && phase(pod).as_deref() == Some("Running")).await;
    let mut labelled = Followed::whole(narrowed.labels("app!=one").pods());
    labelled.equals(&server, |pod| pod.namespace() == "a" && pod.name() != "one").await;
    assert_eq!((running.reader.load().pods().len(), labelled.reader.load().pods().len()), (1, 1));
}

#[tokio::test]
async fn a_node_may_follow_its_own_pods() {
    let (server, followed) = followed().await;
    drop(followed);
    server.restrict_to_node("n1");
    let mut followed = follow(&server).await;
    let mut everything = Followed::whole(source(&server).pods());
    everything
        .until_status("forbidden, in the server's words and no others", |status| {
            status.problems.iter().any(|problem| {
                let message = problem.message();
                message.contains("can only list/watch pods with spec.nodeName")
                    && message.ends_with(" (403)")
                    && !message.contains('{')
            })
        })
        .await;
    server.put("pods", &changed("stays-0", 2));
    followed.equals(&server, of_n1).await;
}

#[tokio::test]
async fn metadata_alone_makes_an_index_too() {
    let (server, _whole) = followed().await;
    server.put("pods", &pod("goes", "n1"));
    let mut metadata = Followed::new(source(&server).node(&NodeName::new("n1")).metadata(), |pod| {
        Some((pod.uid().to_owned(), pod.0.metadata.resource_version.clone()))
    });
    metadata.until("four pods", |snapshot| snapshot.pods().len() == 4).await;
    server.put("pods", &changed("stays-0", 2));
    server.remove("pods", "a", "goes");
    let left = truth(&server, of_n1);
    metadata
        .until("the server's pods", |snapshot| {
            snapshot.pods().len() == left.len()
                && snapshot
                    .pods()
                    .iter()
                    .all(|pod| left.get(pod.uid()).is_some_and(|whole| whole.metadata == pod.0.metadata))
        })
        .await;
}

#[tokio::test]
async fn pods_are_slimmed_before_they_are_stored() {
    struct Slim {
        uid: String,
        name: String,
        namespace: String,
    }
    impl PodMeta for Slim {
        fn uid(&self) -> &str {
            &self.uid
        }
        fn name(&self) -> &str {
            &self.name
        }
        fn namespace(&self) -> &str {
            &self.namespace
        }
        fn annotation(&self, _key: &str) -> Option<&str> {
            None
        }
    }
    let (server, _whole) = followed().await;
    let slim = source(&server).pods_with(|pod| Slim {
        uid: pod.uid().to_owned(),
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
    });
    let mut slim = Followed::new(slim, |_| None);
    slim.until("all of them", |snapshot| snapshot.pods().len() == 4).await;
    server.remove("pods", "a", "elsewhere");
    slim.until("one less", |snapshot| snapshot.pod_by_full_name("elsewhere_a").is_none()).await;
}

#[tokio::test]
async fn a_pod_of_the_api_server_is_never_static_whatever_it_says() {
    let server = ApiServer::start().await;
    let mut forged = pod("forged", "n1");
    forged["metadata"]["annotations"] = json!({ "kubernetes.io/config.source": "file" });
    server.put("pods", &forged);
    let mut followed = Followed::whole(source(&server).pods());
    followed.until("the pod", |snapshot| snapshot.pods().len() == 1).await;
    let snapshot = followed.reader.snapshot();
    assert!(!is_static_pod(&**snapshot.pod_by_full_name("forged_a").unwrap()));
    assert!(snapshot.static_pods().is_empty());
}

#[tokio::test]
async fn the_merge_accepts_the_sources_updates_across_a_relist() {
    let (server, followed) = followed().await;
    drop(followed);
    let mut pods = source(&server).node(&NodeName::new("n1")).pods();
    let mut merge = Merge::new([pod_index_kubelet::sources::Source::Api]);
    let first = pods.next().await.unwrap();
    assert!(matches!(&first, SourceUpdate::Set(pods) if pods.len() == 3));
    let merged = merge.update(pod_index_kubelet::sources::Source::Api, first);
    assert!(merge.all_sources_seen() && merged.added.len() == 3);
    let changes = async {
        server.watched_by(1).await;
        server.hold();
        server.remove("pods", "a", "stays-1");
        server.put("pods", &changed("stays-0", 2));
        server.expire_watches();
        server.release();
    };
    let (first, ()) = tokio::join!(pods.next(), changes);
    let updates = [first.unwrap(), pods.next().await.unwrap()];
    let [upserted, removed] =
        updates.map(|update| merge.update(pod_index_kubelet::sources::Source::Api, update));
    assert_eq!((upserted.updated.len(), upserted.removed.len()), (1, 0));
    assert_eq!((removed.updated.len(), removed.removed.len()), (0, 1));
}

/// A generator of numbers that look random: the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[tokio::test]
async fn after_any_mixture_of_changes_and_faults_the_index_holds_the_truth() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let (server, mut followed) = followed().await;
        for step in 0..60 {
            let name = format!("p{}", dice.roll(8));
            match dice.roll(20) {
                0..6 => drop(server.put("pods", &changed(&name, step))),
                6 => drop(server.put("pods", &pod(&name, "n2"))),
                7..9 => drop(server.remove("pods", "a", &name)),
                9 => drop(server.put("pods", &changed(&format!("{STAYS}-{}", dice.roll(3)), step))),
                10 => server.expire_watches(),
                11 => server.compact(),
                12 => server.cut_connections(),
                13 => server.close_watches(),
                14 => server.fail(Verb::Watch, Fault::CutInEvent(dice.roll(3))),
                15 => server
                    .fail(Verb::Watch, [Fault::Status(410), Fault::ErrorEvent(500)][dice.roll(2)].clone()),
                16 => server.fail(Verb::List, [Fault::Status(500), Fault::Drop][dice.roll(2)].clone()),
                17 => server.jump(dice.roll(1000) as u64),
                18 if step % 2 == 0 => server.hold(),
                18 => server.release_reversed(),
                _ => tokio::time::sleep(Duration::from_millis(dice.roll(10) as u64)).await,
            }
        }
        server.heal();
        server.release();
        follows_on(&server, &mut followed).await;
    }
}
