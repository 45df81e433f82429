//! The followed cgroups, by path, by watch and by ID. Knows no file system.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Placement;

/// A directory's inotify watch descriptor.
pub(super) type Watch = i32;

/// All known cgroups.
#[derive(Default)]
pub(super) struct Tree {
    /// By path below the root. Right after a cgroup come those below it.
    cgroups: BTreeMap<Arc<Path>, Node>,
    paths: HashMap<Watch, Arc<Path>>,
    by_id: HashMap<u64, Entry, ahash::RandomState>,
    /// The removed cgroups, in the order of their removal. New cgroups may have some of their IDs.
    removed: VecDeque<Removed>,
}

/// The cgroup that an ID identifies.
struct Entry {
    resolved: Placement,
    /// `None` once the cgroup has been removed.
    watch: Option<Watch>,
}

/// A removed cgroup whose ID is still known.
struct Removed {
    id: u64,
    until: Duration,
}

/// A cgroup.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) watch: Watch,
    /// The last scan that has seen it.
    pub(super) scan: u64,
}

impl Tree {
    /// The placement of the cgroup with this ID. `None` if the ID is unknown.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<&Placement> {
        self.by_id.get(&id).map(|entry| &entry.resolved)
    }

    /// Number of cgroups.
    pub(super) fn len(&self) -> usize {
        self.cgroups.len()
    }

    pub(super) fn path(&self, watch: Watch) -> Option<&Arc<Path>> {
        self.paths.get(&watch)
    }

    pub(super) fn node(&mut self, path: &Path) -> Option<&mut Node> {
        self.cgroups.get_mut(path)
    }

    /// The placement of the cgroup at this path.
    pub(super) fn placement(&self, path: &Path) -> Placement {
        self.cgroups.get(path).and_then(|node| self.get(node.id)).cloned().unwrap_or(Placement::NoPod)
    }

    /// Number of cgroups of the pod to which the cgroup at this path belongs.
    pub(super) fn in_pod(&self, path: &Path) -> usize {
        let is_of_pod = |path: &&Path| self.placement(path).pod().is_some_and(|pod| pod.pod_uid.is_some());
        path.ancestors().filter(is_of_pod).last().map_or(0, |outermost| self.below(outermost).count())
    }

    /// The cgroup at this path and those below it.
    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Arc<Path>> {
        let from = self.cgroups.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from.map(|(path, _)| path).take_while(move |below| below.starts_with(path))
    }

    /// Adds a cgroup. The tree must contain neither its path nor its watch.
    pub(super) fn insert(&mut self, path: Arc<Path>, node: Node, resolved: Placement) {
        self.by_id.insert(node.id, Entry { resolved, watch: Some(node.watch) });
        self.paths.insert(node.watch, Arc::clone(&path));
        self.cgroups.insert(path, node);
    }

    /// Removes the cgroup at this path and all below it. Returns their watches. Their IDs are known until then.
    pub(super) fn remove(&mut self, path: &Path, until: Duration) -> Vec<Watch> {
        let removed: Vec<_> = self.below(path).cloned().collect();
        let removed = removed.into_iter().filter_map(|path| {
            let Node { id, watch, .. } = self.cgroups.remove(&path)?;
            self.paths.remove(&watch);
            // Another cgroup may have the ID by now.
            if let Some(entry) = self.by_id.get_mut(&id).filter(|entry| entry.watch == Some(watch)) {
                entry.watch = None;
                self.removed.push_back(Removed { id, until });
            }
            Some(watch)
        });
        removed.collect()
    }

    /// The cgroups that this scan has not seen.
    pub(super) fn unseen(&self, scan: u64) -> Vec<Arc<Path>> {
        self.cgroups.iter().filter(|(_, node)| node.scan != scan).map(|(path, _)| Arc::clone(path)).collect()
    }

    /// Forgets removed cgroups whose time is over, and earlier ones if there are more than `most`.
    pub(super) fn expire(&mut self, now: Duration, most: usize) {
        while let Some(&Removed { id, until }) = self.removed.front() {
            if now < until && self.removed.len() <= most {
                return;
            }
            self.removed.pop_front();
            if self.by_id.get(&id).is_some_and(|entry| entry.watch.is_none()) {
                self.by_id.remove(&id);
            }
        }
    }
}
