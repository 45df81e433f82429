//! The claims to keys that another pod holds, sorted by key and then by strength.

use std::cmp::Ordering;

use equivalent::{Comparable, Equivalent};

use super::key_numbers::KeyNumbers;
use crate::id::PodUid;
use crate::pod::{ClaimedKeyRef, OwnedClaimedKey, Strength};
use crate::table::OrdSet;

/// All contenders of a set of pods.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Contenders {
    /// For IPs and container IDs. Nearly always empty, which makes lookups of IPs at a time fast.
    of_ips_and_containers: OrdSet<Contender>,
    /// For custom keys, which many pods share, and for names.
    of_texts: OrdSet<Contender>,
    /// How many there are that [count](Contender::counts).
    numbers: KeyNumbers,
}

/// A pod that claims a key without holding it. Ordered by key, then by strength.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Contender {
    pub(crate) key: OwnedClaimedKey,
    pub(crate) strength: Strength,
    pub(crate) uid: PodUid,
}

/// The place in an ordered set before all items with this key.
pub(crate) struct Before<'a>(pub(crate) ClaimedKeyRef<'a>);

/// An item of an ordered set that is sorted by key first.
pub(crate) trait SortedByKey {
    fn key(&self) -> ClaimedKeyRef<'_>;
}

impl<T: SortedByKey> Equivalent<T> for Before<'_> {
    fn equivalent(&self, _: &T) -> bool {
        false
    }
}

impl<T: SortedByKey> Comparable<T> for Before<'_> {
    fn compare(&self, item: &T) -> Ordering {
        self.0.cmp(&item.key()).then(Ordering::Less)
    }
}

impl SortedByKey for Contender {
    fn key(&self) -> ClaimedKeyRef<'_> {
        self.key.as_ref()
    }
}

impl Contenders {
    /// How many there are for keys of each kind, without those that do not contradict the holder.
    pub(crate) fn numbers(&self) -> KeyNumbers {
        self.numbers
    }

    /// The contenders for a key, the strongest claim first.
    pub(crate) fn of<'a>(&'a self, key: ClaimedKeyRef<'a>) -> impl Iterator<Item = &'a Contender> {
        self.set(key).range(Before(key)..).take_while(move |contender| contender.key() == key)
    }

    /// The contender for a key with the strongest claim.
    #[expect(clippy::inline_always, reason = "the key need not be in memory for what is nearly always done")]
    #[inline(always)]
    pub(crate) fn first_of(&self, key: ClaimedKeyRef<'_>) -> Option<&Contender> {
        let contenders = self.set(key);
        if contenders.is_empty() {
            return None;
        }
        contenders.get_next(&Before(key)).filter(|contender| contender.key() == key)
    }

    pub(crate) fn insert(&mut self, contender: Contender) {
        let number = KeyNumbers::number_of(contender.key());
        let counts = contender.counts();
        let is_new = self.set_mut(contender.key()).insert(contender).is_none();
        if is_new && counts {
            *number(&mut self.numbers) += 1;
        }
    }

    pub(crate) fn remove(&mut self, contender: &Contender) {
        let was_there = self.set_mut(contender.key()).remove(contender).is_some();
        if was_there && contender.counts() {
            *KeyNumbers::number_of(contender.key())(&mut self.numbers) -= 1;
        }
    }

    #[inline]
    fn set(&self, key: ClaimedKeyRef<'_>) -> &OrdSet<Contender> {
        match key {
            ClaimedKeyRef::ContainerId(_) | ClaimedKeyRef::Ip(_) => &self.of_ips_and_containers,
            ClaimedKeyRef::Custom(..) | ClaimedKeyRef::Name { .. } => &self.of_texts,
        }
    }

    fn set_mut(&mut self, key: ClaimedKeyRef<'_>) -> &mut OrdSet<Contender> {
        match key {
            ClaimedKeyRef::ContainerId(_) | ClaimedKeyRef::Ip(_) => &mut self.of_ips_and_containers,
            ClaimedKeyRef::Custom(..) | ClaimedKeyRef::Name { .. } => &mut self.of_texts,
        }
    }
}

impl Contender {
    /// Whether it contradicts the holder. A finished pod goes on naming its IP, which may rightly be another pod's by now.
    fn counts(&self) -> bool {
        match self.key {
            OwnedClaimedKey::Ip(_) => !self.strength.is_finished(),
            OwnedClaimedKey::ContainerId(_) | OwnedClaimedKey::Custom(..) | OwnedClaimedKey::Name { .. } => {
                true
            }
        }
    }
}
