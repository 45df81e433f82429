//! Which pod held a key at a time?
//!
//! [`AtTime`] has the rules; `window` the intervals in which pods held keys; `pods::times` what the index learnt.

mod window;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use window::{Between, Range, Window, narrow};

use crate::identity::{ContainerLog, Identity};
use crate::moment::Coverage;
use crate::pod::{ClaimedKeyRef, Lasts, Life, PodMeta, Time, ip_number, nanos};
use crate::pods::{End, EndCause, Found, FoundBy, Hold, HoldId, Key, Learned, Times};
use crate::snapshot::Snapshot;

/// The lookups of a snapshot at a time.
///
/// # Examples
/// See [`Snapshot::at`].
///
/// # Rules
/// A pod held a key during an interval. The index knows only bounds of its start (`from`) and its end (`until`):
///
/// | key | bound | is | because |
/// |---|---|---|---|
/// | IP | from, earliest | the latest of [`Life::ip_not_before`] and *covered − delay* | the kubelet takes a pod before it has an IP; what happened before that time was known, and the pod did not have the IP yet |
/// | | from, latest | the earliest of *learnt* and [`Life::ip_by`] of every object that had the IP | a status shows an IP after the pod has it; a container starts after its sandbox has the IP |
/// | | until, earliest | *covered − delay*. Of a pod that [may lack its sandbox](Life::may_lack_sandbox): the latest of [`Life::ip_until`] and *covered − delay* of before | an end before that time would be known; the sandbox outlives the containers, but not for ever: a completed pod keeps its IP in the object, not on the wire |
/// | | until, latest | when the index learnt that the pod has another IP, that it no longer may lack its sandbox, or that it is gone and might. Otherwise open | a pod that runs again may have another sandbox, so this is another hold; the kubelet removes the object after the sandbox; a forced deletion leaves containers running |
/// | name | from, earliest | the latest of [`Life::created`] − skew and *covered − delay* | the API server's clock |
/// | | from, latest | the earliest of *learnt* and [`Life::created`] + 1 s + skew. If an update gave the pod its name, or it was removed and returned with another name: *learnt* | whole seconds; an API server renames no pod, but other sources may |
/// | | until | *covered − delay*, and *learnt* | the object's own life, whatever its containers do |
/// | custom | | as a name, but from at the latest when learnt | an update can add it |
/// | UID, container ID | | needs no time | never used again |
///
/// *Learnt* is [`Moment::time`](crate::Moment::time) of the write that told; *covered* is the end of the last
/// [`Coverage`] before it or, for a hold that has not ended, of the last one at all. Host-network pods name no IP
/// ([`PodMeta::keys`]), so the node's IP is nobody's.
///
/// In a gap between two coverages, a pod may lose its IP, and get the same one again after another pod had it. So a hold
/// that was there before the gap ends in it, and another one begins, unless the pod's object shows that a container has run
/// since before the gap ([`Life::ip_by`]). If a source says late that it missed something, the gap may have been at any time
/// that it no longer covers. If the pod also ended in the gap, its last object shows from when until when it
/// had its last sandbox ([`Life::ip_by`], [`Life::ip_until`]). A name is held without a break if the pod was
/// [created](Life::created) before.
///
/// If the wall clock was set, all that was known is of another clock: answers before that are
/// [`TooEarly`](NotFound::TooEarly).
///
/// The event happened at its time ± skew. A pod held the key *certainly* if it did at every time of that range for all
/// intervals within the bounds, and *possibly* if it did at some time for some interval. Two pods never have an IP or a
/// name at once. So a certain pod is the answer. If one pod certainly came first, it ended before the other began, which
/// narrows the bounds. Pods can share a custom key: a certain pod is then the answer only if no other is possible and the
/// range is [known](AtTime::known). If contradicting clocks make several pods certain, a current one comes first.
pub struct AtTime<'a, P> {
    snapshot: &'a Snapshot<P>,
    /// The end of the coverage, if it is [fixed](Self::fixed). Otherwise it moves on in the snapshot from call to call.
    covered_until: Option<Time>,
    time: Time,
    // In nanoseconds.
    skew: i64,
    delay: i64,
}

