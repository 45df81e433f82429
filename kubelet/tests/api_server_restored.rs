//! The API server source and a server whose state went back: it was restored from a backup, or its cache is old.
//! After each step the index is compared with the server's pods, field by field. No change may be emitted twice,
//! and no pod may be missing for a moment.

use crate::followed;
use crate::node_followed;
use pod_index_test_support::api_server;

use std::time::Duration;

use api_server::{ApiServer, DEADLINE, Fault, Store, Verb};
use followed::{Followed, Said};
use node_followed::{
    QUICK, changed, client_through, follow_with, followed, follows_on, of_n1, pod, quick, source,
};
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use pod_index_test_support::proxy::{Forwards, Proxy};

/// A source that compares soon.
fn comparing(server: &ApiServer) -> Source {
    Source { times: Times { compare_after: 4 * QUICK, ..quick() }, ..source(server) }
}

/// A server with three lasting pods, and an index that follows it and compares soon.
async fn followed_comparing() -> (ApiServer, Followed) {
    let (server, followed) = followed().await;
    drop(followed);
    let followed = follow_with(&server, comparing(&server)).await;
    (server, followed)
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
    assert_eq!(followed.status.borrow().relists, 1, "pods may have come and gone");
    follows_on(&server, &mut followed).await;
}

/// The list of a comparison may be what opens the connection, or hold one of the few requests that are sent at a time. If it
/// stood still while the watch is opened again, the watch might wait for it, and it for the watch.
#[tokio::test]
async fn a_comparison_goes_on_while_the_watch_is_opened_again() {
    let (server, followed) = followed().await;
    drop(followed);
    let times = Times { compare_after: Duration::from_millis(500), ..quick() };
    let followed = follow_with(&server, Source { times, ..source(&server) }).await;
    let lists = server.requests(Verb::List);
    let watches = server.requests(Verb::Watch);
    // The watch goes on after the cut, and is to be compared. The next one waits.
    server.fail(Verb::Watch, Fault::None);
    server.fail_always(Verb::Watch, Fault::Delay(10 * DEADLINE));
    server.cut_connections();
    server.seen(Verb::Watch, watches + 1).await;
    server.watched_by(1).await;
    server.close_watches();
    server.seen(Verb::Watch, watches + 2).await;
    server.seen(Verb::List, lists + 1).await;
    drop(followed);
}

/// The proxy keeps the client's connection, so that nothing but the silence is seen of the restoration.
#[tokio::test]
async fn a_server_restored_behind_a_silent_proxy_is_detected() {
    let (server, backup, followed) = followed_since_a_backup().await;
    drop(followed);
    let proxy = Proxy::before(server.port()).await;
    let times = Times { silence: Duration::from_secs(2), compare_after: 4 * QUICK, ..quick() };
    let source = Source { times, ..Source::new(client_through(&proxy).await) };
    let mut followed = follow_with(&server, source).await;
    proxy.silence(Forwards::NOTHING);
    server.restore(&backup);
    server.put("pods", &changed("stays-0", 99));
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
async fn a_list_that_shows_a_pod_in_an_older_version_is_that_of_a_restored_server() {
    let (server, backup, mut followed) = followed_since_a_backup().await;
    server.hold();
    server.restore(&backup);
    // The same version of the same pod as before, with other content.
    server.put("pods", &changed("stays-0", 99));
    server.jump(1_000_000);
    server.put("pods", &pod("latest", "n1"));
    server.expire_watches();
    server.release();
    followed.equals(&server, of_n1).await;
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
async fn a_comparison_without_a_difference_is_a_word_of_the_server() {
    let (server, followed) = followed_comparing().await;
    // Neither an event nor a bookmark is sent.
    server.hold();
    let watches = server.requests(Verb::Watch);
    server.cut_connections();
    server.seen(Verb::Watch, watches + 1).await;
    let before = followed.status.borrow().last_heard;
    let heard = async {
        while followed.status.borrow().last_heard == before {
            tokio::time::sleep(QUICK).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, heard).await.is_ok(), "never heard");
    assert_eq!(server.comparisons(), 1);
}

#[tokio::test]
async fn after_a_cut_the_pods_are_compared_and_an_unchanged_server_is_not_listed_again() {
    let (server, mut followed) = followed_comparing().await;
    let lists = server.requests(Verb::List);
    for round in 1..=3 {
        if round == 2 {
            // An orderly end before its time, as of a server that restarts.
            server.close_watches();
        } else {
            server.cut_connections();
        }
        server.put("pods", &changed("stays-0", round));
        server.put("pods", &pod(&format!("p{round}"), "n1"));
        server.remove("pods", "a", &format!("p{}", round - 1));
        server.until("a comparison", |server| server.comparisons() >= round).await;
        followed.equals(&server, of_n1).await;
    }
    // What changes after the comparison's list is no difference.
    server.put("pods", &changed("stays-1", 1));
    server.remove("pods", "a", "p3");
    followed.equals(&server, of_n1).await;
    // The comparison ends a quarter of its delay after its list.
    tokio::time::sleep(4 * QUICK).await;
    // A watch that ends on time is no reason to compare.
    assert_eq!(server.requests(Verb::List) - lists, server.comparisons(), "{:?}", followed.said());
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn a_stale_cache_causes_a_relist_and_removes_no_pod() {
    let (server, mut followed) = followed_comparing().await;
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

/// Everything since the backup is lost, so no pod that the list shows is older than before.
#[tokio::test]
async fn a_list_of_an_older_version_is_that_of_a_restored_server_although_it_shows_no_older_pod() {
    let server = ApiServer::start().await;
    let backup = server.backup();
    for number in 0..3 {
        server.put("pods", &pod(&format!("forgotten-{number}"), "n1"));
    }
    let mut followed = follow_with(&server, source(&server)).await;
    // The watch that goes on is refused, so the pods are listed.
    server.fail(Verb::Watch, Fault::ErrorEvent(410));
    server.restore(&backup);
    followed.equals(&server, of_n1).await;
    assert_eq!(followed.said(), [Said::Set(3), Said::Set(0)], "from scratch");
    follows_on(&server, &mut followed).await;
}
