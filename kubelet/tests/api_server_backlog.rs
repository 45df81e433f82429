//! Until when the API server source has reported everything. After an outage, its watch goes on where it stopped, and first sends what
//! was missed, which may take long. Meanwhile, no later time is certain.

use crate::followed;
use crate::node_followed;
use pod_index_test_support::api_server;

use std::time::{Duration, Instant};

use api_server::{ApiServer, DEADLINE, Fault, Verb};
use followed::Followed;
use node_followed::{QUICK, changed, follow_with, followed, pod, quick, source};
use pod_index_kubelet::sources::NodeName;
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};

/// `None` before the first list.
fn reported_until(followed: &Followed) -> Option<Instant> {
    followed.status.borrow().reported_until
}

fn has(followed: &Followed, name: &str) -> bool {
    followed.reader.load().pod_by_name("a", name).is_some()
}

/// The server goes away. Returns when.
async fn refuse(server: &ApiServer) -> Instant {
    let now = Instant::now();
    server.refuse();
    server.watched_by(0).await;
    // Only the test sends bookmarks.
    server.bookmark_every(10 * DEADLINE);
    now
}

async fn until_reported(followed: &Followed, time: Instant) {
    // Nobody is woken when the time alone has changed.
    let reported = async {
        while reported_until(followed) < Some(time) {
            tokio::time::sleep(QUICK).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, reported).await.is_ok(), "never reported");
}

/// A source that compares soon.
async fn comparing(server: &ApiServer) -> Followed {
    let times = Times { compare_after: 4 * QUICK, ..quick() };
    follow_with(server, Source { times, ..source(server) }).await
}

/// Waits until a comparison has found no difference.
async fn until_compared(server: &ApiServer, followed: &Followed) {
    let heard = followed.status.borrow().last_heard;
    let compared = async {
        while followed.status.borrow().last_heard == heard {
            tokio::time::sleep(QUICK).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, compared).await.is_ok(), "never compared");
    assert!(server.comparisons() > 0);
}

/// Otherwise a pod that went in the outage would be certain until its removal comes, at a time when it was gone.
#[tokio::test]
async fn what_was_missed_counts_as_reported_after_its_last_event_however_slowly_it_comes() {
    let (server, mut followed) = followed().await;
    server.put("pods", &pod("gone", "n1"));
    followed.until("the pod", |pods| pods.pod_by_name("a", "gone").is_some()).await;
    let outage = refuse(&server).await;
    for number in 0..3 {
        server.put("pods", &pod(&format!("missed-{number}"), "n1"));
    }
    server.remove("pods", "a", "gone");
    server.fail(Verb::Watch, Fault::Slow(Duration::from_millis(1100)));
    server.accept().await;
    loop {
        let until = reported_until(&followed);
        // Read after the status: an index that lacks the removal lacked it before.
        if !has(&followed, "gone") {
            break;
        }
        let arrived = (0..3).filter(|number| has(&followed, &format!("missed-{number}"))).count();
        assert!(until < Some(outage), "after {arrived} of 4 events");
        tokio::time::sleep(QUICK).await;
    }
    assert!(reported_until(&followed) < Some(outage), "nothing says that this was the last event");
    server.send_bookmarks();
    until_reported(&followed, outage).await;
    // From now on, each event counts at once.
    let later = Instant::now();
    server.put("pods", &changed("stays-0", 2));
    until_reported(&followed, later).await;
}

/// A list shows what is there. Of what came and went, only the watch tells.
#[tokio::test]
async fn a_comparison_without_a_difference_does_not_say_that_nothing_came_and_went() {
    let (server, first) = followed().await;
    drop(first);
    let followed = comparing(&server).await;
    let outage = refuse(&server).await;
    server.put("pods", &pod("brief", "n1"));
    server.remove("pods", "a", "brief");
    server.hold();
    server.accept().await;
    until_compared(&server, &followed).await;
    assert!(reported_until(&followed) < Some(outage), "its events are still to come");
    server.release();
    server.send_bookmarks();
    until_reported(&followed, outage).await;
}

#[tokio::test]
async fn if_nothing_has_changed_in_an_outage_a_comparison_says_so_without_a_bookmark() {
    let (server, first) = followed().await;
    drop(first);
    let followed = comparing(&server).await;
    let outage = refuse(&server).await;
    server.hold();
    server.accept().await;
    until_reported(&followed, outage).await;
}

/// Its objects are those of the time when it was requested.
#[tokio::test]
async fn a_list_reports_nothing_of_the_time_in_which_it_was_sent() {
    const DELAY: Duration = Duration::from_secs(2);
    let (server, first) = followed().await;
    drop(first);
    server.fail(Verb::List, Fault::Delay(DELAY));
    let pods = source(&server).node(&NodeName::new("n1")).pods();
    let mut followed = Followed::whole(pods);
    let before = Instant::now();
    followed.until_status("a list", |status| status.seen).await;
    until_reported(&followed, before).await;
    assert!(reported_until(&followed).is_some_and(|until| until + DELAY <= Instant::now()));
}
