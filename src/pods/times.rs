//! Which pod held which key, and when: what the index itself learnt. Only an index that keeps times has this.
//!
//! A *hold* is an interval in which a pod held a key. `at` bounds its start and its end by what is known of it here.
//!
//! All times are by the node's wall clock. If somebody sets that, everything here is dropped, and the holds of the current
//! pods begin anew: see [`Times::begin_anew`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::contenders::{Before, SortedByKey};
use super::key_numbers::KeyNumbers;
use super::queue::Queue;
use crate::id::PodUid;
use crate::moment::{Coverage, Moment};
use crate::options::KeepRemoved;
use crate::pod::{ClaimedKeyRef, Lasts, Life, OwnedClaimedKey, Time};
use crate::table::{AtomicI64, OrdMap};

/// All holds of the keys of a snapshot's pods, and of those that ended lately.
pub(crate) struct Times {
    holds: OrdMap<HoldId, Hold>,
    /// The holds that ended.
    ended: Queue<HoldId>,
    /// When the wall clock was last set. The first time, if it never was.
    clock_set: Time,
    /// The beginning of the [`Coverage`]. The first time, if nothing was covered yet.
    covered_since: Time,
    /// The end of the [`Coverage`]. The first time, if nothing was covered yet.
    ///
    /// The only thing in a published snapshot that changes: while nothing else does, the writer moves it on in the current
    /// one, which is cheaper than a publication. It only grows, and says of this snapshot's pods and holds that they are all
    /// there was until then. A reader that sees a new value therefore needs to see nothing else that is new, and one that
    /// sees an old value is less sure than it could be. So relaxed operations are enough.
    covered_until: AtomicI64,
    /// Holds that ended before this time may be forgotten, or are of another clock.
    forgotten_until: Time,
}

/// Which hold: of a key by a pod, which may have held it several times.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldId {
    pub(crate) key: OwnedClaimedKey,
    pub(crate) uid: PodUid,
    number: u64,
}

/// When the index learnt of an event: it happened between the two times, except that news may be late.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Learned {
    /// Everything until this time was known before.
    pub(crate) after: Time,
    /// The moment of the write that told.
    pub(crate) at: Time,
}

/// What is known of a hold.
#[derive(Clone, PartialEq)]
pub(crate) struct Hold {
    pub(crate) begun: Learned,
    /// Whether an update gave the pod the key: it did not have it since its creation.
    pub(crate) is_from_update: bool,
    /// The pod has had the key since this time at the latest: the index knew it, or a replaced object said so.
    pub(crate) began_by: Time,
    /// When the index learnt that the pod's sandbox may be gone, if it may.
    pub(crate) stopped: Option<Learned>,
    pub(crate) end: Option<Arc<End>>,
}

/// What begins a hold.
#[derive(Clone, Copy)]
struct NewHold {
    begun: Learned,
    is_from_update: bool,
}

/// The end of a hold.
#[derive(Clone, PartialEq)]
pub(crate) struct End {
    pub(crate) learned: Learned,
    /// What the last object with the key said.
    pub(crate) life: Life,
    pub(crate) cause: EndCause,
    /// Its number in the queue.
    number: u64,
}

/// Why a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndCause {
    PodRemoved,
    /// The pod no longer names the key, or got it a second time.
    KeyLost,
    /// In a gap, the pod may have lost the key and got it again. Perhaps it did not.
    Gap,
}

/// What was stored under a pod's UID before its present object, and whether that had a key. An object that was removed
/// meanwhile counts if it had no such key.
#[derive(Clone, Copy)]
pub(crate) enum OldObject {
    None,
    WithoutKey,
    WithKey(Life),
}

/// Times of which the sources told nothing.
#[derive(Clone, Copy)]
pub(crate) struct Gap {
    /// The first time, before anything was covered.
    pub(crate) start: Time,
    pub(crate) end: Time,
    /// Whether it lasts from its start to its end. Otherwise it is somewhere between, and holds may have begun before it.
    pub(crate) is_exact: bool,
}

