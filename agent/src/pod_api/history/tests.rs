//! The limits of the history.

use std::pin::pin;
use std::sync::{OnceLock, Weak};
use std::task::{Context, Wake, Waker};

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;

use super::super::pod;
use super::super::query::Options;
use super::super::watch;
use super::*;
use crate::api::client::{Client, Clients};
use crate::api::selectors::Selector;
use crate::config::values::MostWatches;

/// The pods that exist at any time.
const PODS: usize = 10;
const MIB: usize = 1 << 20;

/// Bytes of an annotation of a pod.
const LARGE: usize = 20_000;

/// A history, and every version of every pod that it was given.
struct World {
    history: Arc<History>,
    given: Vec<Weak<Pod>>,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            history: Arc::new(History::new(
                &pod::PODS,
                1000,
                limits,
                &WatchLimits::of(MostWatches { of_all: usize::MAX, of_client: usize::MAX }),
            )),
            given: Vec::new(),
        }
    }

    /// Changes the next pod.
    fn change(&mut self, bytes: usize) {
        let next = self.next(bytes);
        self.history.show(vec![next]);
    }

    /// The next version of the next pod.
    fn next(&mut self, bytes: usize) -> Shown {
        let number = self.given.len();
        let mut pod = Pod::default();
        pod.metadata.uid = Some((number % PODS).to_string());
        pod.metadata.annotations = Some([("filler".to_owned(), "x".repeat(bytes))].into());
        pod.metadata.labels = Some([("pod".to_owned(), (number % PODS).to_string())].into());
        let pod = Arc::new(pod);
        self.given.push(Arc::downgrade(&pod));
        let object = ShownObject { item: pod, is_in_kubelet_view: true };
        Shown { key: format!("ns/{}", number % PODS).into(), object: Some(object) }
    }

    /// The number of decoded pods that still exist, without those that are current.
    fn replaced(&self) -> usize {
        self.given.iter().rev().skip(PODS).filter_map(Weak::upgrade).count()
    }

    fn watch(&self, selector: &str, start: Option<u64>) -> Watcher {
        let labels = Selector::labels(selector).unwrap();
        let selection = Arc::new(Selection { labels, ..Selection::default() });
        self.history.watch(selection, &Clients::new().named("client"), start).unwrap().0
    }

    /// The oldest version from which a watch can start.
    fn oldest(&self) -> u64 {
        let inner = self.history.lock();
        inner.version - inner.events.len() as u64
    }
}

fn limits(bytes: usize) -> Limits {
    let age = Duration::from_secs(3600);
    Limits { events: 4096, age, bytes }
}

/// The number of events until the watch has caught up. `Err`: it fell out of the history.
fn follow(watcher: &mut Watcher) -> Result<u64, Refusal> {
    let mut events = 0;
    loop {
        match watcher.next() {
            Next::Event(kind, event) => {
                watcher.history.line(&event, Form::Object, kind);
                events += 1;
            }
            Next::More => {}
            Next::Nothing => return Ok(events),
            Next::TooOld(refusal) => return Err(refusal),
            Next::Closed => unreachable!(),
        }
    }
}

#[test]
fn what_is_shown_again_is_no_event_and_a_pod_of_another_uid_is_two() {
    let world = World::new(limits(MIB));
    let mut watcher = world.watch("", None);
    let pod = |uid: &str| -> Arc<dyn Item> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    };
    let [one, other] = ["a", "b"].map(pod);
    for (shown, events) in [
        (Some((&one, true)), 1),
        (Some((&one, true)), 0),
        (Some((&one, false)), 1),
        (Some((&other, false)), 2),
        (None, 1),
        (None, 0),
    ] {
        let before = world.history.sizes().events;
        let object =
            shown.map(|(pod, is_in_kubelet_view)| ShownObject { item: Arc::clone(pod), is_in_kubelet_view });
        world.history.show(vec![Shown { key: "ns/web".into(), object }]);
        assert_eq!(world.history.sizes().events - before, events);
        assert_eq!(follow(&mut watcher).unwrap(), events as u64);
    }
}

