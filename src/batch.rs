//! Lookups of a batch of events: many keys, one snapshot, one call.
//!
//! This is a loop, on purpose: `docs/performance/designs-tried.md` has what prefetching gained.

use std::time::Duration;

use crate::at::{AtTime, Holder, NotFound};
use crate::pod::{PodMeta, Time};
use crate::pods::{Found, Key};
use crate::snapshot::Snapshot;

/// What an event says of its pod: a key, and when the event happened.
///
/// # Examples
/// ```
/// use std::net::IpAddr;
/// use pod_index::{Event, Time};
///
/// let ip = IpAddr::from([10, 0, 0, 7]);
/// let _: Event = ip.into();
/// let _ = Event { key: ip.into(), at: Some(Time::from_seconds(1_700_000_000)) };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event<'k> {
    /// The key.
    pub key: Key<'k>,
    /// When it happened. `None`: the present pod is meant.
    pub at: Option<Time>,
}

impl<'k, K: Into<Key<'k>>> From<K> for Event<'k> {
    fn from(key: K) -> Self {
        Self { key: key.into(), at: None }
    }
}

/// How exact the times of events are: see [`AtTime`](crate::AtTime), whose values are the default.
///
/// # Examples
/// See [`Snapshot::get_many_at`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tolerance {
    /// As for [`AtTime::skew`](crate::AtTime::skew).
    pub skew: Duration,
    /// As for [`AtTime::delay`](crate::AtTime::delay).
    pub delay: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { skew: AtTime::<()>::SKEW, delay: AtTime::<()>::DELAY }
    }
}

impl<P: PodMeta> Snapshot<P> {
    /// The pods with these keys, in their order: [`get`](Self::get) for each. The keys may be of different kinds.
    ///
    /// # Complexity
    /// That of [`get`](Self::get) for each key, when the result is iterated. No allocation.
    ///
    /// # Examples
    /// ```
    /// use pod_index::{Key, SimplePod};
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// writer.upsert_pod(SimplePod::new("u1", "shop", "web"))?;
    /// let batch: [Key; 3] = ["u1".into(), ("shop", "web").into(), std::net::IpAddr::from([10, 0, 0, 7]).into()];
    ///
    /// let pods = reader.load();
    /// let found: Vec<_> = pods.get_many(batch).map(|found| found.is_some()).collect();
    /// assert_eq!(found, [true, true, false]);
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    pub fn get_many<'s, 'k, K: Into<Key<'k>>>(
        &'s self,
        keys: impl IntoIterator<Item = K>,
    ) -> impl Iterator<Item = Option<Found<'s, P>>> {
        keys.into_iter().map(|key| self.get(key))
    }

    /// The pods of these events, in their order: the pod that had the key when the event happened, as by
    /// [`at`](Self::at), or the present one if the event has no time. An event without a time and without a pod is
    /// [`Unknown`](Holder::Unknown): [`NoPod`](NotFound::NoPod), or [`NoKey`](NotFound::NoKey) if its key is a text that is none.
    ///
    /// # Consistency
    /// All results are of this snapshot, and rest on what was [covered](crate::Coverage) when this was called, however long the
    /// result is iterated: two equal events have equal answers.
    ///
    /// # Complexity
    /// That of [`get`](Self::get) or of [`AtTime::get`](crate::AtTime::get) for each event, when the result is iterated.
    ///
    /// # Examples
    /// ```
    /// use pod_index::{Event, Holder, Key, SimplePod, Time, Tolerance};
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// writer.upsert_pod(SimplePod::new("u1", "shop", "web"))?;
    /// let now = Event::from("u1");
    /// let then = Event { key: "u1".into(), at: Some(Time::from_seconds(1_700_000_000)) };
    ///
    /// let pods = reader.load();
    /// for holder in pods.get_many_at([now, then], Tolerance::default()) {
    ///     assert!(matches!(holder, Holder::Pod(found) if found.pod.name() == "web"));
    /// }
    /// # use pod_index::PodMeta;
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    pub fn get_many_at<'s, 'k>(
        &'s self,
        events: impl IntoIterator<Item = Event<'k>>,
        tolerance: Tolerance,
    ) -> impl Iterator<Item = Holder<'s, P>> {
        // The time is that of each event.
        let then = self.at(Time::MIN).skew(tolerance.skew).delay(tolerance.delay).fixed();
        events.into_iter().map(move |Event { key, at }| match at {
            Some(at) => then.time(at).get(key),
            None => self.get(key).map_or_else(|| Holder::Unknown(absent(key)), Holder::Pod),
        })
    }
}

/// Why no present pod has this key.
#[cold]
fn absent(key: Key<'_>) -> NotFound {
    if key.is_key() { NotFound::NoPod } else { NotFound::NoKey }
}
