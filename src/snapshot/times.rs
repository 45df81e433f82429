//! Which pod held which key, and when: what the index itself learnt. Only an index that keeps times has this.
//!
//! A *hold* is one stay of a key with a pod. `at` turns it into an interval.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering as Memory};
use std::time::Instant;

use super::tables::OwnedKey;
use crate::id::PodUid;
use crate::map::{Hashing, OrdMap, Ordered};
use crate::options::KeepRemoved;
use crate::pod::{KeyRef, Life, Time};

/// All holds of the keys of a snapshot's pods, and of those that ended lately.
pub(crate) struct Times {
    holds: Ordered<Hold>,
    /// The holds that ended, by the number of their end.
    ended: OrdMap<u64, Ended>,
    next: u64,
    limits: KeepRemoved,
    /// The index is complete up to this time: see [`Writer::heard`](crate::Writer::heard). The writer changes it in its
    /// current snapshot, so that it needs no publication.
    as_of: AtomicI64,
    /// Of holds that ended before this time, the index may not know any more.
    floor: AtomicI64,
}

/// A pod and a key that it holds or held. Ordered by key, then by UID, then by number.
#[derive(Clone)]
pub(crate) struct Hold {
    pub(crate) key: OwnedKey,
    number: u64,
    pub(crate) uid: PodUid,
    /// The index was complete up to this time before it learnt of the hold.
    pub(crate) heard: Option<Time>,
    /// The pod has had the key since this time at the latest: the index knew it, or a replaced object said so.
    pub(crate) by: Time,
    /// The index was complete up to this time before it learnt that the pod had stopped.
    pub(crate) ran: Option<Time>,
    pub(crate) end: Option<Arc<End>>,
}

/// The end of a hold.
pub(crate) struct End {
    /// When the index learnt of it.
    pub(crate) learned: Time,
    /// The index was complete up to this time before it learnt of it.
    pub(crate) heard: Option<Time>,
    /// What the last object with the key said.
    pub(crate) life: Life,
    /// The pod itself was removed. Otherwise it lost the key.
    pub(crate) removed: bool,
    number: u64,
}

#[derive(Clone)]
struct Ended {
    at: Instant,
    hold: Hold,
}

/// When something is written: by the writer's clock, and what was known before.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) learned: Time,
    pub(crate) heard: Option<Time>,
}

/// Ended holds for each removed pod at most, on average.
const ENDED_PER_POD: usize = 4;

#[inline]
fn raw(atomic: &AtomicI64) -> Time {
    Time::stored(atomic.load(Memory::Relaxed))
}

#[inline]
fn time(atomic: &AtomicI64) -> Option<Time> {
    let time = raw(atomic);
    (time != Time::MIN).then_some(time)
}

