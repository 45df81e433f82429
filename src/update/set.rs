//! Replaces all pods of an index.
//!
//! A source usually lists the same pods again, and few new ones. Then the new objects are stored over the old ones, the
//! missing pods are removed, and the new pods are added. Otherwise, and whenever names or UIDs collide, the tables are
//! built from nothing. The result is the same.

use std::sync::Arc;

use super::check;
use crate::error::Error;
use crate::map::{Key, Ordered, Place, TableMut, Value};
use crate::pod::{PodKind, PodMeta};
use crate::snapshot::{History, UidKey};
use crate::versions::{Draft, EachTableMut};

/// Maximum number of pods for which memory is reserved, whatever an iterator's `size_hint` claims.
const MAX_PRESIZE: usize = 1 << 20;

/// Pods are stored over the old ones if at most one in this number is new or missing. That takes a third less than
/// building the tables from nothing.
const FEW: usize = 8;

/// The result of storing one pod over its old object.
enum Exchanged {
    Replaced,
    /// Its UID is new.
    Unknown,
    /// It collides with another pod, or has another name or kind than the old one.
    Collides,
}

/// Removes everything, and reserves pages for as many entries as now, but at most four for each of so many pods. With
/// 1,000 pods this takes a third of the time of pages that grow and split, with 100,000 five sixths.
struct Clear(usize);

/// Frees pages that were reserved but not used.
struct Trim;

impl<P> EachTableMut<P> for Clear {
    fn table<K: Key, T: Value<Pod = P>>(&mut self, mut table: TableMut<'_, K, T>) {
        let len = table.len();
        table.clear(len.min(self.0.saturating_mul(4)));
    }
}

impl<P> EachTableMut<P> for Trim {
    fn table<K: Key, T: Value<Pod = P>>(&mut self, mut table: TableMut<'_, K, T>) {
        table.trim();
    }
}

impl<P: PodMeta> Draft<'_, P> {
    /// Replaces everything in the draft by `pods`, as if stored one by one in order. Returns the refused pods.
    pub(crate) fn set(&mut self, pods: impl IntoIterator<Item = Arc<P>>) -> Vec<(usize, Error)> {
        let living = self.living();
        let pods = pods.into_iter();
        let mut list = Vec::with_capacity(pods.size_hint().0.min(MAX_PRESIZE));
        // Not `extend`, which trusts `size_hint`.
        pods.for_each(|pod| list.push(pod));
        let refused = self.exchange_all(&list).unwrap_or_else(|| self.rebuild_all(&list));
        refused.iter().filter_map(|(position, _)| list.get(*position)).for_each(|pod| self.drop_later(pod));
        self.keep_missing(living);
        refused
    }

    /// Stores the pods over the old ones. Returns `None` if the draft has to be rebuilt.
    fn exchange_all(&mut self, pods: &[Arc<P>]) -> Option<Vec<(usize, Error)>> {
        let before = self.live.pods.len() + self.live.mirrors.len();
        let few = before / FEW;
        // Contested names would have to be ordered again.
        let is_contested = !self.history.shadowed.is_empty() || !self.history.tombstones.is_empty();
        if is_contested || pods.len().abs_diff(before) > few {
            return None;
        }
        let (mut refused, mut unknown, mut replaced) = (Vec::new(), Vec::new(), 0);
        for (position, pod) in pods.iter().enumerate() {
            if let Err(error) = check(&**pod) {
                refused.push((position, error));
                continue;
            }
            match self.exchange(pod) {
                Exchanged::Replaced => replaced += 1,
                Exchanged::Unknown if unknown.len() < few => unknown.push(pod),
                Exchanged::Unknown | Exchanged::Collides => return None,
            }
        }
        if replaced + few < before {
            return None;
        }
        if replaced < before {
            for pod in self.not_exchanged() {
                self.remove_known(UidKey::new(pod.uid().into(), &self.hashing));
            }
        }
        // A pod that an earlier operation of the same batch stored looks exchanged too.
        if self.live.pods.len() + self.live.mirrors.len() != replaced {
            return None;
        }
        for pod in unknown {
            let key = UidKey::new(pod.uid().into(), &self.hashing);
            if self.known(key).is_some() {
                return None;
            }
            self.insert(PodKind::of(&**pod), key, pod);
        }
        // Otherwise the order matters: of several pods with one name, the last holds it. And no mirror may translate to a
        // pod that is not in the set.
        (self.history.shadowed.is_empty() && self.history.tombstones.is_empty()).then_some(refused)
    }

    /// Stores `pod` over the old pod with the same UID, kind and name.
    fn exchange(&mut self, pod: &Arc<P>) -> Exchanged {
        let kind = PodKind::of(&**pod);
        let key = UidKey::new(pod.uid().into(), &self.hashing);
        let Some((place, known_kind, old)) = self.known(key) else { return Exchanged::Unknown };
        if known_kind != kind || self.is_exchanged(kind, place) {
            return Exchanged::Collides;
        }
        let Some(name) = self.name_of(kind, old, &**pod) else { return Exchanged::Collides };
        let old = Arc::clone(old);
        self.replace(kind, key, place, name, &old, pod);
        Exchanged::Replaced
    }

    /// The pods and mirrors that were not stored in this draft.
    fn not_exchanged(&self) -> Vec<Arc<P>> {
        let is_old = |pod: &&Arc<P>| {
            let known = self.known(UidKey::new(pod.uid().into(), &self.hashing));
            known.is_none_or(|(place, kind, _)| !self.is_exchanged(kind, place))
        };
        self.pods().chain(self.mirror_pods()).filter(is_old).cloned().collect()
    }

    /// Whether the pod or mirror at `place` was stored in this draft.
    fn is_exchanged(&self, kind: PodKind, place: Place) -> bool {
        let born = match kind {
            PodKind::Pod => self.live.pods.born(place),
            PodKind::Mirror => self.live.mirrors.born(place),
        };
        born == self.generation()
    }

    /// Builds all tables from `pods`.
    fn rebuild_all(&mut self, pods: &[Arc<P>]) -> Vec<(usize, Error)> {
        self.live_mut().each(Clear(pods.len()));
        *self.live_mut().contenders() = Ordered::new();
        *self.history() = History::default();
        let mut refused = Vec::new();
        for (position, pod) in pods.iter().enumerate() {
            if let Err(error) = self.upsert(pod) {
                refused.push((position, error));
            }
        }
        self.live_mut().each(Trim);
        // Growing pages left smaller ones in the pool, more than a write needs.
        self.memory().trim();
        refused
    }
}
