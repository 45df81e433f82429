//! The API server source against a server with every kind of failure.
//! After each step the index is compared with the server's pods, field by field. No change may be emitted twice,
//! and no pod may be missing for a moment.

use crate::followed;
use crate::node_followed;
use pod_index_test_support::api_server;

use std::time::{Duration, Instant};

use api_server::{ApiServer, DEADLINE, Fault, Verb};
use followed::{Followed, STAYS, Said, truth};
use k8s_openapi::api::core::v1::Pod;
use node_followed::{
    QUICK, changed, client_through, encoded, follow_with, followed, followed_in_protobuf, follows_on, of_n1,
    pod, quick, source,
};
use pod_index_kubelet::Pauses;
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use pod_index_kubelet::sources::{ProblemKind, SourceStatus};
use pod_index_test_support::dice::Dice;
use pod_index_test_support::proxy::{Forwards, Proxy};

#[tokio::test]
async fn history_that_is_gone_is_listed_anew_and_only_what_changed_is_said() {
    let (server, followed) = followed().await;
    history_is_gone(server, followed).await;
    let (server, followed) = followed_in_protobuf().await;
    history_is_gone(server, followed).await;
}

async fn history_is_gone(server: ApiServer, mut followed: Followed) {
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
async fn a_list_that_is_refused_as_too_old_or_too_new_is_repeated_with_the_latest_version() {
    for (refusal, in_protobuf) in [Fault::Status(410), Fault::TooLargeVersion]
        .into_iter()
        .flat_map(|refusal| [(refusal.clone(), false), (refusal, true)])
    {
        let (server, mut followed) =
            if in_protobuf { followed_in_protobuf().await } else { followed().await };
        server.fail(Verb::List, refusal);
        server.put("pods", &changed("stays-1", 2));
        server.expire_watches();
        followed.equals(&server, of_n1).await;
        let versions = server.listed_versions();
        assert!(matches!(&versions[..], [Some(0), Some(1..), None]), "{versions:?}");
        follows_on(&server, &mut followed).await;
    }
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
        // Versions may jump.
        server.jump(5_000_000_000);
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
    assert_eq!(followed.status.borrow().problems[0].kind, ProblemKind::Request);
    server.accept().await;
    followed.equals(&server, of_n1).await;
    assert_eq!(server.requests(Verb::List), 1);
    follows_on(&server, &mut followed).await;
    followed
        .until_status("no next try, as it is connected", |status| status.until_next_try().is_none())
        .await;
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
async fn a_watch_that_goes_on_has_told_nothing_before_its_first_event() {
    let (server, mut followed) = followed().await;
    server.hold();
    server.refuse();
    followed.until_status("a failure", |status| !status.problems.is_empty()).await;
    let heard = followed.status.borrow().last_heard;
    server.put("pods", &changed("stays-0", 1));
    server.accept().await;
    followed.until_status("a watch", |status| status.problems.is_empty()).await;
    assert_eq!(followed.status.borrow().last_heard, heard, "the change has not arrived");
    server.release();
    followed.equals(&server, of_n1).await;
    assert!(followed.status.borrow().last_heard > heard);
}

/// A server with one pod, a proxy before it, and an index that gives up a watch after this silence.
async fn followed_through_proxy(silence: Duration) -> (ApiServer, Proxy, Followed) {
    let server = ApiServer::start().await;
    server.bookmark_every(5 * QUICK);
    server.put("pods", &pod("stays-0", "n1"));
    let proxy = Proxy::before(server.port()).await;
    let source = Source { times: Times { silence, ..quick() }, ..Source::new(client_through(&proxy).await) };
    let followed = follow_with(&server, source).await;
    (server, proxy, followed)
}

#[tokio::test]
async fn a_silent_watch_continues_over_another_connection_without_a_list() {
    let silence = Duration::from_secs(2);
    let (server, proxy, mut followed) = followed_through_proxy(silence).await;
    let watches = server.requests(Verb::Watch);
    tokio::time::sleep(silence + 5 * QUICK).await;
    assert_eq!(server.requests(Verb::Watch), watches, "a bookmark is a word");
    assert!(followed.status.borrow().silence().unwrap() < silence);
    let connections = proxy.accepted();
    proxy.silence(Forwards::NOTHING);
    server.put("pods", &changed("stays-0", 1));
    followed.equals(&server, of_n1).await;
    assert!(proxy.accepted() > connections, "by another connection");
    assert_eq!(server.requests(Verb::List), 1, "the watch sends what was swallowed");
    let status = followed.status.borrow().clone();
    assert_eq!((status.relists, status.failed_checks), (0, 0), "{:?}", status.problems);
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_silent_watch_whose_history_is_gone_is_listed_again() {
    let (server, proxy, mut followed) = followed_through_proxy(Duration::from_secs(2)).await;
    proxy.silence(Forwards::NOTHING);
    server.put("pods", &changed("stays-0", 1));
    server.compact();
    followed.equals(&server, of_n1).await;
    assert_eq!(server.requests(Verb::List), 2);
    assert_eq!(followed.status.borrow().relists, 1, "pods may have come and gone");
    follows_on(&server, &mut followed).await;
}

/// As with etcd's default of one notice in 10 minutes.
#[tokio::test]
async fn a_server_without_progress_notices_is_neither_listed_again_nor_believed_when_a_watch_does_not_end() {
    let silence = Duration::from_secs(4);
    let (server, proxy, mut followed) = followed_through_proxy(silence).await;
    server.without_progress_notices();
    // The first ends by its silence. The server ends the others before.
    server.seen(Verb::Watch, 5).await;
    assert_eq!(server.requests(Verb::List), 1, "nothing has changed");
    let status = followed.status.borrow().clone();
    assert_eq!((status.relists, status.failed_checks), (0, 0), "{:?}", status.problems);
    assert!(status.silence().unwrap() < silence, "the end of a watch is a word: {:?}", status.silence());
    follows_on(&server, &mut followed).await;

    let connections = proxy.accepted();
    proxy.silence(Forwards { to_server: true, to_client: false });
    server.put("pods", &changed("stays-0", 1));
    followed.until_status("a watch that does not end", |status| status.failed_checks == 1).await;
    followed.equals(&server, of_n1).await;
    assert!(proxy.accepted() > connections, "by another connection");
    assert_eq!(server.requests(Verb::List), 1, "the watch sends what was swallowed");
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
async fn failures_and_watches_that_end_at_once_wait_longer_each_time() {
    // Four waits, each at least two thirds of 8, 16, 32, 64.
    for (verb, fault, least) in
        [(Verb::List, Fault::Status(500), 80 * QUICK), (Verb::Watch, Fault::End(0), 58 * QUICK)]
    {
        let server = ApiServer::start().await;
        server.fail_always(verb, fault);
        let (start, times) =
            (Instant::now(), Times { backoff: Pauses::new(8 * QUICK, 64 * QUICK), ..quick() });
        let _followed = Followed::whole(Source { times, ..source(&server) }.pods());
        server.seen(verb, 5).await;
        assert!(start.elapsed() >= least, "{verb:?}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_asked_again() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("one", "n1"));
    let silence = Fault::Delay(2 * DEADLINE);
    server.fail(Verb::List, silence.clone());
    server.fail(Verb::Watch, silence);
    let times = Times { patience: 10 * QUICK, ..quick() };
    let mut followed = Followed::whole(Source { times, ..source(&server) }.pods());
    followed.equals(&server, |_| true).await;
    server.seen(Verb::Watch, 2).await;
    let checks = followed.status.borrow().failed_checks;
    assert!(checks >= 2, "both silences are problems: {checks}");
}

#[tokio::test]
async fn after_any_mixture_of_changes_and_faults_the_index_holds_the_truth() {
    for seed in 0..12 {
        // Every other server speaks protobuf.
        let (server, followed) = if seed % 2 == 0 { followed().await } else { followed_in_protobuf().await };
        mixture_of_changes_and_faults(server, followed, seed).await;
    }
}

async fn mixture_of_changes_and_faults(server: ApiServer, mut followed: Followed, seed: u64) {
    let mut dice = Dice(seed);
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
            14 => server.fail(Verb::Watch, Fault::CutInEvent(dice.index(3))),
            15 => {
                server.fail(Verb::Watch, dice.pick(&[&Fault::Status(410), &Fault::ErrorEvent(500)]).clone());
            }
            16 => server.fail(Verb::List, dice.pick(&[&Fault::Status(500), &Fault::Drop]).clone()),
            17 => server.jump(dice.roll(1000)),
            18 if step % 2 == 0 => server.hold(),
            18 => server.release_reversed(),
            _ => tokio::time::sleep(Duration::from_millis(dice.roll(10))).await,
        }
    }
    server.heal();
    server.release();
    follows_on(&server, &mut followed).await;
}

/// A proxy, or a server with a defect.
#[tokio::test]
async fn after_an_answer_in_protobuf_that_cannot_be_read_all_are_in_json() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("stays-0", "n1"));
    server.break_protobuf();
    let mut followed = Followed::whole(source(&server).pods());
    followed.equals(&server, |_| true).await;
    server.watched_by(1).await;
    followed.until_status("problem solved", |status| status.problems.is_empty()).await;
    server.put("pods", &pod("new", "n1"));
    followed.equals(&server, |_| true).await;
    assert_eq!(server.answers_in_protobuf(), 1);
    assert_eq!(followed.status.borrow().failed_checks, 1);
}

/// What an embedder does with a pod may panic, as any program.
#[tokio::test]
async fn a_pod_on_which_the_source_panics_costs_no_other_and_is_named_until_it_is_gone() {
    let in_json = ApiServer::start().await;
    panics_on_a_pod(in_json).await;
    let in_protobuf = ApiServer::start().await;
    in_protobuf.speak_protobuf(encoded);
    panics_on_a_pod(in_protobuf).await;
}

async fn panics_on_a_pod(server: ApiServer) {
    let is_good = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() != Some("i:666");
    let panics = move |pod: Pod| {
        assert!(is_good(&pod), "the test's panic");
        pod
    };
    let named = |status: &SourceStatus| {
        let defects = status.problems.iter().filter(|problem| problem.kind == ProblemKind::Defect);
        defects.map(|problem| problem.origin.clone()).collect::<Vec<_>>()
    };
    server.put("pods", &pod("stays-0", "n1"));
    server.put("pods", &pod("stays-1", "n1"));
    server.put("pods", &changed("of-the-list", 666));
    let mut followed = Followed::whole(source(&server).pods_with(panics));
    followed.equals(&server, is_good).await;
    followed.until_status("the pod of the list", |status| named(status) == ["a/of-the-list"]).await;

    server.watched_by(1).await;
    server.put("pods", &changed("of-an-event", 666));
    server.put("pods", &pod("new", "n1"));
    followed.equals(&server, is_good).await;
    let both = ["a/of-an-event", "a/of-the-list"];
    followed.until_status("the pod of an event", |status| sorted(named(status)) == both).await;
    assert_eq!(followed.status.borrow().relists, 0, "nothing is listed again because of a panic");

    // Its last good version stays: `Followed` checks that it is never missing.
    server.put("pods", &changed("stays-1", 666));
    let three = ["a/of-an-event", "a/of-the-list", "a/stays-1"];
    followed.until_status("a pod that was good", |status| sorted(named(status)) == three).await;
    assert_eq!(followed.status.borrow().pods, 3);

    // A new list has the same versions of them.
    let before = followed.said().len();
    server.seen(Verb::Watch, 1).await;
    server.expire_watches();
    server.seen(Verb::Watch, 2).await;
    let status = followed.status.borrow().clone();
    assert_eq!((status.relists, sorted(named(&status))), (1, three.map(str::to_owned).to_vec()));

    server.remove("pods", "a", "of-the-list");
    server.remove("pods", "a", "of-an-event");
    server.put("pods", &changed("stays-1", 667));
    followed.until_status("problems solved", |status| status.problems.is_empty()).await;
    followed.equals(&server, |_| true).await;
    assert_eq!(followed.said()[before..], [Said::Upsert(1)], "nothing is removed that was never emitted");
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