impl Times {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        let [as_of, floor] = [(); 2].map(|()| AtomicI64::new(Time::MIN.as_nanos()));
        Self { holds: Ordered::new(), ended: OrdMap::new(), next: 0, limits, as_of, floor }
    }

    #[inline]
    pub(crate) fn as_of(&self) -> Option<Time> {
        time(&self.as_of)
    }

    /// The first time, if nothing was heard.
    #[inline]
    pub(crate) fn as_of_or_min(&self) -> Time {
        raw(&self.as_of)
    }

    pub(crate) fn floor(&self) -> Option<Time> {
        time(&self.floor)
    }

    /// The pods of this snapshot are all that there were at this time, late news apart.
    pub(crate) fn heard(&self, as_of: Time) {
        self.as_of.store(as_of.as_nanos(), Memory::Relaxed);
        // What ended before the first time was never known.
        if self.floor().is_none() {
            self.floor.store(as_of.as_nanos(), Memory::Relaxed);
        }
    }

    /// The holds of a key.
    pub(crate) fn of<'a, 'k>(&'a self, key: KeyRef<'k>) -> impl Iterator<Item = &'a Hold> + use<'a, 'k> {
        let next = move |last: Option<&Hold>| {
            let hold = self.holds.first_not(|hold| match last {
                Some(last) => hold <= last,
                None => hold.key.as_ref() < key,
            });
            hold.filter(|hold| hold.key.as_ref() == key)
        };
        std::iter::successors(next(None), move |last| next(Some(last)))
    }

    /// The last hold of a key by a pod.
    fn last_of(&self, key: &OwnedKey, uid: &PodUid) -> Option<&Hold> {
        let next =
            |number| self.holds.first_not(|hold| (&hold.key, &hold.uid, hold.number) < (key, uid, number));
        let is = |hold: &&Hold| (&hold.key, &hold.uid) == (key, uid);
        let first = next(0).filter(is);
        std::iter::successors(first, |hold| next(hold.number + 1).filter(is)).last()
    }

    /// A pod has a key. `before`: its replaced object, which had the key too.
    pub(crate) fn begin(
        &mut self,
        hashing: &Hashing,
        key: OwnedKey,
        uid: &PodUid,
        before: Option<Life>,
        life: &Life,
        now: Moment,
    ) {
        let last = self.last_of(&key, uid).cloned();
        // A manifest that is put back has the same UID and no creation time. Its pod was gone meanwhile.
        let returns = |end: &Arc<End>| end.removed && life.created.is_some();
        let Some(last) = last.filter(|hold| hold.end.as_ref().is_none_or(returns)) else {
            let (number, uid) = (self.next(), uid.clone());
            let (heard, by) = (now.heard, now.learned);
            return self.insert(hashing, Hold { key, number, uid, heard, by, ran: None, end: None });
        };
        let mut hold = last.clone();
        // A pod of the API server that returns was never gone: its UID is never used again.
        if let Some(end) = hold.end.take() {
            self.ended.remove(&end.number);
        }
        if let Some(before) = before {
            hold.by = hold.by_with(&before);
            if life.stopped && !before.stopped {
                hold.ran = now.heard;
            }
        }
        if last.end.is_some() || hold.by != last.by || hold.ran != last.ran {
            self.holds.remove(&last);
            self.insert(hashing, hold);
        }
    }

    /// A pod has lost a key, or was removed.
    pub(crate) fn end(
        &mut self,
        hashing: &Hashing,
        key: &OwnedKey,
        uid: &PodUid,
        life: Life,
        removed: bool,
        now: Moment,
    ) {
        let Some(last) = self.last_of(key, uid).filter(|hold| hold.end.is_none()).cloned() else { return };
        self.holds.remove(&last);
        let number = self.next();
        let end = End { learned: now.learned, heard: now.heard, life, removed, number };
        let hold = Hold { by: last.by_with(&life), end: Some(Arc::new(end)), ..last };
        self.ended.insert(number, Ended { at: now.at, hold: hold.clone() });
        self.insert(hashing, hold);
        while self.ended.len() > self.limits.max_pods.saturating_mul(ENDED_PER_POD) {
            self.drop_first();
        }
    }

    /// When the hold that ended first must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ended.get_min()?.1.at.checked_add(self.limits.max_age)
    }

    /// Drops the holds whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| now >= deadline) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((first, Ended { hold, .. })) = self.ended.get_min().cloned() else { return };
        self.ended.remove(&first);
        self.holds.remove(&hold);
        let learned = hold.end.map(|end| end.learned).filter(|learned| *learned != Time::MAX);
        let floor = self.floor().max(learned);
        self.floor = AtomicI64::new(floor.unwrap_or(Time::MIN).as_nanos());
    }

    fn insert(&mut self, hashing: &Hashing, hold: Hold) {
        let priority = hashing.of(&hold);
        self.holds.insert(hold, priority);
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.holds.len(), self.ended.len())
    }
}

impl Hold {
    /// The earliest time by which the pod had the key, if this object of it had the key too.
    fn by_with(&self, life: &Life) -> Time {
        let said = life.ip_by.filter(|_| matches!(self.key, OwnedKey::Ip(_)));
        said.map_or(self.by, |said| said.min(self.by))
    }
}

impl Clone for Times {
    fn clone(&self) -> Self {
        let copy = |atomic: &AtomicI64| AtomicI64::new(atomic.load(Memory::Relaxed));
        Self {
            holds: self.holds.clone(),
            ended: self.ended.clone(),
            next: self.next,
            limits: self.limits,
            as_of: copy(&self.as_of),
            floor: copy(&self.floor),
        }
    }
}

impl Hash for Hold {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.key, &self.uid, self.number).hash(state);
    }
}

impl PartialEq for Hold {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Hold {}

impl PartialOrd for Hold {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Hold {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.key, &self.uid, self.number).cmp(&(&other.key, &other.uid, other.number))
    }
}
