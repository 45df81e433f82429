//! Turns a watcher's events into a source's updates: the first set, then changes, with recovery from
//! failures.
//!
//! Knows events, versions and failures, but not HTTP.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

use super::compare::{Comparer, Comparison, Difference, Listed, Version, finished};
use super::pace::Line;
use super::sift;
use super::undecoded::Undecoded;
use super::waits::Waits;
use crate::sources::status::StatusWriter;
use crate::sources::{Problem, ProblemKind, SourceUpdate};
use pod_index::{API_SERVER_SOURCE, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodUid};

/// Limit of events per update, so that a flood of events does not delay its first ones.
const BATCH: usize = 4096;

const DISORDER: &str = "the watch is not in the order of its resource versions";

pub(super) struct Follow<K, P> {
    api: Api<K>,
    config: watcher::Config,
    transform: Box<dyn FnMut(K) -> P + Send>,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    /// The version of each pod that was emitted.
    known: HashMap<PodUid, Version>,
    /// The pods whose latest version cannot be decoded.
    undecoded: Undecoded,
    /// Whether the first set was emitted.
    said: bool,
    /// A list that is not yet complete.
    listing: Option<Listing<P>>,
    /// The latest version received from this watch.
    latest: u64,
    ready: VecDeque<SourceUpdate<P>>,
    /// A failure occurred, and the wait after it is due.
    waits: bool,
    /// The failure is that the server's history was compacted, which is not a server fault.
    is_expired: bool,
    waits_after: Waits,
    status: Arc<StatusWriter>,
    line: Arc<Line>,
    comparer: Comparer,
    /// The comparison of the pods held here with the server's.
    comparison: Option<Comparison>,
}

struct Listing<P> {
    /// The changes in the list, or all its pods if nothing was emitted yet.
    pods: Vec<Arc<P>>,
    versions: HashMap<PodUid, Version>,
    /// A pod in it is older than before: the server has another history.
    rewound: bool,
    undecoded: Undecoded,
}

