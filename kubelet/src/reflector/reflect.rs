//! The steps: list, watch, wait.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::HeaderMap;
use kube::Resource;
use pod_index::PodUid;
use tokio::time;

use super::arrival::Arrival;
use super::compare::{Comparison, Listed, differing, finished};
use super::encoded::{Decoders, Encoded, Event, EventKind, Identity};
use super::failure::{Failure, FailureKind};
use super::known::{Cause, Panicked, Received, Undecoded, is_held, panicked, received, unless_panic};
use super::lifetime::Lifetimes;
use super::request::{ANY_VERSION, Lines, Requests};
use super::version::{Versions, is_older};
use super::waits::Waits;
use super::{Observer, Times, Update};

/// Limit of events per update, so that a flood of events does not delay its first ones.
const BATCH: usize = 4096;
/// A watch that ended sooner than this counts as failed. client-go's "very short watch".
const SHORT: Duration = Duration::from_secs(1);
/// A watch that ends this much before its requested lifetime was cut off.
const EARLY: Duration = Duration::from_secs(5);

/// What is kept of an object; `None` if the object was not asked for.
type Keep<K, T> = Box<dyn FnMut(K) -> Result<Option<T>, Panicked> + Send>;

/// Follows objects. Nothing happens except in [`next`](Self::next).
pub(crate) struct Reflector<K, T, O> {
    requests: Requests,
    times: Times,
    observer: Arc<O>,
    keep: Keep<K, T>,
    /// Decodes what the server sends in protobuf, if it was asked for it.
    decoders: Decoders<K>,
    /// Every object, in the version last received.
    known: Versions,
    undecoded: Undecoded,
    /// The first set was emitted.
    is_set: bool,
    /// The latest version received, to continue from. 0 before the first list.
    latest: u64,
    /// A list that is not older than this was refused, or the server has another history.
    needs_latest: bool,
    /// The last watch was cut off. The server may have been restored since.
    is_cut: bool,
    arrival: Arrival,
    comparison: Option<Comparison>,
    ready: VecDeque<Update<T>>,
    pause: Option<Duration>,
    waits: Waits,
    lifetimes: Lifetimes,
    step: Step,
}

/// A list that was received as a whole.
struct ReceivedList<T> {
    /// The resource version of the list.
    version: u64,
    /// Those of its objects.
    versions: Versions,
    undecoded: Undecoded,
    /// The new and the changed objects.
    changed: Vec<T>,
    /// An object is older than it was before.
    is_rewound: bool,
}

enum Step {
    List,
    Watch,
    Follow(Watch),
}

struct Watch {
    lines: Lines,
    began: Instant,
    asked: Duration,
    /// The server has sent an event or a bookmark.
    has_spoken: bool,
}

impl Watch {
    /// Whether the server should have ended it by now.
    fn is_overdue(&self) -> bool {
        self.began.elapsed() > self.asked
    }
}