/// Of how many keys a usual pod's holds are kept once it is gone. Those of container IDs are not kept.
const KEYS_OF_A_POD: KeyNumbers = KeyNumbers { names: 1, container_ids: 0, ips: 2, custom_keys: 3 };
/// Ended holds for each removed pod at most, on average. If there are more, those that ended first are dropped, and the answers
/// begin later.
const ENDED_PER_POD: usize = KEYS_OF_A_POD.sum();

impl SortedByKey for HoldId {
    fn key(&self) -> ClaimedKeyRef<'_> {
        self.key.as_ref()
    }
}

impl Times {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        let max_pods = limits.max_pods.saturating_mul(ENDED_PER_POD);
        Self {
            holds: OrdMap::new(),
            ended: Queue::new(KeepRemoved { max_pods, ..limits }),
            clock_set: Time::MIN,
            covered_since: Time::MIN,
            covered_until: AtomicI64::new(Time::MIN.as_nanos()),
            forgotten_until: Time::MIN,
        }
    }

    /// The wall clock was set: no time from before can be compared with one from after. The caller tells of the current pods
    /// again. Returns the keys that updates have given to them, which they did not have since their creation.
    pub(crate) fn begin_anew(&mut self, now: &Moment) -> HashSet<(OwnedClaimedKey, PodUid)> {
        let is_from_update = |(_, hold): &(&HoldId, &Hold)| hold.end.is_none() && hold.is_from_update;
        let from_updates = self.holds.iter().filter(is_from_update);
        let from_updates = from_updates.map(|(id, _)| (id.key.clone(), id.uid.clone())).collect();
        let ended = Queue::new(self.ended.limits);
        *self =
            Self { ended, clock_set: now.time, forgotten_until: now.time, ..Self::new(self.ended.limits) };
        from_updates
    }

    #[inline]
    pub(crate) fn clock_set(&self) -> Time {
        self.clock_set
    }

    /// Everything until this time is known. The first time, if nothing is covered.
    #[inline]
    pub(crate) fn covered_until(&self) -> Time {
        Time(self.covered_until.load(Ordering::Relaxed))
    }

    /// Of holds that ended before this time, the index may not know: no source told, or they are forgotten.
    pub(crate) fn known_since(&self) -> Time {
        self.covered_since.max(self.forgotten_until)
    }

    /// The coverage of a moment, as far as it can be believed: see [`Moment::covering`].
    pub(crate) fn believed(&self, moment: &Moment) -> Option<Coverage> {
        let Coverage { since, until } = moment.coverage?;
        let latest = moment.time.saturating_add(Moment::MAX_STEP);
        if until > latest {
            return None;
        }
        let since = if since <= latest {
            since
        } else if self.clock_set > Time::MIN {
            self.clock_set
        } else {
            return None;
        };
        let since = since.max(self.clock_set);
        let until = until.min(moment.time);
        let since = since.min(moment.time);
        (since <= until).then_some(Coverage { since, until })
    }

    /// The times that are not covered, if this coverage leaves some out that could have been.
    pub(crate) fn gap_before(&self, coverage: Coverage) -> Option<Gap> {
        let covered_until = self.covered_until();
        let end = coverage.since;
        if covered_until == Time::MIN || end > covered_until {
            Some(Gap { start: covered_until, end, is_exact: covered_until > Time::MIN })
        } else if end > self.covered_since {
            // Taken back: it does not say where the gap began.
            Some(Gap { start: self.covered_since, end, is_exact: false })
        } else {
            None
        }
    }

    /// The pods of this snapshot are all that there were between these times, late news apart.
    pub(crate) fn cover(&mut self, coverage: Coverage) {
        self.covered_since = self.covered_since.max(coverage.since);
        self.cover_until(coverage.until);
    }

    /// The same if there is [no gap](Self::gap_before) before the coverage, so that its beginning says nothing new. This can
    /// change a published snapshot. To be right, that has everything that happened until this time.
    pub(crate) fn cover_until(&self, until: Time) {
        self.covered_until.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    /// What happens now.
    fn learned(&self, now: &Moment) -> Learned {
        Learned { after: self.covered_until(), at: now.time }
    }

    /// The holds of a key.
    pub(crate) fn of<'a>(&'a self, key: ClaimedKeyRef<'a>) -> impl Iterator<Item = (&'a HoldId, &'a Hold)> {
        self.holds.range(Before(key)..).take_while(move |(id, _)| id.key() == key)
    }

    /// The last hold of a key by a pod.
    fn last_of(&self, key: &OwnedClaimedKey, uid: &PodUid) -> Option<(HoldId, Hold)> {
        let last = HoldId { key: key.clone(), uid: uid.clone(), number: u64::MAX };
        let found = self.holds.get_prev(&last).filter(|(id, _)| (&id.key, &id.uid) == (key, uid));
        found.map(|(id, hold)| (id.clone(), hold.clone()))
    }

    /// A pod has a key.
    pub(crate) fn begin(
        &mut self,
        key: OwnedClaimedKey,
        uid: &PodUid,
        old: OldObject,
        life: &Life,
        now: &Moment,
    ) {
        let before = match old {
            OldObject::WithKey(life) => Some(life),
            OldObject::None | OldObject::WithoutKey => None,
        };
        // Its sandbox may be another one than before.
        let runs_again = |before: &Life| {
            key.tenure().lasts == Lasts::AsLongAsSandbox && before.may_lack_sandbox && !life.may_lack_sandbox
        };
        if let Some(before) = before.filter(runs_again) {
            self.end(&key, uid, before, EndCause::KeyLost, now);
        }
        // A manifest that is put back has the same UID and no creation time. Its pod was gone meanwhile.
        let returns = |end: &Arc<End>| {
            end.cause == EndCause::PodRemoved && life.created.is_some() && !runs_again(&end.life)
        };
        let last = self.last_of(&key, uid).filter(|(_, hold)| hold.end.as_ref().is_none_or(returns));
        let Some((id, last)) = last else {
            let begun = self.learned(now);
            let is_from_update = matches!(old, OldObject::WithoutKey);
            return self.insert(key, uid, NewHold { begun, is_from_update }, life);
        };
        let mut hold = last.clone();
        // A pod of the API server that returns was never gone: its UID is never used again.
        if let Some(end) = hold.end.take() {
            self.ended.remove(end.number);
        }
        if let Some(before) = before {
            hold.began_by = id.began_by_with(hold.began_by, &before);
            if life.may_lack_sandbox && !before.may_lack_sandbox {
                hold.stopped = Some(self.learned(now));
            }
        }
        if hold != last {
            self.holds.insert(id, hold);
        }
    }

    /// Stores a hold that goes on.
    fn insert(&mut self, key: OwnedClaimedKey, uid: &PodUid, new: NewHold, life: &Life) {
        let NewHold { begun, is_from_update } = new;
        let id = HoldId { key, uid: uid.clone(), number: self.ended.number() };
        // Of a pod that was first seen without a sandbox, nothing is known of how long it had one.
        let stopped = life.may_lack_sandbox.then_some(Learned { after: Time::MIN, ..begun });
        self.holds.insert(id, Hold { begun, is_from_update, began_by: begun.at, stopped, end: None });
    }

    /// A pod has lost a key, or was removed.
    pub(crate) fn end(
        &mut self,
        key: &OwnedClaimedKey,
        uid: &PodUid,
        life: Life,
        cause: EndCause,
        now: &Moment,
    ) {
        let Some((id, hold)) = self.last_of(key, uid).filter(|(_, hold)| hold.end.is_none()) else {
            return;
        };
        let learned = self.learned(now);
        self.end_hold(&id, &hold, life, cause, learned, now.instant);
    }

    fn end_hold(
        &mut self,
        id: &HoldId,
        hold: &Hold,
        life: Life,
        cause: EndCause,
        learned: Learned,
        instant: Instant,
    ) {
        let number = self.ended.number();
        self.ended.insert(number, instant, id.clone());
        let end = Some(Arc::new(End { learned, life, cause, number }));
        let began_by = id.began_by_with(hold.began_by, &life);
        self.holds.insert(id.clone(), Hold { began_by, end, ..hold.clone() });
        while self.ended.len() > self.ended.limits.max_pods {
            self.drop_first();
        }
    }

    /// The holds that seem to have gone on throughout a gap. Shared keys are not among them: none of those is certain before
    /// the end of a gap.
    pub(crate) fn held_through(&self, gap: Gap) -> Vec<(HoldId, Hold)> {
        let seems_held = |(id, hold): &(&HoldId, &Hold)| {
            let began_before =
                if gap.is_exact { hold.began_by <= gap.start } else { hold.began_by < gap.end };
            let stopped_before = hold.stopped.is_some_and(|stopped| stopped.after < gap.start);
            hold.end.is_none() && began_before && !stopped_before && id.key.tenure().is_exclusive
        };
        self.holds.iter().filter(seems_held).map(|(id, hold)| (id.clone(), hold.clone())).collect()
    }

    /// Ends a hold in a gap and begins another one, unless the pod's object shows that the pod held the key all the time.
    ///
    /// In the gap, the pod may have lost its sandbox, another pod may have got its IP, and then it may have got the same IP
    /// again. A container that has run since before the gap excludes that.
    pub(crate) fn interrupt(&mut self, id: HoldId, hold: Hold, life: &Life, gap: Gap, now: &Moment) {
        let proof = match id.key.tenure().lasts {
            Lasts::AsLongAsSandbox => life.ip_by,
            Lasts::AsLongAsObject if hold.is_from_update => None,
            Lasts::AsLongAsObject | Lasts::Forever => life.created,
            // An update may have taken it away, and another one given it back.
            Lasts::AsLongAsNamed => None,
        };
        if proof.is_some_and(|held_by| held_by <= gap.start) {
            return;
        }
        let begun = Learned { at: hold.begun.at.max(gap.end), ..hold.begun };
        if gap.start == Time::MIN {
            // Before anything was covered, nothing shows that it had the key without a break.
            self.holds.insert(id, Hold { begun, began_by: begun.at, ..hold });
            return;
        }
        let uid = id.uid.clone();
        let key = id.key.clone();
        let lost = Learned { after: gap.start, at: now.time };
        let before = of_before(life, &hold);
        self.end_hold(&id, &hold, before, EndCause::Gap, lost, now.instant);
        self.insert(key, &uid, NewHold { begun, is_from_update: hold.is_from_update }, life);
    }

    /// What the objects say of the holds of IPs that ended since a gap began is of the last sandbox, which may be another
    /// one than that of before the gap.
    pub(crate) fn doubt_ends(&mut self, gap: Gap, now: &Moment) {
        let recent: Vec<_> = self.ended.newest_first().cloned().collect();
        for id in recent {
            let Some(hold) = self.holds.get(&id).cloned() else { continue };
            let Some(end) = hold.end.clone().filter(|end| end.learned.after >= gap.start) else { break };
            let goes_with_sandbox = id.key.tenure().lasts == Lasts::AsLongAsSandbox;
            if goes_with_sandbox && end.life.may_lack_sandbox && end.life.ip_until.is_some() {
                self.doubt_end(id, &hold, &end, gap, now);
            }
        }
    }

    /// Lets a hold that ended begin when its last object says, if that also says how long the hold lasted. What is from
    /// before the gap becomes a hold of its own.
    fn doubt_end(&mut self, id: HoldId, hold: &Hold, end: &End, gap: Gap, now: &Moment) {
        let Some(ip_by) = end.life.ip_by else {
            let life = Life { ip_until: None, ..end.life };
            let end = Some(Arc::new(End { life, ..end.clone() }));
            self.holds.insert(id, Hold { end, ..hold.clone() });
            return;
        };
        // If a container has run since before the gap, its sandbox was there all the time.
        if ip_by <= gap.start || hold.began_by >= ip_by {
            return;
        }
        // Before the other one ends: if too many have ended, that forgets this one, which must not come back then.
        self.holds.insert(id.clone(), Hold { began_by: ip_by, ..hold.clone() });
        if hold.began_by <= gap.start {
            // No hold has this number: the end of the pod's hold before this one took a number too.
            let first = HoldId { number: id.number - 1, ..id };
            let lost = Learned { after: gap.start, at: end.learned.at };
            let before = of_before(&end.life, hold);
            self.end_hold(&first, hold, before, EndCause::KeyLost, lost, now.instant);
        }
    }

    /// Drops the holds whose time is over.
    pub(crate) fn forget(&mut self, now: Instant) {
        while self.ended.deadline().is_some_and(|deadline| now >= deadline) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((first, id)) = self.ended.first() else { return };
        self.ended.remove(first);
        if let Some(end) = self.holds.remove(&id).and_then(|hold| hold.end) {
            self.forgotten_until = self.forgotten_until.max(end.learned.at);
        }
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.holds.len(), self.ended.len())
    }
}

