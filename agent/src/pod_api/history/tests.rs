//! The limits of the history.

use std::sync::Weak;

use http_body_util::BodyExt;

use super::super::client::{Client, Peer};
use super::super::query::Options;
use super::super::shape::Form;
use super::super::watch;
use super::*;

/// The pods that exist at any time.
const PODS: usize = 10;
const MIB: usize = 1 << 20;

/// Bytes of memory of a pod.
const LARGE: usize = 20_000;

/// A history, and every version of every pod that it was given.
struct World {
    history: Arc<History>,
    given: Vec<Weak<Pod>>,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self { history: Arc::new(History::new(1000, limits)), given: Vec::new() }
    }

    /// Changes the next pod.
    fn change(&mut self, bytes: usize) {
        let number = self.given.len();
        let mut pod = Pod::default();
        pod.metadata.uid = Some((number % PODS).to_string());
        pod.metadata.annotations = Some([("filler".to_owned(), "x".repeat(bytes))].into());
        let pod = Arc::new(pod);
        self.given.push(Arc::downgrade(&pod));
        self.history.show(vec![(format!("ns/{}", number % PODS).into(), Some(pod))]);
    }

    /// The bytes of the pods that still exist, without those that are current.
    fn replaced(&self) -> usize {
        let pods = self.given.iter().rev().skip(PODS).filter_map(Weak::upgrade);
        pods.map(|pod| footprint::bytes(&pod)).sum()
    }

    fn watch(&self, start: Start) -> Result<Watcher, Refusal> {
        let begun = self.history.watch(Selection::default(), &"client".into(), start).unwrap();
        begun.map(|begun| begun.watcher)
    }

    /// The oldest version from which a watch can start.
    fn oldest(&self) -> u64 {
        let inner = self.history.lock();
        inner.version - inner.events.len() as u64
    }
}

fn limits(replaced: usize, least: usize) -> Limits {
    let age = Duration::from_secs(3600);
    Limits { events: 4096, age, replaced, least, encoded: MIB, watches: 10, watches_per_client: 10 }
}

/// The number of events until the watch has caught up. `Err`: it fell out of the history.
fn follow(watcher: &Watcher) -> Result<u64, Refusal> {
    for events in 0.. {
        match watcher.next() {
            Next::Event(..) => {}
            Next::Nothing(_) => return Ok(events),
            Next::TooOld(refusal) => return Err(refusal),
            Next::Closed => unreachable!(),
        }
    }
    unreachable!()
}

#[test]
fn the_memory_of_replaced_pods_is_bounded_and_watches_within_the_bound_see_every_event() {
    let mut world = World::new(limits(MIB, 8));
    world.change(LARGE);
    let (first, slow) = (world.watch(Start::Now).unwrap(), world.watch(Start::Now).unwrap());
    for change in 2..1000 {
        world.change(LARGE);
        assert!(world.replaced() <= MIB, "{} bytes after {change} changes", world.replaced());
        assert_eq!(follow(&first).unwrap(), 1, "a watch that follows loses nothing");
    }
    assert_eq!(world.history.sizes().bytes, world.replaced(), "the metric");
    assert!(world.replaced() > MIB - 2 * LARGE, "only as many are dropped as necessary");
    let oldest = world.oldest();
    let events = world.history.sizes().events as u64;
    assert_eq!(follow(&world.watch(Start::After(oldest)).unwrap()).unwrap(), events);
    assert!(world.watch(Start::After(oldest - 1)).is_err(), "410, as it does for a version that is too old");
    assert!(follow(&slow).is_err());
    assert!(world.history.at(oldest).is_some() && world.history.at(oldest - 1).is_none());
}

#[test]
fn the_last_events_stay_although_their_pods_exceed_the_limit() {
    let mut world = World::new(limits(MIB, 8));
    (0..PODS).for_each(|_| world.change(MIB));
    let watch = world.watch(Start::Now).unwrap();
    (0..8).for_each(|_| world.change(MIB));
    assert_eq!(follow(&watch).unwrap(), 8);
    (0..9).for_each(|_| world.change(MIB));
    assert!(follow(&watch).is_err(), "one more than those that always stay");
    assert_eq!(world.history.sizes().events, 8);
}

#[test]
fn added_pods_take_no_space_and_old_events_give_theirs_back() {
    let mut world = World::new(Limits { age: Duration::ZERO, ..limits(MIB, 8) });
    (0..PODS).for_each(|_| world.change(MIB));
    assert_eq!(world.history.sizes().bytes, 0, "nothing was replaced");
    world.change(MIB);
    std::thread::sleep(Duration::from_millis(1));
    world.history.age();
    assert_eq!(world.history.sizes(), Sizes { events: 0, bytes: 0, watches: 0 });
    assert_eq!(world.replaced(), 0);
}

#[tokio::test]
async fn a_watch_whose_client_does_not_read_holds_no_replaced_pods() {
    let mut world = World::new(limits(MIB, 8));
    world.change(LARGE);
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let client = Client { peer: Peer::new("peer"), name: "client".into() };
        let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let options = Options::read(Some(query), None).unwrap();
        let mut body = watch::body(&world.history, &client, options, Form::Object).unwrap();
        (0..20).for_each(|_| world.change(LARGE));
        // The first of twenty events.
        let _ = body.frame().await.unwrap().unwrap();
        bodies.push(body);
    }
    (0..500).for_each(|_| world.change(LARGE));
    assert!(world.replaced() <= MIB, "{} bytes", world.replaced());
}
