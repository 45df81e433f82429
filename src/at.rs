//! Which pod held a key at a time?
//!
//! [`AtTime`] has the rules; `snapshot::times` what the index learnt.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{ContainerLog, Identity};
use crate::pod::{KeyRef, Life, PodKind, PodMeta, Time, ip_number, nanos};
use crate::snapshot::{Found, FoundBy, Hold, Key, OwnedKey, Snapshot, Stay, Times};

/// The lookups of a snapshot at a time; see [`Snapshot::at`] for an example.
///
/// # Rules
/// A pod held a key during an interval. The index knows only bounds of its start (`from`) and its end (`until`):
///
/// | key | bound | is | because |
/// |---|---|---|---|
/// | IP | from, earliest | the latest of [`Life::ip_not_before`] and *heard − delay* | the kubelet takes a pod before it has an IP; what happened before that time was known, and the pod did not have the IP yet |
/// | | from, latest | the earliest of *learnt* and [`Life::ip_by`] of every object that had the IP | a status shows an IP after the pod has it; a container starts after its sandbox has the IP |
/// | | until, earliest | *heard − delay*. Of a pod that [may lack its sandbox](Life::may_lack_sandbox): the latest of [`Life::ip_until`] and *heard − delay* of before | an end before that time would be known; the sandbox outlives the containers, but not for ever: a completed pod keeps its IP in the object, not on the wire |
/// | | until, latest | when the index learnt that the pod has another IP, that it no longer may lack its sandbox, or that it is gone and might. Otherwise open | a pod that runs again may have another sandbox, so this is another hold; the kubelet removes the object after the sandbox; a forced deletion leaves containers running |
/// | name | from, earliest | the latest of [`Life::created`] − skew and *heard − delay* | the API server's clock |
/// | | from, latest | the earliest of *learnt* and [`Life::created`] + 1 s + skew | whole seconds |
/// | | until | *heard − delay*, and *learnt* | the object's own life, whatever its containers do |
/// | custom | | as a name, but from at the latest when learnt | an update can add it |
/// | UID, container ID | | needs no time | never used again |
///
/// *Learnt* is [`Writer::set_time`](crate::Writer::set_time) at the write that told; *heard* is the last
/// [`Writer::heard`](crate::Writer::heard) before it or, for a hold that has not ended, the last one at all. Host-network
/// pods name no IP ([`PodMeta::keys`]), so the node's IP is nobody's.
///
/// The event happened at its time ± skew. A pod held the key *certainly* if it did at every time of that range for all
/// intervals within the bounds, and *possibly* if it did at some time for some interval. Two pods never have an IP or a
/// name at once. So a certain pod is the answer. If one pod certainly came first, it ended before the other began, which
/// narrows the bounds. Pods can share a custom key: a certain pod is then the answer only if no other is possible and the
/// range is [known](AtTime::known). If contradicting clocks make several pods certain, a current one comes first.
pub struct AtTime<'a, P> {
    snapshot: &'a Snapshot<P>,
    time: Time,
    // In nanoseconds.
    skew: i64,
    delay: i64,
}

/// The pod that held a key at a time, as far as the index knows.
#[non_exhaustive]
pub enum Holder<'a, P> {
    /// This pod held it for certain, within the given skew and delay.
    Pod(Found<'a, P>),
    /// One of these pods may have held it. If there is one alone, it probably did, but the event may also belong to a pod
    /// before or after it.
    Ambiguous {
        /// The likeliest one first; at most [`MAX_CANDIDATES`](AtTime::MAX_CANDIDATES).
        candidates: Vec<Candidate<'a, P>>,
        /// The number of less likely ones, which are left out.
        more: usize,
    },
    /// No pod is known to have held it.
    Unknown(NotFound),
}

/// Why no pod is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NotFound {
    /// The time is before what the index knows: it began later, or has forgotten.
    TooEarly,
    /// The time is after what the index knows yet.
    TooLate,
    /// No pod that the index still knows held it then. A pod that was removed while it ran may have kept its IP: the index
    /// knows it for as long as [`Options::keep_removed`](crate::Options::keep_removed) says, counted from the removal.
    NoPod,
}

/// A pod that held, or may have held, a key.
#[non_exhaustive]
pub struct Candidate<'a, P> {
    /// The pod, as it is now or was when it was removed.
    pub pod: &'a Arc<P>,
    /// When it got the key.
    pub from: Bounds,
    /// When it lost the key.
    pub until: Bounds,
    /// Whether it held the key for certain at the time asked for.
    pub is_certain: bool,
}

