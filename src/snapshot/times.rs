//! Which pod held which key, and when: what the index itself learnt. Only an index that keeps times has this.
//!
//! `at` turns what is known of a *stay* of a key with a pod into an interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use super::queue::Queue;
use super::tables::{Before, Keyed, OwnedKey};
use crate::id::PodUid;
use crate::options::KeepRemoved;
use crate::pod::{KeyRef, Life, Time};
use crate::table::OrdMap;

/// All holds of the keys of a snapshot's pods, and of those that ended lately.
pub(crate) struct Times {
    holds: OrdMap<Stay, Hold>,
    /// The holds that ended.
    ended: Queue<Stay>,
    /// The index is complete up to this time: see [`Writer::heard`](crate::Writer::heard). The writer changes it in its
    /// current snapshot, so that it needs no publication.
    as_of: AtomicI64,
    /// Of holds that ended before this time, the index may not know.
    floor: AtomicI64,
}

/// A stay of a key with a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stay {
    pub(crate) key: OwnedKey,
    pub(crate) uid: PodUid,
    number: u64,
}

/// What is known of a stay.
#[derive(Clone, PartialEq)]
pub(crate) struct Hold {
    /// The index was complete up to this time before it learnt of the hold.
    pub(crate) heard: Time,
    /// The pod has had the key since this time at the latest: the index knew it, or a replaced object said so.
    pub(crate) by: Time,
    /// The index was complete up to this time before it learnt that the pod's sandbox may be gone.
    pub(crate) ran: Time,
    pub(crate) end: Option<Arc<End>>,
}

/// The end of a hold.
#[derive(PartialEq)]
pub(crate) struct End {
    /// When the index learnt of it.
    pub(crate) learned: Time,
    /// The index was complete up to this time before it learnt of it.
    pub(crate) heard: Time,
    /// What the last object with the key said.
    pub(crate) life: Life,
    /// The pod itself was removed. Otherwise it lost the key.
    pub(crate) removed: bool,
    /// Its number in the queue.
    number: u64,
}

/// When something is written: by the writer's clock, and what was known before.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) learned: Time,
    pub(crate) heard: Time,
}

/// Ended holds for each removed pod at most, on average.
const ENDED_PER_POD: usize = 6;

impl Keyed for Stay {
    fn key(&self) -> KeyRef<'_> {
        self.key.as_ref()
    }
}