#[test]
fn the_history_is_bounded_and_watches_within_the_bound_see_every_event() {
    let mut world = World::new(limits(MIB));
    world.change(LARGE);
    let mut first = world.watch("", None);
    let mut slow = world.watch("", None);
    for change in 2..1000 {
        world.change(LARGE);
        assert_eq!(world.replaced(), 0, "replaced pods are kept encoded");
        assert!(world.history.sizes().bytes <= MIB, "after {change} changes");
        assert_eq!(follow(&mut first).unwrap(), 1, "a watch that follows loses nothing");
    }
    let Sizes { events, bytes } = world.history.sizes();
    assert!(bytes > MIB - 3 * LARGE, "only as many are dropped as necessary");
    // Each event keeps its line and the pod that it replaced.
    assert!((2 * LARGE..2 * LARGE + 2000).contains(&(bytes / events)), "{bytes} for {events} events");
    let oldest = world.oldest();
    assert_eq!(follow(&mut world.watch("", Some(oldest))).unwrap(), events as u64);
    assert!(follow(&mut world.watch("", Some(oldest - 1))).is_err(), "410, as for a version that is too old");
    assert!(follow(&mut slow).is_err());
}

#[test]
fn a_list_is_of_a_version_that_exists_or_is_refused() {
    let mut world = World::new(limits(MIB));
    world.change(1);
    world.change(1);
    let latest = world.history.now().version;
    for (version, exact, refused) in [
        (latest, false, None),
        (latest - 1, false, None),
        (latest + 1, false, Some("there is no resource version 1003 yet (the latest is 1002)")),
        (latest, true, None),
        (latest - 1, true, Some("too old resource version: 1001 (1000)")),
        (latest + 1, true, Some("there is no resource version 1003 yet (the latest is 1002)")),
    ] {
        let said = world.history.check(version, exact).err().map(|refusal| refusal.status().message.clone());
        assert_eq!(said.flatten().as_deref(), refused, "{version} {exact}");
    }
}

#[test]
fn as_many_events_are_stored_as_the_limit_allows() {
    let mut world = World::new(Limits { events: 7, ..limits(MIB) });
    (0..50).for_each(|_| world.change(1));
    assert_eq!(world.history.sizes().events, 7);
}

/// A thousand watches encode an event once.
#[test]
fn watches_share_the_lines_of_events_which_count_for_the_limit_of_bytes() {
    let mut world = World::new(limits(MIB));
    let mut watches = [(); 3].map(|()| world.watch("", None));
    (0..PODS).for_each(|_| world.change(MIB / 20));
    assert_eq!(world.history.sizes(), Sizes { events: PODS, bytes: 0 }, "nothing was replaced or encoded");
    for watch in &mut watches {
        assert_eq!(follow(watch).unwrap(), PODS as u64);
    }
    assert_eq!(world.history.watch_limits.encoded.load(Ordering::Relaxed), PODS as u64);
    let mut world = World::new(limits(MIB / 4));
    let mut watch = world.watch("", None);
    (0..PODS).for_each(|_| world.change(MIB / 20));
    while let Next::Event(kind, event) = watch.next() {
        world.history.line(&event, Form::Object, kind);
        assert!(world.history.sizes().bytes <= MIB / 4);
    }
}

#[test]
fn watches_that_are_refused_or_end_too_old_are_counted() {
    let mut world = World::new(limits(MIB));
    let watch_limits = WatchLimits::of(MostWatches { of_all: 1, of_client: 1 });
    let history = Arc::new(History::new(&pod::PODS, 1000, limits(MIB), &watch_limits));
    world.history = history;
    let mut watch = world.watch("", Some(999));
    let client = Clients::new().named("client");
    assert!(world.history.watch(Arc::new(Selection::default()), &client, None).is_err());
    assert!(matches!(watch.next(), Next::TooOld(_)));
    let counts = [&watch_limits.refused, &watch_limits.too_old].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 1]);
}