/// Bounds of a time. `None`: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bounds {
    /// Not before.
    pub earliest: Option<Time>,
    /// Not after.
    pub latest: Option<Time>,
}

/// Bounds of an interval. Open ones are the first and the last time.
#[derive(Clone, Copy)]
struct Window {
    from: (Time, Time),
    until: (Time, Time),
}

/// The bounds of a stay, and its pod if that is not forgotten.
struct Bounded<'a, P> {
    found: Option<Found<'a, P>>,
    /// The pod has the key, and does not lack its sandbox.
    is_current: bool,
    window: Window,
}

impl<P: PodMeta> Snapshot<P> {
    /// Lookups at a wall-clock time, among current and removed pods: an event's pod may be gone when the event arrives, and
    /// its IP or name another pod's.
    ///
    /// Needs an index that [keeps times](crate::Options::keep_times); any other knows only what needs no time: UIDs and
    /// container IDs.
    ///
    /// # Complexity
    /// O(1); no allocation. No lookup reads a clock.
    ///
    /// # Examples
    /// ```
    /// use std::net::IpAddr;
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{Holder, Options, PodKeys, PodMeta, Time};
    ///
    /// struct Pod(&'static str);
    /// impl PodMeta for Pod {
    ///     fn uid(&self) -> &str { self.0 }
    ///     fn name(&self) -> &str { self.0 }
    ///     fn namespace(&self) -> &str { "ci" }
    ///     fn annotation(&self, _: &str) -> Option<&str> { None }
    ///     fn keys(&self, keys: &mut PodKeys<'_>) { keys.ip([10, 0, 0, 7].into()); }
    /// }
    ///
    /// let options = Options::new().keep_removed(Duration::from_secs(300), 10_000).keep_times(true);
    /// let (mut writer, reader) = pod_index::with_options(options);
    /// let second = Time::from_seconds;
    ///
    /// writer.set_time(second(100));
    /// writer.add_pod(Pod("job-1"))?;
    /// writer.heard(second(160));
    /// writer.set_time(second(160));
    /// writer.remove_pod_by_uid("job-1");
    /// writer.add_pod(Pod("job-2"))?; // with the same IP
    /// writer.heard(second(200));
    ///
    /// let pods = reader.load();
    /// let ip = IpAddr::from([10, 0, 0, 7]);
    /// let who = |at| match pods.at(second(at)).skew(Duration::from_secs(2)).delay(Duration::from_secs(5)).get(ip) {
    ///     Holder::Pod(found) => found.pod.0,
    ///     _ => "not certain",
    /// };
    /// assert_eq!(who(130), "job-1"); // although job-2 has the IP now
    /// assert_eq!(who(158), "not certain"); // job-1 was about to end
    /// assert_eq!(who(170), "job-2");
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    ///
    /// Kubelet: none; its pod manager knows the present only.
    #[inline]
    #[must_use]
    pub fn at(&self, time: impl Into<Time>) -> AtTime<'_, P> {
        let (skew, delay) = const { (nanos(AtTime::<P>::SKEW), nanos(AtTime::<P>::DELAY)) };
        AtTime { snapshot: self, time: time.into(), skew, delay }
    }
}

impl<P> AtTime<'_, P> {
    /// The skew, unless [`skew`](Self::skew) sets another.
    pub const SKEW: Duration = Duration::from_secs(2);
    /// The delay, unless [`delay`](Self::delay) sets another.
    pub const DELAY: Duration = Duration::from_secs(10);
    /// The largest number of candidates of an [ambiguous](Holder::Ambiguous) answer.
    pub const MAX_CANDIDATES: usize = 16;
}

impl<'a, P: PodMeta> AtTime<'a, P> {
    /// The largest difference between any two of the clocks: the event's, the node's and the API server's.
    #[inline]
    #[must_use]
    pub fn skew(self, skew: Duration) -> Self {
        Self { skew: nanos(skew), ..self }
    }