/// The pod that held a key at a time, as far as the index knows.
///
/// # Examples
/// See [`Snapshot::at`], and [`AtTime::candidates`] for an ambiguous one.
#[non_exhaustive]
pub enum Holder<'a, P> {
    /// This pod held it for certain, within the given skew and delay.
    Pod(Found<'a, P>),
    /// One of these pods may have held it. If there is one alone and no more, it probably did, but the event may also belong
    /// to a pod before or after it. This is also the answer for an event that has only just happened, because the pod may
    /// have lost the key since; [`AtTime::is_settled`] says whether to ask again.
    Ambiguous {
        /// The likeliest one first; at most [`MAX_CANDIDATES`](AtTime::MAX_CANDIDATES).
        candidates: Vec<Candidate<'a, P>>,
        /// The number of those that are left out: less likely ones, and pods that are forgotten.
        more: usize,
    },
    /// No pod is known to have held it.
    Unknown(NotFound),
}

/// Why no pod is known.
///
/// # Examples
/// ```
/// use std::net::IpAddr;
///
/// use pod_index::{Holder, NotFound, SimplePod, Time};
///
/// let (_writer, reader) = pod_index::new::<SimplePod>();
/// // This index keeps no times, so it knows nothing of the past of an IP.
/// let ip = IpAddr::from([10, 0, 0, 7]);
/// assert!(matches!(reader.load().at(Time::now()).get(ip), Holder::Unknown(NotFound::NoTimes)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NotFound {
    /// The time is before what the index knows: it began later, missed something, has forgotten the pod, or the wall clock
    /// was set since.
    TooEarly,
    /// The time is after what the index knows yet, and no pod is a candidate. If one is, the answer is
    /// [`Holder::Ambiguous`] instead; for both, [`AtTime::is_settled`] says whether to ask again.
    TooLate,
    /// No pod that the index still knows held it then. A pod that was removed while it ran may have kept its IP: the index
    /// knows it for as long as [`Options::keep_removed`](crate::Options::keep_removed) says, counted from the removal.
    NoPod,
    /// The index does not [keep times](crate::Options::keep_times), so it cannot say anything about the past of this key.
    NoTimes,
    /// The text is no [`Key`], so this says nothing about pods. It is the path of a cgroup or a link to a container's log, which
    /// may lead to several keys: use [`Identity::resolve_at`]. Or it is nothing that can identify a pod in the index, such as a
    /// process ID or a single word.
    NoKey,
}

/// A pod that held, or may have held, a key.
///
/// # Examples
/// See [`AtTime::candidates`].
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
///
/// # Examples
/// See [`AtTime::candidates`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bounds {
    /// Not before.
    pub earliest: Option<Time>,
    /// Not after.
    pub latest: Option<Time>,
}

/// What is known of the pods that had a key.
enum Verdict<'a, P> {
    Holder(Holder<'a, P>),
    /// A pod had it for certain, and is forgotten.
    Forgotten,
    /// None had it, or none is known.
    Nobody(NotFound),
}

