//! The known cgroups, as a tree of watches and as a table by ID. Accesses no files.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Placement;

/// A directory's inotify watch descriptor.
pub(super) type Watch = i32;

/// All known cgroups.
#[derive(Default)]
pub(super) struct Tree {
    nodes: HashMap<Watch, Node>,
    root: Option<Watch>,
    by_id: HashMap<u64, Entry, ahash::RandomState>,
    /// IDs of cgroups that were removed since the last call of [`expire`](Self::expire).
    just_removed: Vec<u64>,
    /// IDs of removed cgroups, and when to forget them. New cgroups may have some of these IDs.
    removed: VecDeque<(Duration, u64)>,
}

/// The cgroup that an ID identifies.
struct Entry {
    resolved: Placement,
    /// `None` once the cgroup has been removed.
    watch: Option<Watch>,
}

/// A cgroup.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) depth: usize,
    parent: Option<Watch>,
    name: Arc<CStr>,
    children: BTreeMap<Arc<CStr>, Watch>,
    /// The outermost cgroup of its pod, which may be this one.
    pub(super) pod: Option<Watch>,
    /// The number of cgroups below, if this is the outermost cgroup of a pod.
    pub(super) in_pod: usize,
    /// The last walk that saw it.
    walk: u64,
}

impl Tree {
    /// The placement of the cgroup with this ID. `None` if the ID is unknown.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<&Placement> {
        self.by_id.get(&id).map(|entry| &entry.resolved)
    }

    /// Number of cgroups.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, watch: Watch) -> Option<&Node> {
        self.nodes.get(&watch)
    }

    /// The placement of this cgroup.
    pub(super) fn resolved(&self, watch: Watch) -> Placement {
        self.node(watch).and_then(|node| self.get(node.id)).cloned().unwrap_or(Placement::NoPod)
    }

    /// The cgroup with this name in `parent`. The root, if `parent` is `None`.
    pub(super) fn child(&self, parent: Option<Watch>, name: &CStr) -> Option<Watch> {
        let Some(parent) = parent else { return self.root };
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// Whether `watch` is `below` or one of its ancestors.
    pub(super) fn is_or_holds(&self, watch: Watch, below: Option<Watch>) -> bool {
        std::iter::successors(below, |below| self.nodes.get(below)?.parent).any(|holder| holder == watch)
    }

    /// The path of `name` in `parent`, relative to the root of the tree.
    pub(super) fn path(&self, parent: Option<Watch>, name: &CStr) -> PathBuf {
        let Some(parent) = parent else { return PathBuf::new() };
        let holders = std::iter::successors(self.nodes.get(&parent), |node| self.nodes.get(&node.parent?));
        let mut names: Vec<_> = holders.map(|node| &*node.name).collect();
        names.reverse();
        names.push(name);
        names.into_iter().map(|name| Path::new(OsStr::from_bytes(name.to_bytes()))).collect()
    }

    /// Adds a cgroup. The tree must contain its parent, and must not contain its watch.
    pub(super) fn insert(
        &mut self,
        watch: Watch,
        id: u64,
        (parent, name): (Option<Watch>, Arc<CStr>),
        resolved: Placement,
        walk: u64,
    ) {
        let (mut pod, mut depth) = (None, 0);
        match parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => {
                parent.children.insert(Arc::clone(&name), watch);
                (pod, depth) = (parent.pod, parent.depth + 1);
            }
            None => self.root = Some(watch),
        }
        if let Some(pod) = pod.and_then(|pod| self.nodes.get_mut(&pod)) {
            pod.in_pod += 1;
        } else if matches!(&resolved, Placement::Pod(cgroup) if cgroup.pod_uid.is_some()) {
            pod = Some(watch);
        }
        self.by_id.insert(id, Entry { resolved, watch: Some(watch) });
        let children = BTreeMap::new();
        self.nodes.insert(watch, Node { id, depth, parent, name, children, pod, in_pod: 0, walk });
    }

    /// Removes a cgroup and all below it. Returns their watches.
    pub(super) fn remove(&mut self, watch: Watch) -> Vec<Watch> {
        if let Some(node) = self.nodes.get(&watch) {
            let (parent, name) = (node.parent, Arc::clone(&node.name));
            match parent.and_then(|parent| self.nodes.get_mut(&parent)) {
                Some(parent) => drop(parent.children.remove(&name)),
                None => self.root = None,
            }
        }
        let mut removed = vec![watch];
        let mut next = 0;
        while let Some(&watch) = removed.get(next) {
            next += 1;
            let Some(node) = self.nodes.remove(&watch) else { continue };
            removed.extend(node.children.into_values());
            if let Some(pod) = node.pod.and_then(|pod| self.nodes.get_mut(&pod)) {
                pod.in_pod -= 1;
            }
            // Another cgroup may have the ID by now.
            if let Some(entry) = self.by_id.get_mut(&node.id)
                && entry.watch == Some(watch)
            {
                entry.watch = None;
                self.just_removed.push(node.id);
            }
        }
        removed
    }

    /// Notes that this walk has seen the cgroup.
    pub(super) fn see(&mut self, watch: Watch, walk: u64) {
        if let Some(node) = self.nodes.get_mut(&watch) {
            node.walk = walk;
        }
    }

    /// The cgroups that this walk has not seen.
    pub(super) fn unseen(&self, walk: u64) -> Vec<Watch> {
        self.nodes.iter().filter(|(_, node)| node.walk != walk).map(|(watch, _)| *watch).collect()
    }

    /// Forgets removed cgroups `keep` after their removal, and earlier if there are more than `most`.
    pub(super) fn expire(&mut self, now: Duration, keep: Duration, most: usize) {
        let until = now.saturating_add(keep);
        self.removed.extend(self.just_removed.drain(..).map(|id| (until, id)));
        while let Some(&(until, id)) = self.removed.front() {
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
