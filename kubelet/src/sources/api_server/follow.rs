//! From what a watcher says to what a source says: the first set, then changes, whatever fails in between.
//!
//! This file knows events, versions and failures. It must not know HTTP.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

use super::compare::{Comparer, Comparison, Difference, Listed, Version, finished};
use super::pace::Line;
use crate::backoff::Backoff;
use crate::sources::status::StatusWriter;
use crate::sources::{Problem, ProblemKind, SourceUpdate};
use pod_index::{API_SERVER_SOURCE, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodUid};

/// How many events are taken together at most, so that a flood does not keep what it brought to itself.
const BATCH: usize = 4096;

const MINUTE: Duration = Duration::from_secs(60);

const DISORDER: &str = "the watch is not in the order of its resource versions";

pub(super) struct Follow<K, P> {
    api: Api<K>,
    config: watcher::Config,
    transform: Box<dyn FnMut(K) -> P + Send>,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    /// What has been said: each pod in the version in which it was said.
    known: HashMap<PodUid, Version>,
    /// Whether the first set has been said.
    said: bool,
    /// A list that is not yet complete.
    listing: Option<Listing<P>>,
    /// The latest version that this watch has told of.
    latest: u64,
    ready: VecDeque<SourceUpdate<P>>,
    /// Something failed, and has not been waited for.
    waits: bool,
    /// What failed is that the history is gone, which is no fault of the server; and when it was so last.
    is_expired: bool,
    expired: Option<Instant>,
    backoff: Backoff,
    status: Arc<StatusWriter>,
    line: Arc<Line>,
    comparer: Comparer,
    /// What is held is being compared with what the server has.
    comparison: Option<Comparison>,
}

struct Listing<P> {
    /// What is new in it, or all of it if nothing has been said yet.
    pods: Vec<Arc<P>>,
    versions: HashMap<PodUid, Version>,
    /// A pod in it is older than it was: the server's history is not the one that was followed.
    rewound: bool,
}

/// What to do after an event.
enum Then {
    Continue,
    /// Wait, and let the watcher recover by itself.
    Wait,
    /// The watch is not to be trusted, or cannot recover: wait, and list anew.
    Relist,
}

