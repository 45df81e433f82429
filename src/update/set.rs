//! Replaces all pods of an index.
//!
//! A source usually lists the same pods again, and few new ones. Then the new objects are stored over the old ones, the
//! missing pods are removed, and the new pods are added. Otherwise, and whenever names or UIDs collide, the tables are
//! built from nothing. The result is the same.

use std::hint::black_box;
use std::sync::Arc;

use super::check;
use crate::error::Error;
use crate::map::{Place, any_tag};
use crate::pod::PodMeta;
use crate::snapshot::{History, PodKind, UidKey};
use crate::versions::Draft;

/// Maximum number of pods for which memory is reserved, whatever an iterator's `size_hint` claims.
const MAX_PRESIZE: usize = 1 << 20;

/// Pods are stored over the old ones if at most one in this number is new or missing.
const FEW: usize = 8;

/// Number of pods that are read in advance.
pub(crate) const READ_AHEAD: usize = 16;

/// From this number of pods on, pods are read in advance. Fewer pods and their pages fit into a near cache.
const LARGE: usize = 1 << 14;

/// The result of storing one pod over its old object.
enum Exchanged {
    Replaced,
    /// Its UID is new.
    Unknown,
    /// It collides with another pod, or has another name or kind than the old one.
    Collides,
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
        let before = self.pods.len() + self.mirrors.len();
        let few = before / FEW;
        // Contested names would have to be ordered again.
        let is_contested = !self.history.shadowed.is_empty() || !self.history.tombstones.is_empty();
        if is_contested || pods.len().abs_diff(before) > few {
            return None;
        }
        let (mut refused, mut unknown, mut replaced) = (Vec::new(), Vec::new(), 0);
        for (position, pod) in pods.iter().enumerate() {
            self.read_ahead_at(pods, position);
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
                self.take(UidKey::new(pod.uid().into(), &self.hashing));
            }
        }
        // A pod that an earlier operation of the same batch stored looks exchanged too.
        if self.pods.len() + self.mirrors.len() != replaced {
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
        self.pods().iter().chain(self.mirror_pods().iter()).filter(is_old).cloned().collect()
    }

    /// Whether the pod or mirror at `place` was stored in this draft.
    fn is_exchanged(&self, kind: PodKind, place: Place) -> bool {
        let born = match kind {
            PodKind::Pod => self.pods.born(place),
            PodKind::Mirror => self.mirrors.born(place),
        };
        born == self.generation()
    }

    /// Reads the next pods, the pages that they will be stored on, and there the old pods and the records of their names.
    /// In a large index, a write mostly waits for memory. The processor waits for several pods at once if nothing is stored
    /// in between.
    #[inline]
    pub(crate) fn read_ahead<'a>(&self, pods: impl Iterator<Item = &'a Arc<P>>)
    where
        P: 'a,
    {
        if self.pods.len() >= LARGE {
            let mut next = [None; READ_AHEAD];
            next.iter_mut().zip(pods).for_each(|(slot, pod)| *slot = Some(&**pod));
            self.read_pods(next);
        }
    }

    // Not inlined, so that a small index pays one comparison.
    #[inline(never)]
    fn read_pods(&self, pods: [Option<&P>; READ_AHEAD]) {
        for pod in pods.into_iter().flatten() {
            black_box([pod.uid(), pod.name(), pod.namespace()].map(|text| text.as_bytes().first().copied()));
        }
        let names = self.names(PodKind::Pod);
        let hashes = pods.map(|pod| {
            let pod = pod?;
            self.pods.prefetch(UidKey::new(pod.uid().into(), &self.hashing).hash);
            let hash = self.hashing.pair(pod.name(), pod.namespace());
            names.prefetch(hash);
            Some(hash)
        });
        for hash in hashes.into_iter().flatten() {
            if let Some(entry) = names.find(hash, any_tag(hash), |entry| entry.key.hash == hash) {
                black_box((entry.key.record.lengths(), Arc::strong_count(&entry.value)));
            }
        }
    }

    /// Reads the next pods in advance if `position` is a multiple of [`READ_AHEAD`].
    fn read_ahead_at(&self, pods: &[Arc<P>], position: usize) {
        if position.is_multiple_of(READ_AHEAD) {
            self.read_ahead(pods.iter().skip(position).take(READ_AHEAD));
        }
    }

    /// Builds all tables from `pods`.
    fn rebuild_all(&mut self, pods: &[Arc<P>]) -> Vec<(usize, Error)> {
        let mirrors = self.mirrors.len().min(pods.len());
        let static_pods = self.static_pods.len().min(pods.len() - mirrors);
        self.pods_mut().clear(pods.len() - mirrors);
        self.names_mut(PodKind::Pod).clear(pods.len() - mirrors);
        self.static_pods_mut().clear(static_pods);
        self.mirrors_mut().clear(mirrors);
        self.names_mut(PodKind::Mirror).clear(mirrors);
        self.clear_keys(pods.len());
        *self.history() = History::default();
        let mut refused = Vec::new();
        for (position, pod) in pods.iter().enumerate() {
            self.read_ahead_at(pods, position);
            if let Err(error) = self.upsert(pod) {
                refused.push((position, error));
            }
        }
        self.pods_mut().trim();
        self.names_mut(PodKind::Pod).trim();
        self.static_pods_mut().trim();
        self.mirrors_mut().trim();
        self.names_mut(PodKind::Mirror).trim();
        self.trim_keys();
        // Growing pages left smaller ones in the pool, more than a write needs.
        self.memory().trim();
        refused
    }
}