    /// The longest time from a change on the node until a source tells of it, while that source answers.
    #[inline]
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay: nanos(delay), ..self }
    }

    /// The pod that held this key. A mirror pod is found by its name and its UID, not by an IP.
    ///
    /// # Consistency
    /// A [`Holder::Pod`] is right as long as no clock differs by more than the [skew](Self::skew) and no news takes longer
    /// than the [delay](Self::delay). An IP, a name or a
    /// custom key is therefore never certain for an event within skew + delay of the last
    /// [heard](crate::Writer::heard) time: its pod may be gone, and nobody has told yet.
    ///
    /// # Complexity
    /// O(1) expected and no allocation if a current pod alone claims an IP, and says itself that it had it then. Otherwise
    /// O(k log n) for k pods that had the key, and lists of them.
    #[inline]
    #[must_use]
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Holder<'a, P> {
        let key = key.into();
        let Key::Ip(ip) = key else { return self.get_any(key) };
        let ip = ip_number(ip);
        if let Some(pod) = self.of_ip(ip) {
            return Holder::Pod(Found { pod, container: None, by: FoundBy::Ip, removed_at: None });
        }
        // The copy is made here only, so that the values above stay in registers.
        let copy = *self;
        copy.search(KeyRef::Ip(ip), FoundBy::Ip)
    }

    #[inline(never)]
    fn get_any(&self, key: Key<'_>) -> Holder<'a, P> {
        let [claimed, by_mirrors] = timed(key);
        let Some(claimed) = claimed else { return exact(self.snapshot.find(key)) };
        match (self.search(claimed, key.found_by()), by_mirrors) {
            (Holder::Unknown(_), Some(claimed)) => self.search(claimed, key.found_by()),
            (holder, _) => holder,
        }
    }

    /// All pods that had this key at any time, as far as the index knows, with the bounds, the likeliest one at this time
    /// first.
    ///
    /// # Complexity
    /// O(n log n) for n pods that had the key.
    #[must_use]
    pub fn candidates<'k>(&self, key: impl Into<Key<'k>>) -> Vec<Candidate<'a, P>> {
        self.listed(timed(key.into()).into_iter().flatten().flat_map(|claimed| self.stays(claimed)))
    }

    /// The times between which no pod that held a key is unknown, if the index keeps times and has heard anything.
    #[must_use]
    pub fn known(&self) -> Option<(Time, Time)> {
        let times = self.snapshot.times.as_deref().filter(|times| times.as_of() > Time::MIN)?;
        // In this order: `Times::as_of` says why.
        let settled = self.settled(times);
        Some((times.floor(), settled))
    }

    /// The range of times at which the event happened.
    #[inline]
    fn range(&self) -> (Time, Time) {
        (self.time.plus(-self.skew), self.time.plus(self.skew))
    }

    /// What happened until this time is known.
    fn settled(&self, times: &Times) -> Time {
        times.as_of().plus(-self.delay)
    }

    /// If the pod that has the IP says itself that it had it then, nothing else matters: see the rules.
    #[inline]
    fn of_ip(&self, ip: u128) -> Option<&'a Arc<P>> {
        let as_of = self.snapshot.times.as_deref()?.as_of();
        let (_, pod) = self.snapshot.live.find(KeyRef::Ip(ip), &self.snapshot.hashing)?;
        if self.snapshot.live.first_contender(KeyRef::Ip(ip)).is_some() {
            return None;
        }
        let (life, (first, last)) = (pod.life(), self.range());
        let runs = last.plus(self.delay) < as_of && !life.may_lack_sandbox;
        (runs && life.ip_by.is_some_and(|by| by <= first)).then_some(pod)
    }

    #[inline(never)]
    fn search(&self, key: KeyRef<'_>, by: FoundBy) -> Holder<'a, P> {
        let stays = self.stays(key);
        let (first, last) = self.range();
        let known = self.known();
        let is_complete = known.is_some_and(|(floor, _)| floor <= first);
        let certain = stays.iter().filter(|stay| stay.window.contains(first, last));
        let possible = stays.iter().filter(|stay| stay.window.touches(first, last)).count();
        let is_exclusive = !matches!(key, KeyRef::Own(..));
        let is_any_current = certain.clone().any(|stay| stay.is_current);
        let mut certain = certain.filter(|stay| stay.is_current == is_any_current);
        if let (Some(stay), None) = (certain.next(), certain.next())
            && (is_exclusive || (possible == 1 && is_complete))
        {
            let found = stay.found.map(|found| Holder::Pod(Found { by, ..found }));
            return found.unwrap_or(Holder::Unknown(NotFound::TooEarly));
        }
        let mut windows: Vec<_> = stays.iter().map(|stay| stay.window).collect();
        if is_exclusive {
            narrow(&mut windows);
        }
        let touching = stays.into_iter().zip(windows).filter(|(_, window)| window.touches(first, last));
        let mut candidates = self.listed(touching.map(|(stay, _)| stay));
        if !candidates.is_empty() {
            let more = candidates.len().saturating_sub(Self::MAX_CANDIDATES);
            candidates.truncate(Self::MAX_CANDIDATES);
            return Holder::Ambiguous { candidates, more };
        }
        Holder::Unknown(match known {
            Some((_, settled)) if last < settled && is_complete => NotFound::NoPod,
            Some((_, settled)) if last < settled => NotFound::TooEarly,
            _ => NotFound::TooLate,
        })
    }

    /// The pods that had a key.
    fn stays(&self, key: KeyRef<'_>) -> Vec<Bounded<'a, P>> {
        let Some(times) = self.snapshot.times.as_deref() else { return Vec::new() };
        let settled = self.settled(times);
        let bounded = |(stay, hold): (&Stay, &Hold)| {
            let found = self.snapshot.find(stay.uid.as_uid_ref().into());
            let life = hold.end.as_ref().map(|end| end.life).or_else(|| Some(found?.pod.life()));
            let life = life.unwrap_or_default();
            let is_current = hold.end.is_none() && !life.may_lack_sandbox;
            Bounded { found, is_current, window: self.window(stay, hold, &life, settled) }
        };
        times.of(key).map(bounded).collect()
    }

    /// The rules of [`AtTime`].
    fn window(&self, stay: &Stay, hold: &Hold, life: &Life, settled: Time) -> Window {
        let known = |heard: Time| heard.plus(-self.delay);
        let created = life.created.map(|created| created.plus(-self.skew));
        let created_by =
            life.created.map(|created| created.saturating_add(Duration::from_secs(1)).plus(self.skew));
        let (not_before, by) = match stay.key {
            OwnedKey::Ip(_) => (life.ip_not_before, life.ip_by),
            OwnedKey::Name(..) => (created, created_by),
            _ => (created, None),
        };
        let is_ip = matches!(stay.key, OwnedKey::Ip(_));
        let end = hold.end.as_deref();
        let until = if is_ip && life.may_lack_sandbox {
            known(hold.ran).max(life.ip_until.unwrap_or(Time::MIN))
        } else {
            end.map_or(settled, |end| known(end.heard))
        };
        let over = end.filter(|end| !is_ip || !end.removed || life.may_lack_sandbox);
        Window {
            from: (
                known(hold.heard).max(not_before.unwrap_or(Time::MIN)),
                hold.by.min(by.unwrap_or(Time::MAX)),
            ),
            until: (until, over.map_or(Time::MAX, |end| end.learned)),
        }
    }

    /// The pods of these stays that are not forgotten, the likeliest one first.
    fn listed(&self, stays: impl Iterator<Item = Bounded<'a, P>>) -> Vec<Candidate<'a, P>> {
        let (first, last) = self.range();
        let mut kept: Vec<_> = stays.filter_map(|stay| Some((stay.found?, stay))).collect();
        kept.sort_by_cached_key(|(found, Bounded { is_current, window, .. })| {
            let likelihood = window.likelihood(self.time, *is_current);
            let order = (window.contains(first, last), likelihood, *is_current, window.from.1);
            (Reverse(order), found.pod.uid())
        });
        let candidate = |(Found { pod, .. }, Bounded { window, .. })| {
            let bounds = |(earliest, latest): (Time, Time)| Bounds {
                earliest: (earliest > Time::MIN).then_some(earliest),
                latest: (latest < Time::MAX).then_some(latest),
            };
            let (from, until) = (bounds(window.from), bounds(window.until));
            Candidate { pod, from, until, is_certain: window.contains(first, last) }
        };
        kept.into_iter().map(candidate).collect()
    }
}

/// What pods, and mirror pods, claim with a key that needs a time.
fn timed(key: Key<'_>) -> [Option<KeyRef<'_>>; 2] {
    match key {
        Key::Uid(_) | Key::ContainerId(_) => [None; 2],
        Key::Name { .. } | Key::Ip(_) | Key::Own(..) => {
            [PodKind::Pod, PodKind::Mirror].map(|kind| key.claimed(kind))
        }
    }
}

fn exact<P>(found: Option<Found<'_, P>>) -> Holder<'_, P> {
    found.map_or(Holder::Unknown(NotFound::NoPod), Holder::Pod)
}

impl Window {
    /// Whether the pod held the key at all these times, for all intervals within the bounds.
    fn contains(&self, first: Time, last: Time) -> bool {
        self.from.1 <= first && last < self.until.0
    }

    /// Whether the pod held the key at some of these times, for some interval within the bounds.
    fn touches(&self, first: Time, last: Time) -> bool {
        self.from.0 <= last && first < self.until.1 && self.from.0 < self.until.1
    }

    /// Of the intervals within the bounds, the share that contains the time, in thousandths of thousandths. After an open
    /// end it falls within half a minute.
    fn likelihood(&self, time: Time, is_current: bool) -> u64 {
        let share = |(earliest, latest): (Time, Time)| {
            let (time, earliest, latest) = (time.as_nanos(), earliest.as_nanos(), latest.as_nanos());
            let width = i128::from(latest) - i128::from(earliest);
            let part = (i128::from(time) - i128::from(earliest)).clamp(0, width.max(0));
            if width <= 0 { i128::from(time >= latest) * 1000 } else { part * 1000 / width }
        };
        let half_a_minute = 30_000_000_000;
        let from = if self.from.0 <= Time::MIN { self.from.1.plus(-half_a_minute) } else { self.from.0 };
        let until = if self.until.1 >= Time::MAX { self.until.0.plus(half_a_minute) } else { self.until.1 };
        let ended = share((self.until.0.min(until), until));
        // One that runs, as far as is known, has most likely not ended.
        let ended = if is_current { ended.min(100) } else { ended.min(990) };
        u64::try_from(share((from.min(self.from.1), self.from.1)) * (1000 - ended)).unwrap_or_default()
    }
}

/// Narrows the bounds of each hold of a key by the other holds. One hold came before another if it may have ended before the
/// other began and the reverse is impossible. Holds that must have overlapped do not narrow each other.
fn narrow(windows: &mut [Window]) {
    let (mut by_latest_start, mut by_earliest_end) = (windows.to_vec(), windows.to_vec());
    by_latest_start.sort_unstable_by_key(|window| window.from.1);
    by_earliest_end.sort_unstable_by_key(|window| Reverse(window.until.0));
    let mut holds: Vec<_> = windows.iter_mut().collect();

    // The ends of those that began before the present one ended.
    let (mut others, mut ends) = (by_latest_start.iter().peekable(), BTreeSet::new());
    holds.sort_unstable_by_key(|window| window.until.0);
    for Window { from, until } in &mut holds {
        let more = iter::from_fn(|| others.next_if(|other| other.from.1 < until.0));
        ends.extend(more.map(|other| other.until.0));
        from.0 = ends.range(..=from.1).next_back().map_or(from.0, |end| from.0.max(*end));
    }

    // The starts of those that ended after the present one began.
    let (mut others, mut starts) = (by_earliest_end.iter().peekable(), BTreeSet::new());
    holds.sort_unstable_by_key(|window| Reverse(window.from.1));
    for Window { from, until } in &mut holds {
        let more = iter::from_fn(|| others.next_if(|other| from.1 < other.until.0));
        starts.extend(more.map(|other| other.from.1));
        until.1 = starts.range(until.0..).next().map_or(until.1, |start| until.1.min(*start));
    }
}

impl Identity<'_> {
    /// The pod that this identity belonged to at a time. As [`resolve`](Self::resolve), but IPs and names are those of that
    /// time, and are not looked up among all removed pods. A link to a container's log is
    /// looked up by the name at that time if no pod has its container ID. All other identities need no time.
    ///
    /// # Complexity
    /// That of [`resolve`](Self::resolve) and of [`AtTime::get`].
    #[must_use]
    pub fn resolve_at<'s, P: PodMeta>(&'s self, at: &AtTime<'s, P>) -> Holder<'s, P> {
        match *self {
            Self::Ip(ip) => at.get(ip),
            Self::Name { namespace, name } => at.get((namespace, name)),
            // As `resolve`, a container ID that a pod names comes first.
            Self::ContainerLog(ContainerLog {
                container_id,
                namespace: Some(namespace),
                name,
                container,
                ..
            }) if container_id.is_none_or(|id| at.snapshot.find(id.into()).is_none()) => {
                let by = if container_id.is_some() { FoundBy::NameOnly } else { FoundBy::Name };
                match at.get((namespace, name)) {
                    Holder::Pod(found) => Holder::Pod(Found { container, by, ..found }),
                    unsure => unsure,
                }
            }
            _ => exact(self.resolve(at.snapshot)),
        }
    }
}

copied!(AtTime, Candidate);

shown!(AtTime<'_>, |at| time: at.time, skew: at.skew, delay: at.delay);
shown!(Candidate<'_>, |one| pod: one.pod.uid(), from: one.from, until: one.until, is_certain: one.is_certain);

impl<P: PodMeta> fmt::Debug for Holder<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(found) => f.debug_tuple("Pod").field(found).finish(),
            Self::Ambiguous { candidates, more } => {
                f.debug_struct("Ambiguous").field("candidates", candidates).field("more", more).finish()
            }
            Self::Unknown(why) => f.debug_tuple("Unknown").field(why).finish(),
        }
    }
}