impl<K, P> Follow<K, P>
where
    K: ResourceExt<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    pub(super) fn new(
        api: Api<K>,
        config: watcher::Config,
        transform: impl FnMut(K) -> P + Send + 'static,
        backoff: Backoff,
        status: Arc<StatusWriter>,
        line: Arc<Line>,
        comparer: Comparer,
    ) -> Self {
        let events = watcher(api.clone(), config.clone()).boxed();
        Self {
            api,
            config,
            transform: Box::new(transform),
            events,
            known: HashMap::new(),
            said: false,
            listing: None,
            latest: 0,
            ready: VecDeque::new(),
            waits: false,
            is_expired: false,
            expired: None,
            backoff,
            status,
            line,
            comparer,
            comparison: None,
        }
    }

    /// What there is to say next.
    pub(super) async fn next(&mut self) -> SourceUpdate<P> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                self.status.updated(self.known.len());
                return update;
            }
            // Only now: what came before a failure is said at once.
            if std::mem::take(&mut self.waits) {
                tokio::time::sleep(self.wait()).await;
            }
            let mut then = tokio::select! {
                event = self.events.next() => self.take(event),
                listed = finished(&mut self.comparison) => self.compared(&listed),
                version = self.line.resumed() => {
                    self.comparison = Some(self.comparer.begin(self.known.len(), version));
                    Then::Continue
                }
            };
            for _ in 1..BATCH {
                let Then::Continue = then else { break };
                let Some(event) = self.more().await else { break };
                then = self.take(event);
            }
            match then {
                Then::Continue => {}
                Then::Wait => self.waits = true,
                Then::Relist => {
                    self.waits = true;
                    self.restart();
                }
            }
        }
    }

    /// An event that is there already. `None` if it would have to be waited for.
    async fn more(&mut self) -> Option<Option<watcher::Result<Event<K>>>> {
        if let Poll::Ready(event) = poll_immediate(&mut self.events).await {
            return Some(event);
        }
        // The connection hands over one piece at a time; another may be there as soon as it has had its turn.
        tokio::task::yield_now().await;
        match poll_immediate(&mut self.events).await {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    /// How long to wait after a failure. That the history is gone is answered by a list soon, however long the outage was
    /// that it comes after; if it is gone again within a minute, something is wrong.
    fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let was_expired = self.expired.is_some_and(|before| now.duration_since(before) < MINUTE);
        if std::mem::take(&mut self.is_expired) {
            self.expired = Some(now);
            if !was_expired {
                return self.backoff.least();
            }
        }
        self.backoff.wait(now)
    }

    fn restart(&mut self) {
        self.listing = None;
        self.comparison = None;
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
    }

    fn take(&mut self, event: Option<watcher::Result<Event<K>>>) -> Then {
        match event {
            Some(Ok(Event::Init)) => {
                self.latest = 0;
                self.comparison = None;
                if self.said {
                    self.status.relisting();
                }
                self.listing = Some(Listing { pods: Vec::new(), versions: HashMap::new(), rewound: false });
                Then::Continue
            }
            Some(Ok(Event::InitApply(pod))) => self.list(pod),
            Some(Ok(Event::InitDone)) => self.listed(),
            Some(Ok(Event::Apply(pod))) => self.apply(pod),
            Some(Ok(Event::Delete(pod))) => self.delete(&pod),
            Some(Err(error)) => self.failed(&error),
            // A watcher has no end. If it had, this would be the answer.
            None => Then::Relist,
        }
    }

    fn list(&mut self, pod: K) -> Then {
        let Some(listing) = &mut self.listing else { return Then::Relist };
        let (uid, version) = (uid(&pod), version(&pod));
        self.latest = self.latest.max(version.unwrap_or_default());
        let before = self.known.get(&uid).copied().flatten();
        listing.rewound |= before.is_some() && version < before;
        listing.versions.insert(uid, version);
        if !self.said || before.is_none() || before != version {
            listing.pods.push(Arc::new((self.transform)(settled(pod))));
        }
        Then::Continue
    }

    fn listed(&mut self) -> Then {
        let Some(listing) = self.listing.take() else { return Then::Relist };
        if listing.rewound && self.said {
            return self
                .start_over("resource versions went back: the server's state was restored".to_owned());
        }
        let before = std::mem::replace(&mut self.known, listing.versions);
        if self.said {
            let gone: Vec<_> = before.into_keys().filter(|uid| !self.known.contains_key(uid)).collect();
            // The new first: who bears a gone pod's name is there before that one goes.
            if !listing.pods.is_empty() {
                self.ready.push_back(SourceUpdate::Upsert(listing.pods));
            }
            if !gone.is_empty() {
                self.ready.push_back(SourceUpdate::Remove(gone));
            }
        } else {
            self.said = true;
            self.ready.push_back(SourceUpdate::Set(listing.pods));
        }
        Then::Continue
    }

    /// Versions that are the same may now be of different objects.
    fn start_over(&mut self, why: String) -> Then {
        self.said = false;
        self.known.clear();
        self.report(why, Then::Relist)
    }

    /// What the server has, a while after a watch went on from where one was cut off.
    fn compared(&mut self, listed: &Listed) -> Then {
        let Some(Comparison { told, resumed_from, .. }) = self.comparison.take() else {
            return Then::Continue;
        };
        // It would be silent until its version has passed that of the watch.
        let is_behind = listed.version < resumed_from;
        let difference = Difference::between(&self.known, &listed.pods, &told);
        if difference.is_none() && !is_behind {
            return Then::Continue;
        }
        let version = listed.version;
        self.start_over(format!(
            "the server's state is not the one that was followed (its version is {version}, the watch's {resumed_from}; \
             {difference}): it was restored from a backup, or its cache is old"
        ))
    }

    fn apply(&mut self, pod: K) -> Then {
        let (uid, version) = (uid(&pod), version(&pod));
        self.tell(&uid);
        if version.is_some() && self.known.get(&uid) == Some(&version) {
            return Then::Continue;
        }
        if version.is_some_and(|version| version < self.latest) {
            return self.report(DISORDER.to_owned(), Then::Relist);
        }
        self.latest = self.latest.max(version.unwrap_or_default());
        self.known.insert(uid, version);
        let pod = Arc::new((self.transform)(settled(pod)));
        match self.ready.back_mut() {
            Some(SourceUpdate::Upsert(pods)) => pods.push(pod),
            _ => self.ready.push_back(SourceUpdate::Upsert(vec![pod])),
        }
        Then::Continue
    }

    /// The server itself has just told of this pod.
    fn tell(&mut self, uid: &PodUid) {
        if let Some(comparison) = &mut self.comparison {
            comparison.told.insert(uid.clone());
        }
    }

    fn delete(&mut self, pod: &K) -> Then {
        let (uid, version) = (uid(pod), version(pod));
        self.tell(&uid);
        self.latest = self.latest.max(version.unwrap_or_default());
        let Some(said) = self.known.get(&uid).copied() else { return Then::Continue };
        if version.is_some() && version < said {
            return self.report(DISORDER.to_owned(), Then::Relist);
        }
        self.known.remove(&uid);
        match self.ready.back_mut() {
            Some(SourceUpdate::Remove(uids)) => uids.push(uid),
            _ => self.ready.push_back(SourceUpdate::Remove(vec![uid])),
        }
        Then::Continue
    }

    fn failed(&mut self, error: &watcher::Error) -> Then {
        use kube::Error::{Api, ReadEvents};
        use watcher::Error::{WatchError, WatchFailed, WatchStartFailed};
        match error {
            // The watcher would ask for the version that is gone until the end of days.
            WatchStartFailed(Api(status)) if status.code == 410 => {
                self.is_expired = true;
                self.report(crate::text::api_causes(error), Then::Relist)
            }
            // It lists anew by itself.
            WatchError(status) if status.code == 410 => {
                self.is_expired = true;
                self.report(crate::text::api_causes(error), Then::Wait)
            }
            // What was missed meanwhile, and whether anybody was there, nobody knows.
            WatchFailed(ReadEvents(_)) if self.line.take_silence() => {
                self.report(crate::text::api_causes(error), Then::Relist)
            }
            // The connection is broken: no event is lost, the watch goes on from the last one.
            WatchFailed(ReadEvents(_)) => self.report(crate::text::api_causes(error), Then::Wait),
            // An event that cannot be read, which the client takes for an empty status, is an event lost.
            WatchFailed(Api(status)) if status.code == 0 => {
                self.report("an event of the watch could not be read".to_owned(), Then::Relist)
            }
            WatchFailed(_) => self.report(crate::text::api_causes(error), Then::Relist),
            _ => self.report(crate::text::api_causes(error), Then::Wait),
        }
    }

    fn report(&self, message: String, then: Then) -> Then {
        let origin = self.status.subscribe().borrow().origin.clone();
        self.status.checked(vec![Problem::new(ProblemKind::Request, origin, None, None, message)], true);
        then
    }
}

async fn poll_immediate<S: Stream + Unpin>(events: &mut S) -> Poll<Option<S::Item>> {
    poll_fn(|context| Poll::Ready(events.poll_next_unpin(context))).await
}

fn uid<K: ResourceExt>(pod: &K) -> PodUid {
    PodUid::from(pod.meta().uid.as_deref().unwrap_or_default())
}

fn version<K: ResourceExt>(pod: &K) -> Version {
    pod.meta().resource_version.as_deref()?.parse().ok()
}

/// A pod of the API server, marked as one. Any other source in its annotation would make a static pod of it. A mirror pod keeps
/// the source of its static pod until the merge has derived that one.
fn settled<K: ResourceExt>(mut pod: K) -> K {
    if let Some(annotations) = pod.meta_mut().annotations.as_mut()
        && !annotations.contains_key(CONFIG_MIRROR_ANNOTATION)
        && let Some(source) = annotations.get_mut(CONFIG_SOURCE_ANNOTATION)
        && source != API_SERVER_SOURCE
    {
        API_SERVER_SOURCE.clone_into(source);
    }
    pod
}