impl<K, T, O> Reflector<K, T, O>
where
    K: Resource<DynamicType = ()>,
    T: Send,
    O: Observer,
{
    pub(crate) fn new(
        requests: Requests,
        decoders: Decoders<K>,
        times: Times,
        observer: Arc<O>,
        mut keep: impl FnMut(K) -> Option<T> + Send + 'static,
    ) -> Self {
        let times = times.bounded();
        let requests = Requests { accepts_protobuf: decoders.protobuf.is_some(), ..requests };
        Self {
            requests,
            times,
            observer,
            keep: Box::new(move |object| unless_panic(|| keep(object))),
            decoders,
            known: HashMap::new(),
            undecoded: Undecoded::new(),
            is_set: false,
            latest: 0,
            needs_latest: false,
            is_cut: false,
            arrival: Arrival::new(),
            comparison: None,
            ready: VecDeque::new(),
            pause: None,
            waits: Waits::new(times.backoff),
            lifetimes: Lifetimes::new(),
            step: Step::List,
        }
    }

    /// Number of objects of which a version was emitted.
    pub(crate) fn len(&self) -> usize {
        self.known.len() - self.undecoded.values().filter(|object| !object.is_held).count()
    }

    /// Whether the server has none of the objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The next update. Does not end. If the future is dropped, create another reflector.
    pub(crate) async fn next(&mut self) -> Update<T> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return update;
            }
            // Whoever asks for the next update has taken the earlier ones.
            if let Some(until) = self.arrival.take() {
                self.observer.reported(until);
            }
            // Wait only now: changes before the failure are emitted at once.
            if let Some(pause) = self.pause.take() {
                self.observer.pauses(Some(pause));
                time::sleep(pause).await;
                self.observer.pauses(None);
            }
            let step = mem::replace(&mut self.step, Step::List);
            let is_list = matches!(step, Step::List);
            let followed_since = if let Step::Follow(watch) = &step { Some(watch.began) } else { None };
            let done = match step {
                Step::List => self.list().await,
                Step::Watch => self.watch().await,
                Step::Follow(watch) => self.follow(watch).await,
            };
            if let Err(failure) = done {
                self.waits.followed(followed_since.map_or(Duration::ZERO, |began| began.elapsed()));
                self.failed(&failure, is_list);
            }
        }
    }

    /// To be called after [`next`](Self::next) has panicked, which is a defect. The objects are listed anew, and nothing that
    /// was known counts. The caller pauses.
    pub(crate) fn begin_anew(&mut self) {
        self.step = Step::List;
        self.is_set = false;
        self.needs_latest = true;
        self.comparison = None;
        self.arrival = Arrival::new();
        self.ready.clear();
        self.undecoded.clear();
    }

    /// Reports the failure, and sets the pause. Unless nothing was lost, all must be listed again.
    fn failed(&mut self, failure: &Failure, is_list: bool) {
        self.is_cut |= !is_list;
        match failure.kind {
            FailureKind::Broken | FailureKind::Silent | FailureKind::Doubt => {}
            FailureKind::NoProtobuf => self.requests.accepts_protobuf = false,
            FailureKind::Expired => self.needs_latest |= is_list,
            FailureKind::TooLarge => self.needs_latest = true,
            // Equal versions may now belong to different objects: what is known does not count.
            FailureKind::Restored => {
                self.is_set = false;
                self.needs_latest = true;
            }
        }
        self.observer.failed(failure);
        let is_expired = failure.kind == FailureKind::Expired;
        self.pause = Some(self.waits.wait(is_expired, Instant::now()).max(failure.retry_after));
        if matches!(failure.kind, FailureKind::Broken | FailureKind::Silent) && !is_list {
            self.step = Step::Watch;
        }
    }

    /// Lists the objects, and finds out what is new, changed or gone.
    async fn list(&mut self) -> Result<(), Failure> {
        self.comparison = None;
        if self.latest > ANY_VERSION {
            self.observer.relisting();
        }
        let asked = Instant::now();
        let received = self.receive_list().await?;
        self.observer.heard();
        if self.is_set && (received.is_rewound || received.version < self.latest) {
            let message = "resource versions went back: the server's state was restored";
            return Err(Failure::new(FailureKind::Restored, message));
        }
        self.apply_list(received);
        self.arrival.listed(asked);
        Ok(())
    }

    /// Requests the list. Each object is decoded on arrival, and kept unless it is known in this version.
    async fn receive_list(&mut self) -> Result<ReceivedList<T>, Failure> {
        let Self { requests, known, keep, undecoded, is_set, decoders, .. } = self;
        let least = (!self.needs_latest).then_some(self.latest);
        let mut versions = Versions::new();
        let mut now_undecoded = Undecoded::new();
        let mut changed = Vec::new();
        let mut is_rewound = false;
        let version = requests.list(least, self.times.patience, |encoded| {
            let Received { uid, version, object, mut problem } = received(encoded, decoders)?;
            let before = known.get(&uid).copied().flatten();
            is_rewound |= is_older(version, before);
            let is_unchanged = *is_set && before.is_some() && before == version;
            if is_unchanged {
                // It would panic again.
                let panicked = undecoded.get(&uid).filter(|before| before.cause == Cause::Panicked);
                problem = panicked.cloned().or(problem);
            } else if let Some(object) = object {
                match keep(object) {
                    Ok(Some(kept)) => changed.push(kept),
                    Ok(None) => return Ok(()),
                    Err(Panicked) => problem = Some(panicked(encoded)?.problem),
                }
            }
            if let Some(mut problem) = problem {
                problem.is_held |= *is_set && known.contains_key(&uid) && is_held(undecoded, &uid);
                now_undecoded.insert(uid.clone(), problem);
            }
            versions.insert(uid, version);
            Ok(())
        });
        let version = version.await?;
        Ok(ReceivedList { version, versions, undecoded: now_undecoded, changed, is_rewound })
    }

    /// Takes over a list, and emits what differs from what was known.
    fn apply_list(&mut self, list: ReceivedList<T>) {
        self.latest = list.version;
        self.step = Step::Watch;
        self.needs_latest = false;
        self.is_cut = false;
        let before = mem::replace(&mut self.known, list.versions);
        let undecoded = mem::replace(&mut self.undecoded, list.undecoded);
        if !undecoded.is_empty() || !self.undecoded.is_empty() {
            self.observer.undecodable(self.undecoded.values());
        }
        if !mem::replace(&mut self.is_set, true) {
            self.ready.push_back(Update::Set(list.changed));
            return;
        }
        // New objects first: the next object of a name is known before the old one is removed.
        if !list.changed.is_empty() {
            self.ready.push_back(Update::Upsert(list.changed));
        }
        let mut gone: Vec<_> = before.into_keys().filter(|uid| !self.known.contains_key(uid)).collect();
        if !gone.is_empty() {
            gone.retain(|uid| is_held(&undecoded, uid));
            self.ready.push_back(Update::Remove(gone));
        }
    }

    async fn watch(&mut self) -> Result<(), Failure> {
        let lifetime = self.lifetimes.next(&self.times, self.requests.is_http1.load(Ordering::Relaxed));
        let lines = self.requests.watch(self.latest, lifetime).await?;
        self.observer.watching();
        self.arrival.continues(Instant::now(), self.is_cut);
        if mem::take(&mut self.is_cut) {
            self.comparison = Some(Comparison::begin(&self.requests, &self.times, self.latest));
        }
        let asked = lifetime.asked;
        self.step = Step::Follow(Watch { lines, began: Instant::now(), asked, has_spoken: false });
        Ok(())
    }

    /// Takes the next events, or the end of the comparison.
    async fn follow(&mut self, mut watch: Watch) -> Result<(), Failure> {
        let mut line = tokio::select! {
            line = watch.lines.next() => match line {
                Err(failure) if failure.kind == FailureKind::Silent => return self.silent(&watch, &failure),
                line => line?,
            },
            listed = finished(&mut self.comparison) => {
                self.compared(&listed)?;
                self.step = Step::Follow(watch);
                return Ok(());
            }
        };
        self.observer.heard();
        let heard = Instant::now();
        for taken in 1.. {
            let Some(event) = line else {
                self.arrival.said(heard);
                self.arrival.ended(Instant::now());
                self.pause_after_short(&watch);
                self.step = Step::Watch;
                self.is_cut = watch.began.elapsed() + EARLY < watch.asked;
                self.lifetimes.ended(watch.has_spoken);
                return Ok(());
            };
            watch.has_spoken = true;
            self.take(Encoded { encoding: watch.lines.encoding, bytes: &event })?;
            if taken == BATCH {
                break;
            }
            line = match watch.lines.ready().await {
                Some(next) => next?,
                None => break,
            };
        }
        self.arrival.said(heard);
        self.step = Step::Follow(watch);
        Ok(())
    }

    /// Gives up a watch that was silent for too long. It continues from the last version, so the server sends what did not
    /// arrive; and as after each cut, it is compared whether the server is still the one that was followed.
    ///
    /// That the server should have ended it is a failure. Before that, it may have had nothing to say.
    fn silent(&mut self, watch: &Watch, failure: &Failure) -> Result<(), Failure> {
        self.lifetimes.silent();
        if watch.is_overdue() {
            let asked = watch.asked.as_secs();
            let message = format!("{}: it did not end after {asked} s, as it was asked to", failure.message);
            return Err(Failure::new(FailureKind::Silent, message));
        }
        tracing::debug!("{}, and continues over another connection", failure.message);
        self.pause_after_short(watch);
        self.is_cut = true;
        self.step = Step::Watch;
        Ok(())
    }

    /// A watch that has lasted for a moment counts as failed: the next one waits.
    fn pause_after_short(&mut self, watch: &Watch) {
        if watch.began.elapsed() < SHORT {
            self.pause = Some(self.waits.wait(false, Instant::now()));
        }
    }

    fn take(&mut self, event: Encoded<'_>) -> Result<(), Failure> {
        let Event { kind, object } = Event::read(event)?;
        match kind {
            EventKind::Changed => self.apply(object),
            EventKind::Deleted => self.delete(object.identity()?),
            EventKind::Bookmark => {
                let version = object.identity()?.version.unwrap_or_default();
                // It comes after all events that the server had for the watch.
                if version >= self.latest {
                    self.arrival.caught_up();
                }
                self.latest = self.latest.max(version);
                Ok(())
            }
            EventKind::Error => {
                let status = object.status()?;
                Err(Failure::refused(status.code, &status, &HeaderMap::new()))
            }
            EventKind::Unknown => {
                Err(Failure::new(FailureKind::Doubt, "an event of the watch is of an unknown type"))
            }
        }
    }

    fn apply(&mut self, encoded: Encoded<'_>) -> Result<(), Failure> {
        let Received { uid, version, object, mut problem } = received(encoded, &self.decoders)?;
        let mut kept = None;
        if let Some(object) = object {
            match (self.keep)(object) {
                Ok(Some(object)) => kept = Some(object),
                Ok(None) => return Ok(()),
                Err(Panicked) => problem = Some(panicked(encoded)?.problem),
            }
        }
        self.record_event(&uid);
        if version.is_some() && self.known.get(&uid) == Some(&version) {
            return Ok(());
        }
        if is_older(version, Some(self.latest)) {
            return Err(disorder());
        }
        self.latest = version.unwrap_or(self.latest);
        let is_known = self.known.insert(uid.clone(), version).is_some();
        if let Some(mut problem) = problem {
            problem.is_held |= is_known && is_held(&self.undecoded, &uid);
            self.undecoded.insert(uid, problem);
            self.observer.undecodable(self.undecoded.values());
        } else {
            self.decoded(&uid);
        }
        let Some(kept) = kept else { return Ok(()) };
        match self.ready.back_mut() {
            Some(Update::Upsert(objects)) => objects.push(kept),
            _ => self.ready.push_back(Update::Upsert(vec![kept])),
        }
        Ok(())
    }

    fn delete(&mut self, Identity { uid, version, .. }: Identity) -> Result<(), Failure> {
        self.record_event(&uid);
        self.latest = self.latest.max(version.unwrap_or_default());
        let Some(before) = self.known.get(&uid).copied() else { return Ok(()) };
        if is_older(version, before) {
            return Err(disorder());
        }
        self.known.remove(&uid);
        let gone = self.decoded(&uid).then_some(uid);
        match self.ready.back_mut() {
            Some(Update::Remove(uids)) => uids.extend(gone),
            _ => self.ready.push_back(Update::Remove(gone.into_iter().collect())),
        }
        Ok(())
    }

    /// Records that the object can be decoded, or is gone. Returns whether a version of it was emitted.
    fn decoded(&mut self, uid: &PodUid) -> bool {
        let is_held = is_held(&self.undecoded, uid);
        if self.undecoded.remove(uid).is_some() {
            self.observer.undecodable(self.undecoded.values());
        }
        is_held
    }

    /// Records that the server has sent an event about this object.
    fn record_event(&mut self, uid: &PodUid) {
        if let Some(comparison) = &mut self.comparison {
            comparison.changed.insert(uid.clone());
        }
    }

    /// Judges the server's list after a watch continued from where another was cut off.
    fn compared(&mut self, Listed { asked, version, objects }: &Listed) -> Result<(), Failure> {
        let Some(Comparison { changed, resumed_from, .. }) = self.comparison.take() else { return Ok(()) };
        // The watch would be silent until the server's version has passed that of the watch.
        let is_old = *version < resumed_from;
        let different = differing(&self.known, objects, &changed);
        if different == 0 && !is_old {
            // Everything in the server's list has arrived here. Not an object that came and went before it.
            self.observer.heard();
            if *version <= self.latest {
                self.arrival.caught_up();
                self.arrival.said(*asked);
            }
            return Ok(());
        }
        let message = format!(
            "the server's state is not the one that was followed (its version is {version}, the watch's {resumed_from}; \
             {different} objects differ): it was restored from a backup, or its cache is old"
        );
        Err(Failure::new(FailureKind::Restored, message))
    }
}

