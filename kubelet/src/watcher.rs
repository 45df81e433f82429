//! Writes for an index from the events of kube's own watcher.
//!
//! A program that follows pods with `kube::runtime::watcher` anyway can keep an index up to date with [`WatchedPods`]. It
//! also says which times the index covers, for lookups [at a time](pod_index::Snapshot::at).
//!
//! # A complete program
//! It follows the pods of a node, and names the pod of an IP, now and at the time of an event. Without
//! `default_backoff`, the watcher tries again at once after each error: hundreds of requests a second to a server that is
//! in trouble. tokio needs its features `macros`, `rt-multi-thread` and `time`.
//! ```no_run
//! use std::net::IpAddr;
//! use std::pin::pin;
//! use std::thread;
//! use std::time::{Duration, SystemTime};
//!
//! use futures_util::StreamExt;
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::runtime::{WatchStreamExt, watcher};
//! use kube::{Api, Client};
//! use pod_index::{Holder, Moment, Options, Reader, Time};
//! use pod_index_kubelet::watcher::WatchedPods;
//!
//! #[tokio::main]
//! async fn main() -> kube::Result<()> {
//!     // Removed pods stay for five minutes, because events of a pod arrive after its end. With 34 kB a pod, 1,000 take 34 MB.
//!     let options = Options::new().keep_removed(Duration::from_secs(300), 1_000).keep_times(true);
//!     let (mut writer, reader) = pod_index::with_options::<Pod>(options);
//!     thread::spawn(move || answer(&reader));
//!
//!     let pods: Api<Pod> = Api::all(Client::try_default().await?);
//!     let of_this_node = watcher::Config::default().fields("spec.nodeName=node-1");
//!     let mut events = pin!(watcher(pods, of_this_node).default_backoff());
//!     let mut watched = WatchedPods::default();
//!     let mut second = tokio::time::interval(Duration::from_secs(1));
//!     loop {
//!         tokio::select! {
//!             event = events.next() => match event {
//!                 Some(Ok(event)) => {
//!                     let now = Moment::now();
//!                     // First the event, then what it covers.
//!                     let operation = watched.operation_at(event, now);
//!                     for refused in writer.apply_at(watched.covered(now), operation).refused {
//!                         eprintln!("skipped: {}", refused.error);
//!                     }
//!                 }
//!                 // The watcher tries again. Until it succeeds, no later time becomes certain.
//!                 Some(Err(error)) => {
//!                     watched.interrupted(Moment::now());
//!                     eprintln!("{error}");
//!                 }
//!                 None => return Ok(()),
//!             },
//!             // Forgets old removed pods, and frees what readers have released, also while no pod changes.
//!             _ = second.tick() => {
//!                 writer.advance(watched.covered(Moment::now()));
//!                 writer.reclaim();
//!             }
//!         }
//!     }
//! }
//!
//! fn answer(reader: &Reader<Pod>) {
//!     let mut cached = reader.cached();
//!     let ip = IpAddr::from([10, 0, 0, 7]); // of an event
//!     // Now, on the hot path.
//!     if let Some(found) = cached.get(ip) {
//!         println!("{:?}", found.pod.metadata.name);
//!     }
//!     // When a connection began.
//!     let began = Time::from(SystemTime::now() - Duration::from_secs(20));
//!     loop {
//!         let pods = reader.load();
//!         let then = pods.at(began).fixed(); // so that the answer and is_settled() belong together
//!         match then.get(ip) {
//!             Holder::Pod(found) => return println!("{:?}", found.pod.metadata.name),
//!             // That time is still too new. A program with many events puts this one into a queue, and gives up some time.
//!             _ if !then.is_settled() => {}
//!             other => return println!("not certain: {other:?}"),
//!         }
//!         drop(pods); // a snapshot that is held takes memory
//!         thread::sleep(Duration::from_secs(1));
//!     }
//! }
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, mem};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use pod_index::{Moment, Operation, PodMeta};

use crate::marks::of_the_api_server;