/// A watch waits without a step, and ends when the agent does: a client connects to the next one at once.
#[tokio::test]
async fn a_watch_sleeps_until_there_is_an_event_and_ends_with_the_agent() {
    let mut world = World::new(limits(MIB));
    let mut watch = world.watch("", None);
    let sleeps =
        |watch: &mut Watcher| pin!(watch.woken()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(sleeps(&mut watch));
    world.change(1);
    assert!(!sleeps(&mut watch));
    assert_eq!(follow(&mut watch).unwrap(), 1);
    assert!(sleeps(&mut watch), "it has seen the event");
    world.change(1);
    world.history.close();
    assert!(!sleeps(&mut watch));
    assert!(matches!(watch.next(), Next::Closed));
}

/// The version of a history when it first woke a watch.
struct WokenAt(Arc<History>, OnceLock<u64>);

impl Wake for WokenAt {
    fn wake(self: Arc<Self>) {
        self.1.get_or_init(|| self.0.now().version);
    }
}

#[test]
fn a_large_batch_wakes_watches_before_its_end_and_at_its_end() {
    for (bytes, events) in [(0, TURN + 1), (2 * LARGE, 3)] {
        let mut world = World::new(limits(TURN * LARGE));
        (0..PODS).for_each(|_| world.change(bytes));
        let batch = (0..events).map(|_| world.next(bytes)).collect();
        let start = world.history.now().version;
        let mut latest = world.history.latest.subscribe();
        let woken = Arc::new(WokenAt(Arc::clone(&world.history), OnceLock::new()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut changed = pin!(latest.changed());
        assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        world.history.show(batch);
        let end = start + events as u64;
        assert!(*woken.1.get().unwrap() < end, "{bytes}");
        assert_eq!(*world.history.latest.borrow(), Some(end));
    }
}

#[test]
fn no_event_stays_beyond_the_limit_however_large_its_pod_is() {
    let mut world = World::new(limits(MIB));
    (0..PODS).for_each(|_| world.change(MIB));
    let mut watch = world.watch("", None);
    world.change(MIB);
    assert_eq!(world.history.sizes(), Sizes { events: 0, bytes: 0 });
    assert!(follow(&mut watch).is_err(), "410: the client lists again");
    world.change(1);
    assert!(follow(&mut world.watch("", None)).is_ok());
}

#[test]
fn added_pods_take_no_space_and_old_events_give_theirs_back() {
    let mut world = World::new(Limits { age: Duration::from_secs(1), ..limits(MIB) });
    (0..PODS).for_each(|_| world.change(LARGE));
    assert_eq!(world.history.sizes().bytes, 0, "nothing was replaced");
    world.change(LARGE);
    world.history.lock().events.iter_mut().for_each(|kept| kept.since -= Duration::from_secs(2));
    world.change(LARGE);
    assert_eq!(world.history.sizes().events, 1, "the last one stays");
}

/// A watch that was away gets the same events as one that followed.
#[test]
fn an_event_whose_pods_were_replaced_is_the_same_as_before() {
    let mut world = World::new(limits(10 * MIB));
    (0..PODS).for_each(|_| world.change(10));
    let start = world.history.now().version;
    let mut followed = world.watch("pod in (1,2)", None);
    let mut lines = Vec::new();
    for _ in 0..30 {
        world.change(10);
        while let Next::Event(kind, event) = followed.next() {
            lines.push(world.history.line(&event, Form::Object, kind));
        }
    }
    assert_eq!(lines.len(), 6);
    let mut late = world.watch("pod in (1,2)", Some(start));
    for line in lines {
        let found = loop {
            match late.next() {
                Next::Event(kind, event) => break event.encode(Form::Object, kind, false),
                Next::More => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(found, line);
    }
}

/// The lock is for positions alone: an event is matched by its watch, and a long selector takes more steps.
#[test]
fn a_watch_matches_a_bounded_number_of_terms_in_a_step() {
    let mut world = World::new(limits(10 * MIB));
    let long = (0..250).map(|n| format!("!z{n}")).collect::<Vec<_>>().join(",") + ",!pod";
    let [mut short, mut long] = ["!pod", &*long].map(|selector| world.watch(selector, None));
    (0..100).for_each(|_| world.change(1));
    let steps = |watcher: &mut Watcher| {
        (1..1_000_usize).find(|_| !matches!(watcher.next(), Next::More | Next::Event(..))).unwrap()
    };
    assert_eq!(steps(&mut short), 1);
    assert!(steps(&mut long) >= 100 * 250 / WORK);
}

#[tokio::test]
async fn a_watch_whose_client_does_not_read_holds_no_replaced_pods() {
    let mut world = World::new(limits(MIB));
    world.change(LARGE);
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let peer = Clients::new().peer("client");
        let client = Client { limits: Arc::clone(peer.unnamed_limits()), peer };
        let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let options = Options::read(&pod::PODS, Some(query), None).unwrap();
        let mut body = watch::response_body(&world.history, &client, options, Form::Object).await.unwrap();
        (0..20).for_each(|_| world.change(LARGE));
        // The first of twenty events.
        let _ = body.frame().await.unwrap().unwrap();
        bodies.push(body);
    }
    (0..500).for_each(|_| world.change(LARGE));
    assert_eq!(world.replaced(), 0);
    assert!(world.history.sizes().bytes <= MIB);
}