/// The bounds of a hold, and its pod if that is not forgotten.
struct BoundedHold<'a, P> {
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
    /// # Consistency
    /// The writer moves the end of the [`Coverage`] on in a published snapshot, so of two calls the later one may know more.
    /// After [`fixed`](AtTime::fixed), all answers belong together.
    ///
    /// # Complexity
    /// O(1); no allocation. No lookup reads a clock.
    ///
    /// # Examples
    /// ```
    /// use std::net::IpAddr;
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{Holder, Moment, Operation, Options, PodKeys, PodMeta, Time};
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
    /// let start = Instant::now();
    /// let second = |second| Time::from_seconds(second as i64);
    /// // All that happened since the second 90 is known.
    /// let moment = |at| Moment::new(start + Duration::from_secs(at), second(at)).covering(second(90), second(at));
    ///
    /// let _ = writer.apply_at(moment(100), [Operation::Upsert(Pod("job-1").into())]);
    /// writer.advance(moment(160)); // nothing happened until then
    /// // With the same IP.
    /// let next = [Operation::Remove("job-1".into()), Operation::Upsert(Pod("job-2").into())];
    /// let _ = writer.apply_at(moment(160), next);
    /// writer.advance(moment(200));
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
    /// ```
    ///
    /// Kubelet: none; its pod manager knows the present only.
    #[inline]
    #[must_use]
    pub fn at(&self, time: impl Into<Time>) -> AtTime<'_, P> {
        let (skew, delay) = const { (nanos(AtTime::<P>::SKEW), nanos(AtTime::<P>::DELAY)) };
        AtTime { snapshot: self, covered_until: None, time: time.into(), skew, delay }
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

    /// The same, but all answers, what is [known](Self::known) and whether that [is settled](Self::is_settled) rest on what is covered
    /// now. So they belong together: without this, `known` may be newer than the answer that was given before, and older than
    /// the one that is given afterwards.
    ///
    /// # Complexity
    /// O(1); no allocation. A method of its own, so that a lookup which needs nothing beside its answer pays nothing.
    ///
    /// # Examples
    /// See [`is_settled`](Self::is_settled).
    ///
    /// Kubelet: none; its pod manager knows the present only.
    #[must_use]
    pub fn fixed(self) -> Self {
        let covered_until = self.snapshot.times.as_deref().map(|times| self.covered_until(times));
        Self { covered_until, ..self }
    }

    #[inline]
    fn covered_until(&self, times: &Times) -> Time {
        match self.covered_until {
            Some(fixed) => fixed,
            None => times.covered_until(),
        }
    }

    /// The same at another time.
    #[inline]
    pub(crate) fn time(self, time: Time) -> Self {
        Self { time, ..self }
    }

    /// The pod that held this key. A mirror pod is found by its name and its UID, not by an IP. Of a text that is no
    /// [`Key`], such as the path of a cgroup, the answer is [`NoKey`](NotFound::NoKey).
    ///
    /// # Consistency
    /// A [`Holder::Pod`] is right as long as no clock differs by more than the [skew](Self::skew) and no news takes longer
    /// than the [delay](Self::delay). An IP, a name or a
    /// custom key is therefore never certain for an event within skew + delay of the end of the last
    /// [`Coverage`]: its pod may be gone, and nobody has told yet.
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
        copy.search(ClaimedKeyRef::Ip(ip), FoundBy::Ip)
    }

    #[inline(never)]
    fn get_any(&self, key: Key<'_>) -> Holder<'a, P> {
        if let Key::Text(text) = key {
            return self.get_text(text);
        }
        self.fixed().judge_any(key)
    }

    #[cold]
    fn get_text(&self, text: &str) -> Holder<'a, P> {
        let key = self.key_of_text(text);
        key.map_or(Holder::Unknown(NotFound::NoKey), |key| self.fixed().judge_any(key))
    }

    /// The key for which a text stands: a UID, if a pod has it or had it. `None`: it is no key, or stands for several.
    fn key_of_text<'k>(&self, text: &'k str) -> Option<Key<'k>> {
        let uid = Key::Uid(text.into());
        if self.snapshot.find(uid).is_some() { Some(uid) } else { Key::parse(text) }
    }

    fn judge_any(&self, key: Key<'_>) -> Holder<'a, P> {
        let Claimed { by_pods, by_mirrors } = Claimed::of(key);
        let Some(by_pods) = by_pods else { return exact(self.snapshot.find(key)) };
        let by = key.found_by();
        let verdict = self.judge(by_pods, key.found_by());
        match (verdict, by_mirrors) {
            // No pod, so perhaps a mirror pod.
            (Verdict::Nobody(why), Some(by_mirrors)) => match self.judge(by_mirrors, by) {
                // What is unknown of either is unknown.
                Verdict::Nobody(NotFound::TooEarly) => Holder::Unknown(NotFound::TooEarly),
                Verdict::Nobody(_) => Holder::Unknown(why),
                verdict => verdict.into(),
            },
            (verdict, _) => verdict.into(),
        }
    }

    /// All pods that had this key at any time, as far as the index knows, with the bounds, the likeliest one at this time
    /// first. None of a text that is no key.
    ///
    /// # Complexity
    /// O(n log n) for n pods that had the key.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{Moment, Operation, Options, SimplePod, Time};
    ///
    /// let options = Options::new().keep_removed(Duration::from_secs(300), 10_000).keep_times(true);
    /// let (mut writer, reader) = pod_index::with_options(options);
    /// let start = Instant::now();
    /// let second = |second| Time::from_seconds(second as i64);
    /// let moment = |at| Moment::new(start + Duration::from_secs(at), second(at)).covering(second(90), second(at));
    /// writer.advance(moment(95)); // until then, all pods are known: there was none
    /// let _ = writer.apply_at(moment(100), [Operation::Upsert(SimplePod::new("u1", "shop", "web-0").into())]);
    ///
    /// let pods = reader.load();
    /// let delay = Duration::from_secs(3);
    /// let candidates = pods.at(second(97)).delay(delay).candidates(("shop", "web-0"));
    /// let [web] = &candidates[..] else { unreachable!() };
    /// // Three seconds before the second 95, it had not come yet. At 100 it was there, and it has not gone.
    /// assert_eq!((web.from.earliest, web.from.latest), (Some(second(92)), Some(second(100))));
    /// assert_eq!((web.until.latest, web.is_certain), (None, false));
    /// ```
    #[must_use]
    pub fn candidates<'k>(&self, key: impl Into<Key<'k>>) -> Vec<Candidate<'a, P>> {
        let key = match key.into() {
            Key::Text(text) => self.key_of_text(text),
            key => Some(key),
        };
        let Some(key) = key else { return Vec::new() };
        let Claimed { by_pods, by_mirrors } = Claimed::of(key);
        let claimed = [by_pods, by_mirrors].into_iter().flatten();
        self.listed(claimed.flat_map(|claimed| self.holds(claimed)))
    }

    /// The times between which no pod that held a key is unknown, if the index keeps times and anything is covered. It
    /// begins after it ends as long as everything that is covered is newer than the delay.
    ///
    /// [`is_settled`](Self::is_settled) says whether to ask again.
    #[must_use]
    pub fn known(&self) -> Option<Coverage> {
        let times = self.snapshot.times.as_deref()?;
        let covered_until = self.covered_until(times);
        let until = covered_until.plus(-self.delay);
        (covered_until > Time::MIN).then(|| Coverage { since: times.known_since(), until })
    }

    /// Whether asking again would be of no use. `false` means that news about this time may still come: if the answer is not
    /// [`Holder::Pod`], keep the event, and ask again with a later snapshot.
    ///
    /// It is settled once the event's time plus the skew is before the end of what is [known](Self::known). It is also
    /// settled if nothing will ever be known of it: the wall clock was set since, or the index
    /// [keeps no times](crate::Options::keep_times). News that takes longer than the delay may change an answer nevertheless,
    /// and so may a gap that a source reports late. An old pod may be forgotten.
    ///
    /// Ask a [fixed](Self::fixed) `AtTime` for this and for the answer, or ask for this first: more becomes known meanwhile.
    ///
    /// # Complexity
    /// O(1); no allocation.
    ///
    /// # Examples
    /// ```
    /// use std::net::IpAddr;
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{Holder, Moment, Operation, Options, SimplePod, Time};
    ///
    /// let options = Options::new().keep_removed(Duration::from_secs(300), 10_000).keep_times(true);
    /// let (mut writer, reader) = pod_index::with_options(options);
    /// let start = Instant::now();
    /// let second = |second| Time::from_seconds(second as i64);
    /// let moment = |at| Moment::new(start + Duration::from_secs(at), second(at)).covering(second(90), second(at));
    /// let ip = IpAddr::from([10, 0, 0, 7]);
    /// let pod = SimplePod { ips: vec![ip], ..SimplePod::new("u1", "shop", "web-0") };
    /// let _ = writer.apply_at(moment(100), [Operation::Upsert(pod.into())]);
    ///
    /// let name = || {
    ///     let pods = reader.load();
    ///     let then = pods.at(second(110)).fixed(); // the skew is 2 s, the delay 10 s
    ///     match then.get(ip) {
    ///         Holder::Pod(found) => found.pod.name.clone(),
    ///         _ if then.is_settled() => "not certain".to_owned(),
    ///         _ => "ask again".to_owned(),
    ///     }
    /// };
    /// writer.advance(moment(122));
    /// assert_eq!(name(), "ask again");
    /// writer.advance(moment(123));
    /// assert_eq!(name(), "web-0");
    /// ```
    ///
    /// Kubelet: none; its pod manager knows the present only.
    #[inline]
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let Some(times) = self.snapshot.times.as_deref() else { return true };
        let Range { first, last } = self.range();
        last < self.settled(times) || first < times.clock_set()
    }

    #[inline]
    fn range(&self) -> Range {
        Range { first: self.time.plus(-self.skew), last: self.time.plus(self.skew) }
    }

    /// What happened until this time is known.
    fn settled(&self, times: &Times) -> Time {
        self.covered_until(times).plus(-self.delay)
    }

    /// If the pod that has the IP says itself that it had it then, nothing else matters: see the rules.
    #[inline]
    fn of_ip(&self, ip: u128) -> Option<&'a Arc<P>> {
        let times = self.snapshot.times.as_deref()?;
        let Range { first, last } = self.range();
        // Before the lookup: what depends on the time alone need not be kept meanwhile.
        if last.plus(self.delay) >= self.covered_until(times) || first < times.clock_set() {
            return None;
        }
        let (_, pod) = self.snapshot.live.find(ClaimedKeyRef::Ip(ip), &self.snapshot.hashing)?;
        if self.snapshot.live.contenders.first_of(ClaimedKeyRef::Ip(ip)).is_some() {
            return None;
        }
        let life = pod.life();
        (!life.may_lack_sandbox && life.ip_by.is_some_and(|ip_by| ip_by <= first)).then_some(pod)
    }

    #[inline(never)]
    fn search(&self, key: ClaimedKeyRef<'_>, by: FoundBy) -> Holder<'a, P> {
        self.fixed().judge(key, by).into()
    }

    fn judge(&self, key: ClaimedKeyRef<'_>, by: FoundBy) -> Verdict<'a, P> {
        let Some(times) = self.snapshot.times.as_deref() else { return Verdict::Nobody(NotFound::NoTimes) };
        let range = self.range();
        if range.first < times.clock_set() {
            return Verdict::Nobody(NotFound::TooEarly);
        }
        let known = self.known();
        let is_complete = known.is_some_and(|known| known.since <= range.first);
        let holds = self.holds(key);
        let is_exclusive = key.tenure().is_exclusive;
        if let Some(hold) = certain(&holds, range)
            && (is_exclusive || (is_complete && is_only_possible(&holds, range)))
        {
            let found = hold.found.map(|found| Verdict::Holder(Holder::Pod(Found { by, ..found })));
            return found.unwrap_or(Verdict::Forgotten);
        }
        let possible = possible(holds, range, is_exclusive);
        let is_any_possible = !possible.is_empty();
        if let Some(ambiguous) = self.ambiguous(possible) {
            return Verdict::Holder(ambiguous);
        }
        Verdict::Nobody(match known {
            Some(known) if range.last >= known.until => NotFound::TooLate,
            Some(_) if is_complete && !is_any_possible => NotFound::NoPod,
            // Or a forgotten pod may have had it.
            Some(_) => NotFound::TooEarly,
            None => NotFound::TooLate,
        })
    }

    /// The pods of these holds, of which each may have had the key. `None` if all of them are forgotten.
    fn ambiguous(&self, possible: Vec<BoundedHold<'a, P>>) -> Option<Holder<'a, P>> {
        let forgotten = possible.iter().filter(|hold| hold.found.is_none()).count();
        let mut candidates = self.listed(possible.into_iter());
        // A pod may have had it twice.
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(Arc::as_ptr(candidate.pod)));
        if candidates.is_empty() {
            return None;
        }
        let unlikely = candidates.len().saturating_sub(Self::MAX_CANDIDATES);
        candidates.truncate(Self::MAX_CANDIDATES);
        Some(Holder::Ambiguous { candidates, more: unlikely + forgotten })
    }

    /// The pods that had a key.
    fn holds(&self, key: ClaimedKeyRef<'_>) -> Vec<BoundedHold<'a, P>> {
        let Some(times) = self.snapshot.times.as_deref() else { return Vec::new() };
        let settled = self.settled(times);
        let bounded = |(id, hold): (&HoldId, &Hold)| {
            let found = self.snapshot.find(id.uid.as_uid_ref().into());
            let life = hold.end.as_ref().map(|end| end.life).or_else(|| Some(found?.pod.life()));
            let life = life.unwrap_or_default();
            let is_current = hold.end.is_none() && !life.may_lack_sandbox;
            BoundedHold { found, is_current, window: self.window(id, hold, &life, settled) }
        };
        times.of(key).map(bounded).collect()
    }

    /// The rules of [`AtTime`].
    fn window(&self, id: &HoldId, hold: &Hold, life: &Life, settled: Time) -> Window {
        let after = |learned: &Learned| learned.after.plus(-self.delay);
        let created = life.created.map(|created| created.plus(-self.skew));
        let created_by =
            life.created.map(|created| created.saturating_add(Duration::from_secs(1)).plus(self.skew));
        let lasts = id.key.tenure().lasts;
        let (not_before, said_by) = match lasts {
            Lasts::AsLongAsSandbox => (life.ip_not_before, life.ip_by),
            // An update may have added it.
            Lasts::AsLongAsNamed => (created, None),
            Lasts::AsLongAsObject if hold.is_from_update => (created, None),
            Lasts::AsLongAsObject | Lasts::Forever => (created, created_by),
        };
        let began_by = hold.began_by.min(said_by.unwrap_or(Time::MAX));
        // If an object contradicts what was seen, its clock is another one.
        let not_before = not_before.unwrap_or(Time::MIN).min(began_by);
        let from = Between { earliest: after(&hold.begun).max(not_before), latest: began_by };

        let goes_with_sandbox = lasts == Lasts::AsLongAsSandbox;
        let end = hold.end.as_deref();
        let held_until = if goes_with_sandbox && life.may_lack_sandbox {
            let stopped = hold.stopped.unwrap_or(Learned { after: Time::MIN, ..hold.begun });
            // An object cannot tell of an end before it comes, unless its clock is another one.
            let said = life.ip_until.map_or(Time::MIN, |until| until.min(stopped.at));
            after(&stopped).max(said)
        } else {
            end.map_or(settled, |end| after(&end.learned))
        };
        let is_over = |end: &&End| match end.cause {
            EndCause::KeyLost => true,
            // A pod that was removed while it ran may keep its IP.
            EndCause::PodRemoved => !goes_with_sandbox || life.may_lack_sandbox,
            EndCause::Gap => false,
        };
        let gone_by = end.filter(is_over).map_or(Time::MAX, |end| end.learned.at);
        Window { from, until: Between { earliest: held_until, latest: gone_by } }
    }

    /// The pods of these holds that are not forgotten, the likeliest one first.
    fn listed(&self, holds: impl Iterator<Item = BoundedHold<'a, P>>) -> Vec<Candidate<'a, P>> {
        let range = self.range();
        let mut known: Vec<_> = holds.filter_map(|hold| Some((hold.found?, hold))).collect();
        known.sort_by_cached_key(|(found, BoundedHold { is_current, window, .. })| {
            let likelihood = window.likelihood(self.time, *is_current);
            let order = (window.contains(range), likelihood, *is_current, window.from.latest);
            (Reverse(order), found.pod.uid())
        });
        let candidate =
            |(Found { pod, .. }, BoundedHold { window, .. }): (Found<'a, P>, BoundedHold<'a, P>)| {
                let from = window.from.into();
                let until = window.until.into();
                let is_certain = window.contains(range);
                Candidate { pod, from, until, is_certain }
            };
        known.into_iter().map(candidate).collect()
    }
}

/// The hold in which a pod had the key for certain. `None` if there is none, or if clocks that contradict each other make several
/// certain; then a current one comes first.
fn certain<'s, 'a, P>(holds: &'s [BoundedHold<'a, P>], range: Range) -> Option<&'s BoundedHold<'a, P>> {
    let certain = holds.iter().filter(|hold| hold.window.contains(range));
    let is_any_current = certain.clone().any(|hold| hold.is_current);
    let mut certain = certain.filter(|hold| hold.is_current == is_any_current);
    let first = certain.next()?;
    certain.next().is_none().then_some(first)
}

/// Whether a pod may have had the key in one of the holds only.
fn is_only_possible<P>(holds: &[BoundedHold<'_, P>], range: Range) -> bool {
    holds.iter().filter(|hold| hold.window.touches(range)).count() == 1
}

/// The holds in which a pod may have had the key.
fn possible<P>(holds: Vec<BoundedHold<'_, P>>, range: Range, is_exclusive: bool) -> Vec<BoundedHold<'_, P>> {
    let mut windows: Vec<_> = holds.iter().map(|hold| hold.window).collect();
    if is_exclusive {
        narrow(&mut windows);
    }
    let possible = holds.into_iter().zip(windows).filter(|(_, window)| window.touches(range));
    possible.map(|(hold, _)| hold).collect()
}

/// What pods, and mirror pods, claim with a key that needs a time.
struct Claimed<'k> {
    by_pods: Option<ClaimedKeyRef<'k>>,
    by_mirrors: Option<ClaimedKeyRef<'k>>,
}

impl<'k> Claimed<'k> {
    fn of(key: Key<'k>) -> Self {
        // How long a pod has a key decides it, and not a list of kinds, in which a new kind would be forgotten.
        let needs_time = |claimed: &ClaimedKeyRef<'_>| claimed.tenure().lasts != Lasts::Forever;
        Self {
            by_pods: key.claimed_by_pods().filter(needs_time),
            by_mirrors: key.claimed_by_mirrors().filter(needs_time),
        }
    }

    fn is_any(&self) -> bool {
        self.by_pods.is_some() || self.by_mirrors.is_some()
    }
}

impl<'a, P> From<Verdict<'a, P>> for Holder<'a, P> {
    fn from(verdict: Verdict<'a, P>) -> Self {
        match verdict {
            Verdict::Holder(holder) => holder,
            Verdict::Forgotten => Self::Unknown(NotFound::TooEarly),
            Verdict::Nobody(why) => Self::Unknown(why),
        }
    }
}

impl From<Between> for Bounds {
    fn from(Between { earliest, latest }: Between) -> Self {
        Self {
            earliest: (earliest > Time::MIN).then_some(earliest),
            latest: (latest < Time::MAX).then_some(latest),
        }
    }
}

fn exact<P>(found: Option<Found<'_, P>>) -> Holder<'_, P> {
    found.map_or(Holder::Unknown(NotFound::NoPod), Holder::Pod)
}

impl<'a> Identity<'a> {
    /// The key that this identity is, if it can be another pod's later: an IP or a name. Whoever asks about the past needs a
    /// [time](Self::resolve_at) with it.
    ///
    /// `None` for all others: they are one pod's for ever or, as a link to a log, are looked up by several keys.
    ///
    /// # Complexity
    /// O(1).
    ///
    /// # Examples
    /// ```
    /// use pod_index::Key;
    /// use pod_index::identity::Identity;
    ///
    /// let name = Identity::parse("shop/web-0").expect("a name");
    /// assert_eq!(name.reusable_key(), Some(Key::from(("shop", "web-0"))));
    /// let uid = Identity::parse("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0").expect("a UID");
    /// assert_eq!(uid.reusable_key(), None);
    /// ```
    #[must_use]
    pub fn reusable_key(&self) -> Option<Key<'a>> {
        let key = match *self {
            Self::Uid(uid) => Key::Uid(uid),
            Self::ContainerId(id) => id.into(),
            Self::Ip(ip) => ip.into(),
            Self::Name { namespace, name } => (namespace, name).into(),
            // These are of a UID or a container ID, or of several keys. An identity that is one key is not among them:
            // `resolve_at` would give an answer of the present, and call it certain.
            Self::Cgroup(_)
            | Self::PodLog(_)
            | Self::ContainerLog(_)
            | Self::PodDirectory { .. }
            | Self::Pid(_) => return None,
        };
        Claimed::of(key).is_any().then_some(key)
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
        if let Some(key) = self.reusable_key() {
            return at.get(key);
        }
        // As `resolve`, a container ID that a pod names comes first.
        if let Self::ContainerLog(ContainerLog {
            container_id,
            namespace: Some(namespace),
            name,
            container,
            ..
        }) = *self
            && container_id.is_none_or(|id| at.snapshot.find(id.into()).is_none())
        {
            let by = if container_id.is_some() { FoundBy::NameOnly } else { FoundBy::Name };
            return match at.get((namespace, name)) {
                Holder::Pod(found) => Holder::Pod(Found { container, by, ..found }),
                unsure => unsure,
            };
        }
        exact(self.resolve(at.snapshot))
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