/// Turns the events of `kube::runtime::watcher` into operations for [`Writer::apply_at`](pod_index::Writer::apply_at).
///
/// A list arrives as one event for each pod. It becomes one [`Operation::Set`] when it is complete, so that readers see all
/// of it or nothing. `sources::api_server` needs no watcher, and reports its state.
///
/// # What a pod may not say of itself
/// Whoever may create a pod sets its annotations. A pod of the API server with another source in
/// [`CONFIG_SOURCE_ANNOTATION`](pod_index::CONFIG_SOURCE_ANNOTATION) would count as a static pod, and one with
/// [`ENDED_ANNOTATION`](pod_index::ENDED_ANNOTATION) would hide its IP. So the first is set right and the second removed, as
/// `sources::api_server` does. `metadata.managedFields`, which takes most of the memory of many pods, is removed, too. A pod may
/// be as large as the API server allows: unlike `sources::api_server`, this knows no limit of its own.
///
/// # What is covered
/// After a list, everything is covered up to the last event after which none came for a second. Why not up to the newest one? A
/// watch that was cut goes on where it stopped, and sends what it missed: at the first of these events, the others are still
/// to come, such as the removal of a pod whose IP you ask for. If events come without such a pause, one of them covers what
/// was before it ten seconds later. A backlog that pauses for a second, or takes longer than ten, covers too much.
///
/// If the watcher yields an error instead, the pause after the newest events says nothing, because the rest of them could not be
/// sent: call [`interrupted`](Self::interrupted). A second list means that the watcher has lost its place, so the coverage begins anew. kube's watcher keeps bookmarks to
/// itself: while no pod changes, nothing tells that the watch is alive, and the coverage stands still. `sources::api_server`
/// has no such limit.
///
/// # Complexity
/// O(1) for each event. It holds the pods of a list until the list is complete.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::watcher::Event;
/// use pod_index::Moment;
/// use pod_index_kubelet::watcher::WatchedPods;
///
/// let (mut writer, reader) = pod_index::new::<Pod>();
/// let mut watched = WatchedPods::default();
/// let mut pod = Pod::default();
/// pod.metadata.uid = Some("u1".into());
/// pod.metadata.name = Some("web".into());
/// pod.metadata.namespace = Some("shop".into());
/// for event in [Event::Init, Event::InitApply(pod), Event::InitDone] {
///     let operation = watched.operation_at(event, Moment::now());
///     let applied = writer.apply_at(watched.covered(Moment::now()), operation);
///     assert!(applied.refused.is_empty());
/// }
/// assert!(reader.pod(("shop", "web")).is_some());
/// ```
///
/// An index of a smaller type, made from each pod as it arrives:
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::watcher::Event;
/// use pod_index::{PodMeta, SimplePod};
/// use pod_index_kubelet::watcher::WatchedPods;
///
/// let (mut writer, reader) = pod_index::new::<SimplePod>();
/// let mut watched =
///     WatchedPods::transformed(|pod: Pod| SimplePod::new(pod.uid(), pod.namespace(), pod.name()));
/// let mut pod = Pod::default();
/// pod.metadata.uid = Some("u1".into());
/// pod.metadata.name = Some("web".into());
/// pod.metadata.namespace = Some("shop".into());
/// assert!(writer.apply(watched.operation(Event::Apply(pod))).refused.is_empty());
/// assert!(reader.pod(("shop", "web")).is_some());
/// ```
pub struct WatchedPods<P = Pod> {
    /// Makes what is stored.
    transform: Box<dyn FnMut(Pod) -> P + Send>,
    listed: Vec<Arc<P>>,
    covered: Option<Covered>,
}

/// If no event comes for so long, all events of a watch that was cut have arrived.
const PAUSE: Duration = Duration::from_secs(1);
/// All events that such a watch sends at once have arrived after so long, also if others follow without a pause.
const LONGEST_BACKLOG: Duration = Duration::from_secs(10);

/// The times of which everything was told.
#[derive(Clone, Copy, Debug)]
struct Covered {
    since: Instant,
    /// Before the events that follow each other without a pause until now.
    until: Instant,
    /// One of these events: first the first one, later a newer one.
    first: Instant,
    /// The newest one.
    last: Instant,
}

impl Covered {
    /// Begins with a complete list.
    fn by_list(now: Instant) -> Self {
        Self { since: now, until: now, first: now, last: now }
    }