/// What a pod's newest object says of a hold from before a gap: nothing of its end, and nothing of a sandbox that may be a
/// newer one.
fn of_before(life: &Life, hold: &Hold) -> Life {
    Life {
        created: life.created,
        ip_not_before: life.ip_not_before.filter(|not_before| *not_before <= hold.began_by),
        ip_by: None,
        may_lack_sandbox: false,
        ip_until: None,
    }
}

impl HoldId {
    /// The earlier one of this time and what a pod's object says, by which the pod had the key.
    fn began_by_with(&self, began_by: Time, life: &Life) -> Time {
        match self.key.tenure().lasts {
            Lasts::AsLongAsSandbox => life.ip_by.map_or(began_by, |said| said.min(began_by)),
            Lasts::AsLongAsObject | Lasts::AsLongAsNamed | Lasts::Forever => began_by,
        }
    }
}

impl Clone for Times {
    fn clone(&self) -> Self {
        Self {
            holds: self.holds.clone(),
            ended: self.ended.clone(),
            clock_set: self.clock_set,
            covered_since: self.covered_since,
            covered_until: AtomicI64::new(self.covered_until().as_nanos()),
            forgotten_until: self.forgotten_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ENDED_PER_POD, KEYS_OF_A_POD, KeyNumbers};
    use crate::pod::{ClaimedKeyRef, CustomKeyKind, Lasts, Life, PodKeys, PodKind, PodMeta, Time};
    use crate::{Moment, Operation, Options};

    /// Its ended holds would push those of other pods out, and nothing else would show that.
    #[test]
    fn a_usual_pod_has_a_number_of_each_kind_of_key_that_has_times() {
        let id = "3e5f0b1c".repeat(8).parse().expect("64 digits");
        let name = ClaimedKeyRef::Name { kind: PodKind::Pod, namespace: "shop", name: "web-0" };
        // All numbers are named, so that a new kind needs an example here.
        let KeyNumbers { names, container_ids, ips, custom_keys } = KEYS_OF_A_POD;
        for (number, key) in [
            (names, name),
            (container_ids, ClaimedKeyRef::ContainerId(id)),
            (ips, ClaimedKeyRef::Ip(7)),
            (custom_keys, ClaimedKeyRef::Custom(CustomKeyKind(1), b"team")),
        ] {
            assert_eq!(*KeyNumbers::number_of(key)(&mut { KEYS_OF_A_POD }), number, "{key:?}");
            assert_eq!(number > 0, key.tenure().lasts != Lasts::Forever, "{key:?}");
        }
    }

    /// A pod with two IPs, a container, and three custom keys.
    struct Usual(u8);

    impl PodMeta for Usual {
        fn uid(&self) -> &str {
            ["u0", "u1", "u2"][usize::from(self.0)]
        }
        fn name(&self) -> &str {
            self.uid()
        }
        fn namespace(&self) -> &'static str {
            "shop"
        }
        fn annotation(&self, _: &str) -> Option<&str> {
            None
        }
        fn keys(&self, keys: &mut PodKeys<'_>) {
            keys.container_id("web", &format!("{:064x}", self.0));
            keys.ip([10, 0, 0, self.0].into());
            keys.ip([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(self.0)].into());
            for kind in 1..=3 {
                keys.custom_key(CustomKeyKind(kind), [self.0]);
            }
        }
    }