impl Times {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        let [as_of, floor] = [(); 2].map(|()| AtomicI64::new(Time::MIN.as_nanos()));
        let max_pods = limits.max_pods.saturating_mul(ENDED_PER_POD);
        Self { holds: OrdMap::new(), ended: Queue::new(KeepRemoved { max_pods, ..limits }), as_of, floor }
    }

    /// The first time, if nothing was heard. Who reads the floor after this reads that of this time or a later one: an
    /// earlier floor would make the index sure of times at which it missed something.
    #[inline]
    pub(crate) fn as_of(&self) -> Time {
        Time(self.as_of.load(Ordering::Acquire))
    }

    /// Later than the first time, if anything was heard.
    pub(crate) fn floor(&self) -> Time {
        Time(self.floor.load(Ordering::Relaxed))
    }

    /// The pods of this snapshot are all that there were at this time, late news apart.
    pub(crate) fn heard(&self, as_of: Time) {
        // What ended before the first time was never known.
        if self.as_of() == Time::MIN {
            self.missed(as_of);
        }
        self.as_of.store(as_of.as_nanos(), Ordering::Release);
    }

    /// What ended before this time may be unknown.
    pub(crate) fn missed(&self, until: Time) {
        self.floor.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    /// The holds of a key.
    pub(crate) fn of<'a>(&'a self, key: KeyRef<'a>) -> impl Iterator<Item = (&'a Stay, &'a Hold)> {
        self.holds.range(Before(key)..).take_while(move |(stay, _)| stay.key() == key)
    }

    /// The last hold of a key by a pod.
    fn last_of(&self, key: &OwnedKey, uid: &PodUid) -> Option<(Stay, Hold)> {
        let last = Stay { key: key.clone(), uid: uid.clone(), number: u64::MAX };
        let found = self.holds.get_prev(&last).filter(|(stay, _)| (&stay.key, &stay.uid) == (key, uid));
        found.map(|(stay, hold)| (stay.clone(), hold.clone()))
    }

    /// A pod has a key. `before`: its replaced object, which had the key too.
    pub(crate) fn begin(
        &mut self,
        key: OwnedKey,
        uid: &PodUid,
        before: Option<Life>,
        life: &Life,
        now: Moment,
    ) {
        // Its sandbox may be another one than before.
        let runs_again = |before: &Life| {
            matches!(key, OwnedKey::Ip(_)) && before.may_lack_sandbox && !life.may_lack_sandbox
        };
        if let Some(before) = before.filter(runs_again) {
            self.end(&key, uid, before, false, now);
        }
        // A manifest that is put back has the same UID and no creation time. Its pod was gone meanwhile.
        let returns = |end: &Arc<End>| end.removed && life.created.is_some() && !runs_again(&end.life);
        let last = self.last_of(&key, uid).filter(|(_, hold)| hold.end.as_ref().is_none_or(returns));
        let Some((stay, last)) = last else {
            let stay = Stay { key, uid: uid.clone(), number: self.ended.number() };
            self.holds.insert(stay, Hold { heard: now.heard, by: now.learned, ran: Time::MIN, end: None });
            return;
        };
        let mut hold = last.clone();
        // A pod of the API server that returns was never gone: its UID is never used again.
        if let Some(end) = hold.end.take() {
            self.ended.remove(end.number);
        }
        if let Some(before) = before {
            hold.by = stay.by_with(hold.by, &before);
            if life.may_lack_sandbox && !before.may_lack_sandbox {
                hold.ran = now.heard;
            }
        }
        if hold != last {
            self.holds.insert(stay, hold);
        }
    }

    /// A pod has lost a key, or was removed.
    pub(crate) fn end(&mut self, key: &OwnedKey, uid: &PodUid, life: Life, removed: bool, now: Moment) {
        let Some((stay, last)) = self.last_of(key, uid).filter(|(_, hold)| hold.end.is_none()) else {
            return;
        };
        let number = self.ended.number();
        let end = End { learned: now.learned, heard: now.heard, life, removed, number };
        let hold = Hold { by: stay.by_with(last.by, &life), end: Some(Arc::new(end)), ..last };
        self.ended.insert(number, now.at, stay.clone());
        self.holds.insert(stay, hold);
        while self.ended.len() > self.ended.limits.max_pods {
            self.drop_first();
        }
    }

    /// When the hold that ended first must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ended.deadline()
    }

    /// Drops the holds whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| now >= deadline) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((first, stay)) = self.ended.first() else { return };
        self.ended.remove(first);
        let end = self.holds.remove(&stay).and_then(|hold| hold.end);
        if let Some(learned) = end.map(|end| end.learned).filter(|learned| *learned != Time::MAX) {
            self.missed(learned);
        }
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.holds.len(), self.ended.len())
    }
}

impl Stay {
    /// The earlier one of this time and what a pod's object says, by which the pod had the key.
    fn by_with(&self, by: Time, life: &Life) -> Time {
        let said = life.ip_by.filter(|_| matches!(self.key, OwnedKey::Ip(_)));
        said.map_or(by, |said| said.min(by))
    }
}

impl Clone for Times {
    fn clone(&self) -> Self {
        let copy = |atomic: &AtomicI64| AtomicI64::new(atomic.load(Ordering::Relaxed));
        let Self { holds, ended, as_of, floor } = self;
        Self { holds: holds.clone(), ended: ended.clone(), as_of: copy(as_of), floor: copy(floor) }
    }
}