    fn until(&self, now: Instant) -> Instant {
        if now.saturating_duration_since(self.last) >= PAUSE { self.last } else { self.until }
    }

    /// The watch was cut: more may have been sent after the newest events.
    fn interrupt(&mut self, now: Instant) {
        self.until = self.until(now);
        self.first = self.until;
        self.last = self.until;
    }

    /// An event has arrived.
    fn extend(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last) >= PAUSE {
            self.until = self.last;
            self.first = now;
        } else if now.saturating_duration_since(self.first) >= LONGEST_BACKLOG {
            self.until = self.first;
            self.first = now;
        }
        self.last = now;
    }
}

impl<P: PodMeta> WatchedPods<P> {
    /// Stores what `transform` makes of each pod.
    #[must_use]
    pub fn transformed(transform: impl FnMut(Pod) -> P + Send + 'static) -> Self {
        Self { transform: Box::new(transform), listed: Vec::new(), covered: None }
    }

    /// The operation to apply after this event, if there is one. `now` is when the event arrived.
    pub fn operation_at(&mut self, event: Event<Pod>, now: Moment) -> Option<Operation<P>> {
        let operation = match event {
            Event::Apply(pod) => Some(Operation::Upsert(self.stored(pod))),
            Event::Delete(pod) => Some(Operation::Remove(pod.uid().into())),
            Event::InitDone => {
                self.covered = Some(Covered::by_list(now.instant));
                return Some(Operation::Set(mem::take(&mut self.listed)));
            }
            Event::Init => {
                // The list before may have been incomplete.
                self.listed.clear();
                self.interrupted(now);
                return None;
            }
            Event::InitApply(pod) => {
                let stored = self.stored(pod);
                self.listed.push(stored);
                return None;
            }
        };
        if let Some(covered) = &mut self.covered {
            covered.extend(now.instant);
        }
        operation
    }

    /// As [`operation_at`](Self::operation_at), now.
    pub fn operation(&mut self, event: Event<Pod>) -> Option<Operation<P>> {
        self.operation_at(event, Moment::now())
    }

    /// The watcher yielded an error at this moment. Events less than a second before [cover nothing](Self#what-is-covered), because
    /// others may not have been sent. O(1).
    pub fn interrupted(&mut self, now: Moment) {
        if let Some(covered) = &mut self.covered {
            covered.interrupt(now.instant);
        }
    }

    fn stored(&mut self, mut pod: Pod) -> Arc<P> {
        pod.metadata.managed_fields = None;
        Arc::new((self.transform)(of_the_api_server(pod)))
    }

    /// This moment, with [what is covered](Self#what-is-covered) by the events until now. Pass it to
    /// [`Writer::apply_at`](pod_index::Writer::apply_at) together with their operations.
    pub fn covered(&self, now: Moment) -> Moment {
        let Some(covered) = self.covered else { return now };
        // By the present clock, in case that it was set.
        let at = |instant: Instant| {
            SystemTime::from(now.time).checked_sub(now.instant.saturating_duration_since(instant))
        };
        at(covered.since)
            .zip(at(covered.until(now.instant)))
            .map_or(now, |(since, until)| now.covering(since, until))
    }
}

/// Stores the pods themselves.
impl Default for WatchedPods {
    fn default() -> Self {
        Self::transformed(|pod| pod)
    }
}