fn disorder() -> Failure {
    Failure::new(FailureKind::Doubt, "the watch is not in the order of its resource versions")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::super::Undecodable;
    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn failed(&self, _: &Failure) {}
        fn undecodable<'a>(&self, _: impl ExactSizeIterator<Item = &'a Undecodable>) {}
    }

    /// The pauses that began, and their ends.
    #[derive(Default)]
    struct Pauses(std::sync::Mutex<Vec<Option<Duration>>>);

    impl Observer for Pauses {
        fn failed(&self, _: &Failure) {}
        fn undecodable<'a>(&self, _: impl ExactSizeIterator<Item = &'a Undecodable>) {}
        fn pauses(&self, pause: Option<Duration>) {
            self.0.lock().unwrap().push(pause);
        }
    }

    /// It sends no request. Its events come from the test.
    fn reflector() -> Reflector<Pod, Pod, Nobody> {
        of_observer(Nobody)
    }

    fn of_observer<O: Observer>(observer: O) -> Reflector<Pod, Pod, O> {
        let silent = service_fn(async |_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, tower::BoxError>>().await
        });
        with_client(Client::new(silent, "default"), Times::default(), observer)
    }

    fn with_client<O: Observer>(client: Client, times: Times, observer: O) -> Reflector<Pod, Pod, O> {
        let path = Pod::url_path(&(), None);
        let is_http1 = Arc::default();
        let (is_metadata, accepts_protobuf) = (false, false);
        let requests =
            Requests { client, path, fields: None, labels: None, is_metadata, accepts_protobuf, is_http1 };
        let decoders = Decoders::of_json();
        Reflector::new(requests, decoders, times, Arc::new(observer), Some)
    }

    /// A reflector whose pauses are configured to be zero, and the number of requests so far. Its server refuses each.
    fn without_pauses() -> (Reflector<Pod, Pod, Nobody>, Arc<AtomicUsize>) {
        /// Without an end, a loop without a pause would keep the test's clock from going on.
        const MOST: usize = 100_000;
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let refusing = service_fn(move |_: Request<Body>| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                if number == MOST {
                    std::future::pending::<()>().await;
                }
                Err::<Response<Body>, tower::BoxError>("refused".into())
            }
        });
        let backoff = crate::backoff::Pauses::new(Duration::ZERO, Duration::ZERO);
        let times = Times { backoff, compare_after: Duration::ZERO, ..Times::default() };
        (with_client(Client::new(refusing, "default"), times, Nobody), requests)
    }

    /// A loop without a pause would take a whole core, and most of what its server can do.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_is_asked_after_a_pause_also_if_none_is_configured() {
        let (mut reflector, requests) = without_pauses();
        let update = time::timeout(Duration::from_secs(1), reflector.next()).await;
        assert!(update.is_err(), "it is refused");
        let listed = requests.load(Ordering::Relaxed);
        assert!((1..=2_000).contains(&listed), "{listed} requests in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_comparison_that_fails_is_repeated_after_a_pause_also_if_none_is_configured() {
        let (reflector, requests) = without_pauses();
        let _comparison = Comparison::begin(&reflector.requests, &reflector.times, 0);
        time::sleep(Duration::from_secs(1)).await;
        let compared = requests.load(Ordering::Relaxed);
        assert!((1..=2_000).contains(&compared), "{compared} comparisons in a second");
    }

    /// An operator is told when it connects again.
    #[tokio::test]
    async fn the_beginning_and_the_end_of_a_pause_are_told() {
        let mut reflector = of_observer(Pauses::default());
        let observer = Arc::clone(&reflector.observer);
        let pause = Duration::from_millis(1);
        reflector.pause = Some(pause);
        let told = async {
            while observer.0.lock().unwrap().len() < 2 {
                time::sleep(pause).await;
            }
        };
        tokio::select! {
            _ = reflector.next() => unreachable!("the server is silent"),
            told = time::timeout(Duration::from_secs(60), told) => told.expect("the end of the pause"),
        }
        assert_eq!(*observer.0.lock().unwrap(), [Some(pause), None]);
    }

    fn event(kind: &str, version: u64) -> Vec<u8> {
        let metadata: Value = match kind {
            "BOOKMARK" => json!({ "resourceVersion": version.to_string() }),
            _ => json!({ "uid": "a", "name": "a", "namespace": "n", "resourceVersion": version.to_string() }),
        };
        json!({ "type": kind, "object": { "apiVersion": "v1", "kind": "Pod", "metadata": metadata } })
            .to_string()
            .into_bytes()
    }

    fn taken(reflector: &mut Reflector<Pod, Pod, Nobody>, kind: &str, version: u64) {
        let result = reflector.take(Encoded::json(&event(kind, version)));
        assert!(result.is_ok(), "{kind} {version}: {:?}", result.err().map(|failure| failure.message));
    }

    fn watch(began: Instant, said: Vec<u8>) -> Watch {
        let lines = Lines::of(super::super::encoded::Encoding::Json, said);
        Watch { lines, began, asked: Duration::from_secs(60), has_spoken: false }
    }

    /// A server that ends each watch at once is not asked again at once; after one that has lasted, no event is late.
    #[tokio::test]
    async fn only_after_a_short_watch_there_is_a_pause() {
        let now = Instant::now();
        for (began, pauses) in [(now, true), (now.checked_sub(2 * SHORT).unwrap(), false)] {
            let mut reflector = reflector();
            assert!(reflector.follow(watch(began, Vec::new())).await.is_ok());
            // A busy machine may take a second from one line to the next.
            assert!(reflector.pause.is_some() == pauses || began.elapsed() >= SHORT && pauses);
            assert!(matches!(reflector.step, Step::Watch));
        }
    }

    /// The first of many events do not wait for the last one.
    #[tokio::test]
    async fn a_flood_of_events_is_several_updates() {
        let mut reflector = reflector();
        let mut said = Vec::new();
        for version in 1..=BATCH as u64 + 10 {
            said.extend(event("MODIFIED", version));
            said.push(b'\n');
        }
        assert!(reflector.follow(watch(Instant::now(), said)).await.is_ok());
        let Some(Update::Upsert(pods)) = reflector.ready.pop_front() else { panic!("no pods") };
        assert_eq!((pods.len(), reflector.ready.len()), (BATCH, 0));
        let Step::Follow(rest) = mem::replace(&mut reflector.step, Step::List) else {
            panic!("it has ended")
        };
        assert!(reflector.follow(rest).await.is_ok());
        let Some(Update::Upsert(pods)) = reflector.ready.pop_front() else { panic!("no pods") };
        assert_eq!(pods.len(), 10);
    }

    /// An expired version is often the end of an outage.
    #[tokio::test]
    async fn an_expired_version_waits_little_after_many_failures() {
        let mut reflector = reflector();
        for _ in 0..20 {
            reflector.failed(&Failure::new(FailureKind::Broken, "refused"), true);
        }
        let first = Times::default().backoff.first;
        assert!(reflector.pause.unwrap() > 2 * first);
        reflector.failed(&Failure::new(FailureKind::Expired, "compacted"), true);
        assert!(reflector.pause.unwrap() <= first);
        // A watch that lasted ends the other failures, and only them.
        reflector.failed(&Failure::new(FailureKind::Expired, "compacted"), true);
        reflector.waits.followed(Times::default().backoff.longest);
        reflector.failed(&Failure::new(FailureKind::Broken, "refused"), true);
        assert!(reflector.pause.unwrap() <= first);
    }

    #[tokio::test]
    async fn a_version_that_is_known_is_no_change() {
        let mut reflector = reflector();
        taken(&mut reflector, "ADDED", 10);
        taken(&mut reflector, "MODIFIED", 10);
        let Some(Update::Upsert(pods)) = reflector.ready.pop_front() else { panic!("no pods") };
        assert_eq!((pods.len(), reflector.ready.len()), (1, 0));
    }

    #[tokio::test]
    async fn a_bookmark_never_sets_the_version_back() {
        let mut reflector = reflector();
        taken(&mut reflector, "ADDED", 10);
        taken(&mut reflector, "BOOKMARK", 5);
        assert_eq!(reflector.latest, 10);
        taken(&mut reflector, "BOOKMARK", 15);
        assert_eq!(reflector.latest, 15);
    }

    /// After a panic nobody knows which updates were emitted. So all objects are emitted again, in one set, and nothing that
    /// was received before comes after it.
    #[tokio::test]
    async fn after_a_panic_the_next_list_is_emitted_as_a_whole() {
        let mut reflector = reflector();
        let list = |uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.to_owned());
            let versions = Versions::from([(uid.into(), Some(10))]);
            ReceivedList {
                version: 10,
                versions,
                undecoded: Undecoded::new(),
                changed: vec![pod],
                is_rewound: false,
            }
        };
        reflector.apply_list(list("a"));
        reflector.ready.clear();
        taken(&mut reflector, "MODIFIED", 11);
        let faulty = String::from_utf8(event("MODIFIED", 12))
            .unwrap()
            .replace("\"metadata\"", "\"spec\":7,\"metadata\"");
        assert!(reflector.take(Encoded::json(faulty.as_bytes())).is_ok());
        assert_eq!((reflector.ready.len(), reflector.undecoded.len()), (1, 1));
        reflector.arrival.said(Instant::now());
        reflector.begin_anew();
        assert_eq!(reflector.arrival.take(), None, "what had arrived was not emitted");
        assert!(matches!(reflector.step, Step::List) && reflector.needs_latest);
        assert!(reflector.undecoded.is_empty() && reflector.comparison.is_none());
        reflector.apply_list(list("b"));
        let Some(Update::Set(pods)) = reflector.ready.pop_front() else { panic!("no set") };
        assert_eq!(pods[0].metadata.uid.as_deref(), Some("b"));
        assert!(reflector.ready.is_empty());
    }

    #[tokio::test]
    async fn an_object_that_is_deleted_during_the_comparison_is_no_difference() {
        let mut reflector = reflector();
        taken(&mut reflector, "ADDED", 10);
        let listed = Listed { asked: Instant::now(), version: 10, objects: reflector.known.clone() };
        reflector.comparison = Some(Comparison::begin(&reflector.requests, &reflector.times, 10));
        taken(&mut reflector, "DELETED", 11);
        assert!(reflector.compared(&listed).is_ok());
        // Without the event, it is one.
        reflector.comparison = Some(Comparison::begin(&reflector.requests, &reflector.times, 10));
        assert!(reflector.compared(&listed).is_err());
    }
}