/// The reaction to an event.
enum Then {
    Continue,
    /// Wait, and let the watcher recover by itself.
    Wait,
    /// The watch is unreliable or cannot recover: wait, and list again.
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
        waits_after: Waits,
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
            undecoded: Undecoded::default(),
            said: false,
            listing: None,
            latest: 0,
            ready: VecDeque::new(),
            waits: false,
            is_expired: false,
            waits_after,
            status,
            line,
            comparer,
            comparison: None,
        }
    }

    /// The next update.
    pub(super) async fn next(&mut self) -> SourceUpdate<P> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                self.status.updated(self.known.len() - self.undecoded.unheld());
                return update;
            }
            // Wait only now, so that changes before the failure are emitted at once.
            if std::mem::take(&mut self.waits) {
                let is_expired = std::mem::take(&mut self.is_expired);
                tokio::time::sleep(self.waits_after.wait(is_expired, Instant::now())).await;
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

    /// An event that is ready. `None` if none is.
    async fn more(&mut self) -> Option<Option<watcher::Result<Event<K>>>> {
        if let Poll::Ready(event) = poll_immediate(&mut self.events).await {
            return Some(event);
        }
        // The connection delivers one event at a time; yield to let it deliver another.
        tokio::task::yield_now().await;
        match poll_immediate(&mut self.events).await {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
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
                self.listing = Some(Listing {
                    pods: Vec::new(),
                    versions: HashMap::new(),
                    undecoded: Undecoded::default(),
                    rewound: false,
                });
                Then::Continue
            }
            Some(Ok(Event::InitApply(pod))) => self.list(pod),
            Some(Ok(Event::InitDone)) => self.listed(),
            Some(Ok(Event::Apply(pod))) => self.apply(pod),
            Some(Ok(Event::Delete(pod))) => self.delete(&pod),
            Some(Err(error)) => self.failed(&error),
            // A watcher never ends. If it did, listing again would be correct.
            None => Then::Relist,
        }
    }

    fn list(&mut self, pod: K) -> Then {
        let Some(listing) = &mut self.listing else { return Then::Relist };
        let (uid, version) = (uid(&pod), version(&pod));
        self.latest = self.latest.max(version.unwrap_or_default());
        let before = self.known.get(&uid).copied().flatten();
        listing.rewound |= before.is_some() && version < before;
        if let Some(problem) = sift::problem(&pod) {
            let is_held = self.said && self.known.contains_key(&uid) && self.undecoded.is_held(&uid);
            listing.undecoded.insert(uid.clone(), problem, is_held);
            listing.versions.insert(uid, version);
            return Then::Continue;
        }
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
        self.line.sift(!listing.undecoded.is_empty());
        let undecoded = std::mem::replace(&mut self.undecoded, listing.undecoded);
        self.status.pods_checked(self.undecoded.problems());
        let before = std::mem::replace(&mut self.known, listing.versions);
        if self.said {
            let is_gone = |uid: &PodUid| !self.known.contains_key(uid) && undecoded.is_held(uid);
            let gone: Vec<_> = before.into_keys().filter(is_gone).collect();
            // New pods first: the next pod of a name is known before the old one is removed.
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

    /// Equal versions may now belong to different objects.
    fn start_over(&mut self, why: String) -> Then {
        self.said = false;
        self.known.clear();
        self.undecoded = Undecoded::default();
        self.report(why, Then::Relist)
    }

    /// Judges the server's list after a watch continued from where another was cut off.
    fn compared(&mut self, listed: &Listed) -> Then {
        let Some(Comparison { changed, resumed_from, .. }) = self.comparison.take() else {
            return Then::Continue;
        };
        // The watch would be silent until the server's version has passed that of the watch.
        let is_behind = listed.version < resumed_from;
        let difference = Difference::between(&self.known, &listed.pods, &changed);
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
        self.record_event(&uid);
        if version.is_some() && self.known.get(&uid) == Some(&version) {
            return Then::Continue;
        }
        if version.is_some_and(|version| version < self.latest) {
            return self.report(DISORDER.to_owned(), Then::Relist);
        }
        self.latest = self.latest.max(version.unwrap_or_default());
        let is_known = self.known.insert(uid.clone(), version).is_some();
        if let Some(problem) = sift::problem(&pod) {
            let is_held = is_known && self.undecoded.is_held(&uid);
            self.undecoded.insert(uid, problem, is_held);
            self.status.pods_checked(self.undecoded.problems());
            return Then::Continue;
        }
        self.decoded(&uid);
        let pod = Arc::new((self.transform)(settled(pod)));
        match self.ready.back_mut() {
            Some(SourceUpdate::Upsert(pods)) => pods.push(pod),
            _ => self.ready.push_back(SourceUpdate::Upsert(vec![pod])),
        }
        Then::Continue
    }

    /// Records that the pod can be decoded, or is gone. Returns whether a version of it was emitted.
    fn decoded(&mut self, uid: &PodUid) -> bool {
        let is_held = self.undecoded.is_held(uid);
        if self.undecoded.remove(uid) {
            self.status.pods_checked(self.undecoded.problems());
        }
        is_held
    }

    /// Records that the server has sent an event about this pod.
    fn record_event(&mut self, uid: &PodUid) {
        if let Some(comparison) = &mut self.comparison {
            comparison.changed.insert(uid.clone());
        }
    }

    fn delete(&mut self, pod: &K) -> Then {
        let (uid, version) = (uid(pod), version(pod));
        self.record_event(&uid);
        self.latest = self.latest.max(version.unwrap_or_default());
        let Some(said) = self.known.get(&uid).copied() else { return Then::Continue };
        if version.is_some() && version < said {
            return self.report(DISORDER.to_owned(), Then::Relist);
        }
        self.known.remove(&uid);
        if !self.decoded(&uid) {
            return Then::Continue;
        }
        match self.ready.back_mut() {
            Some(SourceUpdate::Remove(uids)) => uids.push(uid),
            _ => self.ready.push_back(SourceUpdate::Remove(vec![uid])),
        }
        Then::Continue
    }

    fn failed(&mut self, error: &watcher::Error) -> Then {
        use kube::Error::{Api, ReadEvents, SerdeError};
        use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
        match error {
            // This may be a pod. The next list shows it.
            InitialListFailed(SerdeError(_)) | WatchFailed(SerdeError(_)) => {
                self.line.sift(true);
                self.report(crate::text::api_causes(error), Then::Relist)
            }
            // The watcher would request the compacted version forever.
            WatchStartFailed(Api(status)) if status.code == 410 => {
                self.is_expired = true;
                self.report(crate::text::api_causes(error), Then::Relist)
            }
            // The watcher lists again by itself.
            WatchError(status) if status.code == 410 => {
                self.is_expired = true;
                self.report(crate::text::api_causes(error), Then::Wait)
            }
            // Events may have been missed, and the server may have been unreachable: unknown.
            WatchFailed(ReadEvents(_)) if self.line.take_silence() => {
                self.report(crate::text::api_causes(error), Then::Relist)
            }
            // The connection broke: no event is lost, and the watch continues after the last one.
            WatchFailed(ReadEvents(_)) => self.report(crate::text::api_causes(error), Then::Wait),
            // The client reports an unreadable event as an empty status: an event was lost.
            WatchFailed(Api(status)) if status.code == 0 => {
                self.line.sift(true);
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

/// A pod of the API server, marked as such. With any other source in its annotation it would count as a
/// static pod. A mirror pod keeps its static pod's source until the merge has derived that pod.
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