impl<P> fmt::Debug for WatchedPods<P> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("WatchedPods")
            .field("listed", &self.listed.len())
            .field("covered", &self.covered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, Instant, SystemTime};

    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
    use kube::runtime::watcher::Event;
    use pod_index::{
        CONFIG_SOURCE_ANNOTATION, Coverage, ENDED_ANNOTATION, Holder, Moment, Operation, PodMeta,
        is_static_pod,
    };

    use super::{Covered, WatchedPods};

    #[test]
    fn a_list_begins_the_coverage_and_each_later_event_extends_it() {
        let start = Moment::now();
        let mut watched = WatchedPods::default();
        let at = |seconds: u64| {
            let seconds = Duration::from_secs(seconds);
            Moment::new(start.instant + seconds, std::time::SystemTime::from(start.time) + seconds)
        };
        let time = |seconds: u64| at(seconds).time;
        let mut covered = |seconds: u64, event: Event<Pod>| {
            let _ = watched.operation_at(event, at(seconds));
            // Written a second later.
            watched.covered(at(seconds + 1)).coverage.map(|Coverage { since, until }| (since, until))
        };
        assert_eq!(covered(1, Event::Apply(pod("a"))), None, "before the first list");
        assert_eq!(covered(2, Event::Init), None);
        assert_eq!(covered(3, Event::InitApply(pod("a"))), None);
        assert_eq!(covered(4, Event::InitDone), Some((time(4), time(4))));
        assert_eq!(covered(10, Event::Apply(pod("b"))), Some((time(4), time(10))));
        // The watcher has lost its place. What it lists now is not known before the list's end.
        assert_eq!(covered(20, Event::Init), Some((time(4), time(10))));
        assert_eq!(covered(21, Event::InitApply(pod("c"))), Some((time(4), time(10))));
        assert_eq!(covered(22, Event::InitDone), Some((time(22), time(22))));
        assert_eq!(covered(30, Event::Delete(pod("c"))), Some((time(22), time(30))));
    }

    /// Events at these milliseconds after a list at 0, and until when everything is covered at the moment that follows each.
    #[track_caller]
    fn assert_covered(events: &[(u64, u64, u64)]) {
        let (start, mut covered) = (Instant::now(), None::<Covered>);
        let at = |millis: u64| start + Duration::from_millis(millis);
        for &(event, asked, until) in events {
            covered.get_or_insert_with(|| Covered::by_list(start)).extend(at(event));
            let known = covered.map(|covered| covered.until(at(asked)));
            assert_eq!(known, Some(at(until)), "asked at {asked} ms, after an event at {event} ms");
        }
    }

    #[test]
    fn an_event_covers_nothing_while_others_may_follow_at_once() {
        assert_covered(&[(60_000, 60_000, 0), (60_200, 61_199, 0), (60_400, 61_400, 60_400)]);
        assert_covered(&[(5_000, 5_500, 0), (60_000, 60_000, 5_000), (60_900, 60_900, 5_000)]);
    }

    #[test]
    fn a_watch_that_is_cut_again_covers_nothing_by_its_silence() {
        let (start, mut watched) = (Moment::now(), WatchedPods::default());
        let at = |seconds: u64| {
            let seconds = Duration::from_secs(seconds);
            Moment::new(start.instant + seconds, SystemTime::from(start.time) + seconds)
        };
        let until = |watched: &WatchedPods, asked: u64| {
            let coverage = watched.covered(at(asked)).coverage.unwrap();
            (SystemTime::from(coverage.until).duration_since(start.time.into())).unwrap().as_secs()
        };
        let _ = watched.operation_at(Event::InitDone, at(0));
        let _ = watched.operation_at(Event::Apply(pod("a")), at(30));
        // It goes on with the first of two events, and is cut before the second.
        let _ = watched.operation_at(Event::Apply(pod("b")), at(90));
        watched.interrupted(at(90));
        assert_eq!(until(&watched, 95), 30);
        // It goes on with the second one.
        let _ = watched.operation_at(Event::Delete(pod("a")), at(100));
        assert_eq!((until(&watched, 100), until(&watched, 101)), (30, 100));
        // A list after 410 shows no error.
        let _ = watched.operation_at(Event::Apply(pod("b")), at(200));
        let _ = watched.operation_at(Event::Init, at(200));
        assert_eq!(until(&watched, 205), 100);
    }

    #[test]
    fn events_without_a_pause_cover_what_was_ten_seconds_ago() {
        let mut events: Vec<_> = (0..20).map(|half| (30_000 + 500 * half, 30_000 + 500 * half, 0)).collect();
        events.push((40_000, 40_000, 30_000));
        events.push((40_500, 40_500, 30_000));
        assert_covered(&events);
    }

    #[test]
    fn a_removal_during_an_outage_makes_the_pod_uncertain_whatever_event_comes_first() {
        let options = pod_index::Options::new().keep_removed(Duration::from_secs(300), 10).keep_times(true);
        let (mut writer, reader) = pod_index::with_options::<Pod>(options);
        let (start, mut watched) = (Moment::now(), WatchedPods::default());
        let at = |millis: u64| {
            let after = Duration::from_millis(millis);
            Moment::new(start.instant + after, SystemTime::from(start.time) + after)
        };
        let running = || {
            let mut running = pod("a");
            let ip = Some("10.0.0.7".to_owned());
            running.status =
                Some(PodStatus { pod_ip: ip, phase: Some("Running".to_owned()), ..PodStatus::default() });
            running
        };
        // A watch that was cut after 30 s goes on at 90 s.
        for (millis, event) in [
            (0, Event::Init),
            (0, Event::InitApply(running())),
            (0, Event::InitDone),
            (30_000, Event::Apply(pod("b"))),
            (90_000, Event::Apply(pod("c"))),
            (90_001, Event::Delete(running())),
        ] {
            let operation = watched.operation_at(event, at(millis));
            assert!(writer.apply_at(watched.covered(at(millis)), operation).refused.is_empty());
        }
        writer.advance(watched.covered(at(95_000)));
        let snapshot = reader.load();
        let ip = IpAddr::from([10, 0, 0, 7]);
        let uid_at = |millis: u64| match snapshot.at(at(millis).time).get(ip) {
            Holder::Pod(found) => Some(found.pod.uid().to_owned()),
            _ => None,
        };
        assert_eq!(uid_at(15_000).as_deref(), Some("a"), "before the outage");
        assert_eq!(uid_at(60_000), None, "in the outage, the pod may have been gone for long");
    }

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.into());
        pod.metadata.name = Some(uid.into());
        pod.metadata.namespace = Some("default".into());
        pod
    }

    #[test]
    fn a_pod_cannot_say_that_it_is_static_or_that_it_holds_no_ip() {
        let (mut writer, reader) = pod_index::new();
        let mut watched = WatchedPods::default();
        let mut forged = pod("a");
        forged.metadata.annotations = Some(
            [(CONFIG_SOURCE_ANNOTATION, "file"), (ENDED_ANNOTATION, ""), ("kept", "yes")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        forged.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
        forged.status = Some(PodStatus { pod_ip: Some("10.0.0.7".to_owned()), ..PodStatus::default() });
        let ip = IpAddr::from([10, 0, 0, 7]);
        for events in
            [vec![Event::Apply(forged.clone())], vec![Event::Init, Event::InitApply(forged), Event::InitDone]]
        {
            for event in events {
                assert!(writer.apply(watched.operation(event)).refused.is_empty());
            }
            let stored = reader.pod(ip).expect("the pod holds its IP");
            assert!(!is_static_pod(&*stored));
            let annotations = stored.metadata.annotations.as_ref().unwrap();
            assert_eq!(annotations["kept"], "yes");
            assert!(!annotations.contains_key(ENDED_ANNOTATION));
            assert_eq!(stored.metadata.managed_fields, None);
            assert!(writer.apply([Operation::Remove("a".into())]).published);
        }
    }

    #[test]
    fn a_list_that_is_cut_off_changes_nothing_and_the_next_one_replaces_everything() {
        let (mut writer, reader) = pod_index::new();
        let mut watched = WatchedPods::default();
        let mut uids_after = |event: Event<Pod>| {
            assert!(writer.apply(watched.operation(event)).refused.is_empty());
            let mut uids: Vec<_> =
                reader.load().pods().map(|pod| pod.metadata.uid.clone().unwrap_or_default()).collect();
            uids.sort_unstable();
            uids.join(" ")
        };
        assert_eq!(uids_after(Event::Apply(pod("a"))), "a");
        assert_eq!(uids_after(Event::Init), "a");
        assert_eq!(uids_after(Event::InitApply(pod("cut off"))), "a");
        assert_eq!(uids_after(Event::Init), "a");
        assert_eq!(uids_after(Event::InitApply(pod("b"))), "a");
        assert_eq!(uids_after(Event::InitApply(pod("c"))), "a");
        assert_eq!(uids_after(Event::InitDone), "b c");
        assert_eq!(uids_after(Event::Delete(pod("b"))), "c");
    }
}
