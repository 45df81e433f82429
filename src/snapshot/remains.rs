//! How a snapshot begins and ends: as a draft of the newest one, and as what it has and the next one has not.

use std::sync::Arc;

use super::{MirrorEntry, NameEntry, PodEntry, Snapshot};
use crate::map::{Garbage, OrdMap, OrdSet};

/// To drop it is to leak it; see [`Garbage`].
pub(crate) struct Remains<P> {
    pods: Garbage<PodEntry<P>>,
    mirrors: Garbage<MirrorEntry<P>>,
    static_pods: Garbage<PodEntry<P>>,
    names: Garbage<NameEntry<P>>,
}

impl<P> Default for Remains<P> {
    fn default() -> Self {
        Self {
            pods: Garbage::default(),
            mirrors: Garbage::default(),
            static_pods: Garbage::default(),
            names: Garbage::default(),
        }
    }
}

impl<P> Remains<P> {
    /// Takes over what another snapshot had.
    pub(crate) fn append(&mut self, other: Self) {
        self.pods.append(other.pods);
        self.mirrors.append(other.mirrors);
        self.static_pods.append(other.static_pods);
        self.names.append(other.names);
    }

    /// See [`Garbage::drop_scrap`].
    pub(crate) fn drop_scrap(&mut self) {
        self.pods.drop_scrap();
        self.mirrors.drop_scrap();
        self.static_pods.drop_scrap();
        self.names.drop_scrap();
    }

    /// Frees what the nearest `older` snapshot that is left has not, and gives that one the rest.
    ///
    /// # Safety
    /// See [`Garbage::hand_on`].
    pub(crate) unsafe fn hand_on(self, older: Option<(u64, &mut Self)>) {
        let (generation, older) = older.unzip();
        let mut nobodys = Self::default();
        let to = older.unwrap_or(&mut nobodys);
        // SAFETY: the caller's.
        unsafe {
            self.pods.hand_on(generation.map(|generation| (generation, &mut to.pods)));
            self.mirrors.hand_on(generation.map(|generation| (generation, &mut to.mirrors)));
            self.static_pods.hand_on(generation.map(|generation| (generation, &mut to.static_pods)));
            self.names.hand_on(generation.map(|generation| (generation, &mut to.names)));
        }
    }
}

impl<P> Snapshot<P> {
    /// A draft of the snapshot that follows this one, which is the newest.
    ///
    /// # Safety
    /// See [`Table::draft`](crate::map::Table::draft).
    pub(crate) unsafe fn draft(&self) -> Self {
        let generation = self.generation + 1;
        // SAFETY: the caller's, and no generation is greater than the newest one's.
        let (pods, mirrors, static_pods, names) = unsafe {
            (
                self.pods.draft(generation),
                self.mirrors.draft(generation),
                self.static_pods.draft(generation),
                self.names.draft(generation),
            )
        };
        Self {
            generation,
            hashing: self.hashing.clone(),
            pods,
            mirrors,
            static_pods,
            names,
            shadowed: self.shadowed.clone(),
            departed: self.departed.clone(),
            ephemeral_containers: self.ephemeral_containers,
            estate: Arc::clone(&self.estate),
        }
    }

    /// An empty draft in place of this one, with room for `entries` pods, of which it takes as many for mirrors and for
    /// static pods as there are now.
    pub(crate) fn instead(&self, entries: usize) -> Self {
        let mirrors = self.mirrors.len().min(entries);
        let pods = entries - mirrors;
        Self {
            generation: self.generation,
            hashing: self.hashing.clone(),
            pods: self.pods.instead(pods),
            mirrors: self.mirrors.instead(mirrors),
            static_pods: self.static_pods.instead(self.static_pods.len().min(pods)),
            names: self.names.instead(pods),
            shadowed: OrdSet::new(),
            departed: OrdMap::new(),
            ephemeral_containers: 0,
            estate: Arc::clone(&self.estate),
        }
    }

    /// Ends a draft: this is a snapshot now. Returns what the one before had and this one has not.
    pub(crate) fn publish(&mut self) -> Remains<P> {
        Remains {
            pods: self.pods.publish(),
            mirrors: self.mirrors.publish(),
            static_pods: self.static_pods.publish(),
            names: self.names.publish(),
        }
    }

    /// All there is, as what the last snapshot leaves.
    pub(crate) fn remains(&self) -> Remains<P> {
        Remains {
            pods: self.pods.remains(),
            mirrors: self.mirrors.remains(),
            static_pods: self.static_pods.remains(),
            names: self.names.remains(),
        }
    }
}