    /// With a smaller number, an answer about a removed pod that is still kept would be "too early".
    #[test]
    fn as_many_ended_holds_are_kept_as_usual_removed_pods_have() {
        const KEPT: u8 = 2;
        let options = Options::new().keep_removed(Duration::from_secs(60), KEPT.into()).keep_times(true);
        let (mut writer, _reader) = crate::with_options(options);
        let start = Instant::now();
        let mut ended_after = |operation| {
            let moment = Moment::new(start, Time::from_seconds(1_000));
            assert!(writer.apply_at(moment, [operation]).published);
            let (_, ended) = writer.current().times.as_ref().expect("kept").counts();
            ended
        };
        for number in 0..3 {
            ended_after(Operation::Upsert(Usual(number).into()));
            let ended = ended_after(Operation::Remove(Usual(number).uid().into()));
            let kept = usize::from((number + 1).min(KEPT));
            assert_eq!(ended, kept * KEYS_OF_A_POD.sum(), "{kept} removed pods");
        }
    }

    /// A pod with a name and an IP.
    struct WithLife {
        uid: &'static str,
        life: Life,
    }

    impl PodMeta for WithLife {
        fn uid(&self) -> &str {
            self.uid
        }
        fn name(&self) -> &str {
            self.uid
        }
        fn namespace(&self) -> &'static str {
            "shop"
        }
        fn annotation(&self, _: &str) -> Option<&str> {
            None
        }
        fn keys(&self, keys: &mut PodKeys<'_>) {
            keys.ip([10, 0, 0, 7].into());
        }
        fn life(&self) -> Life {
            self.life
        }
    }

    /// Such a hold would stay for ever, because nothing says any more that it is to be forgotten.
    #[test]
    fn a_hold_that_a_gap_splits_is_forgotten_if_its_own_parts_are_too_many() {
        let options = Options::new().keep_removed(Duration::from_secs(60), 1).keep_times(true);
        let (mut writer, _reader) = crate::with_options(options);
        let start = Instant::now();
        let second = Time::from_seconds;
        let add = |uid, life| Operation::Upsert(WithLife { uid, life }.into());
        let first = Moment::new(start, second(100)).covering(second(50), second(100));
        assert!(writer.apply_at(first, [add("old", Life::default())]).published);

        // In a gap until 190, it got another sandbox, and finished. It is the first of three pods whose holds end.
        let finished = Life {
            ip_by: Some(second(150)),
            may_lack_sandbox: true,
            ip_until: Some(second(160)),
            ..Life::default()
        };
        let operations = [
            add("old", finished),
            Operation::Remove("old".into()),
            add("next", Life::default()),
            Operation::Remove("next".into()),
            add("last", Life::default()),
            Operation::Remove("last".into()),
        ];
        let after =
            Moment::new(start + Duration::from_secs(100), second(200)).covering(second(190), second(200));
        assert!(writer.apply_at(after, operations).published);
        let (all, ended) = writer.current().times.as_ref().expect("kept").counts();
        assert_eq!((all, ended), (ENDED_PER_POD, ENDED_PER_POD), "no pod is left");
    }
}
