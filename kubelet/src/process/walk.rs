//! Walks cgroupfs and watches each cgroup that it finds.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::Placement;
use super::error::{ResolveError, ResolveErrorKind};
use super::read::is_gone;
use super::roots::Roots;
use super::tree::{Tree, Watch};

/// The events to watch for: entries created in a directory and removed from it. Follows no symbolic link.
const HEARD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

/// How far to walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) depth: usize,
    pub(super) cgroups: usize,
    pub(super) in_pod: usize,
}

/// The known cgroups, and how to find others.
pub(super) struct Walk {
    pub(super) root: PathBuf,
    pub(super) tree: Tree,
    pub(super) limits: Limits,
    roots: Roots,
    /// The first cgroup since the start of the last scan that is not followed, and why.
    pub(super) problem: Option<ResolveError>,
    /// Events were lost.
    pub(super) is_stale: bool,
    /// Counts the scans.
    scans: u64,
    /// The file system that the root belongs to.
    device: u64,
}

/// A directory to enter: its parent, and its name there.
type Place = (Option<Watch>, Arc<CStr>);

impl Walk {
    pub(super) fn new(root: PathBuf, limits: Limits, roots: Roots) -> Self {
        Self {
            root,
            tree: Tree::default(),
            limits,
            roots,
            problem: None,
            is_stale: false,
            scans: 0,
            device: 0,
        }
    }

    /// Finds every cgroup, and removes those that no longer exist.
    pub(super) fn scan(&mut self, inotify: &OwnedFd) {
        self.scans += 1;
        (self.problem, self.is_stale) = (None, false);
        self.enter(inotify, (None, c"".into()));
        for watch in self.tree.unseen(self.scans) {
            self.remove(inotify, watch);
        }
    }

    /// Applies an event of a watched directory.
    pub(super) fn apply(&mut self, inotify: &OwnedFd, event: &inotify::Event<'_>) {
        let (watch, what) = (event.wd(), event.events());
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.is_stale = true;
        }
        if what.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT | ReadFlags::DELETE_SELF) {
            // If the root is gone, the tree must be scanned again.
            self.is_stale |= self.tree.child(None, c"") == Some(watch);
            return self.remove(inotify, watch);
        }
        let Some(name) = event.file_name() else { return };
        if !what.contains(ReadFlags::ISDIR) || self.tree.node(watch).is_none() {
            return;
        }
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.enter(inotify, (Some(watch), name.into()));
        } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM)
            && let Some(child) = self.tree.child(Some(watch), name)
        {
            self.remove(inotify, child);
        }
    }

    fn remove(&mut self, inotify: &OwnedFd, watch: Watch) {
        for watch in self.tree.remove(watch) {
            // The kernel has removed the watches of removed directories by itself.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// Adds a directory and all below it.
    fn enter(&mut self, inotify: &OwnedFd, place: Place) {
        let mut places = vec![place];
        while let Some(place) = places.pop() {
            let entered = self.enter_one(inotify, &place).and_then(|entered| {
                let Some((watch, directory)) = entered else { return Ok(()) };
                self.list(watch, &place, directory, &mut places)
            });
            if let Err(problem) = entered {
                self.problem.get_or_insert(problem);
            }
        }
    }

    /// Adds a directory, unless it is known or gone. Returns it open, to be listed. Its watch is set first, so that a
    /// directory created in it during the listing causes an event.
    fn enter_one(
        &mut self,
        inotify: &OwnedFd,
        (parent, name): &Place,
    ) -> Result<Option<(Watch, OwnedFd)>, ResolveError> {
        let below = self.tree.path(*parent, name);
        let path = self.root.join(&below);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(&path, flags, Mode::empty()).and_then(|open| Ok((fstat(&open)?, open)));
        let (stat, directory) = match opened {
            Ok(opened) => opened,
            Err(error) if parent.is_some() && is_no_directory(error) => return Ok(None),
            Err(error) => return Err(ResolveError::unreadable(&path, &error.into())),
        };
        let id = stat.st_ino;
        if parent.is_none() {
            self.device = stat.st_dev;
        } else if self.device != stat.st_dev {
            let detail = "belongs to another file system, in which IDs mean other cgroups";
            return Err(ResolveError::new(ResolveErrorKind::OtherFileSystem, &path, detail));
        }
        if let Some(known) = self.tree.child(*parent, name) {
            if self.tree.node(known).is_some_and(|node| node.id == id) {
                self.tree.see(known, self.scans);
                return Ok(Some((known, directory)));
            }
            self.remove(inotify, known);
        }
        self.check_limits(*parent, &path)?;
        let watch = match inotify::add_watch(inotify, &path, HEARD) {
            Ok(watch) => watch,
            Err(error) if is_no_directory(error) => return Ok(None),
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => {
                let detail = format!("cannot be watched: {}", std::io::Error::from(error));
                return Err(ResolveError::new(ResolveErrorKind::NoWatch, &path, detail));
            }
            Err(error) => return Err(ResolveError::unreadable(&path, &error.into())),
        };
        if self.tree.is_or_holds(watch, *parent) {
            // A directory that is mounted below itself.
            return Ok(None);
        }
        // A directory that was moved has kept its watch.
        for below in self.tree.remove(watch).into_iter().filter(|below| *below != watch) {
            let _ = inotify::remove_watch(inotify, below);
        }
        let resolved = match (below.to_str(), parent) {
            (Some(below), _) => self.roots.placement(below),
            // A container may choose any names for the cgroups below its own. A cgroup whose name is not UTF-8 has the
            // placement of its parent.
            (None, Some(parent)) => self.tree.resolved(*parent),
            (None, None) => Placement::NoPod,
        };
        self.tree.insert(watch, id, (*parent, Arc::clone(name)), resolved, self.scans);
        Ok(Some((watch, directory)))
    }

    /// Adds the subdirectories of a directory to `places`, the directories to enter.
    fn list(
        &self,
        watch: Watch,
        (parent, name): &Place,
        directory: OwnedFd,
        places: &mut Vec<Place>,
    ) -> Result<(), ResolveError> {
        let path = || self.root.join(self.tree.path(*parent, name));
        let unreadable = |error: Errno| ResolveError::unreadable(&path(), &error.into());
        // Do not store names beyond the limit. Always store those of known cgroups, so that the walk sees them.
        let room = self.limits.cgroups.saturating_sub(places.len()).min(self.room_in_pod(watch));
        let mut found = 0;
        for entry in Dir::new(directory).map_err(unreadable)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if is_gone(error) => return Ok(()),
                Err(error) => return Err(unreadable(error)),
            };
            let is_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if !is_directory || entry.file_name() == c"." || entry.file_name() == c".." {
                continue;
            }
            let is_new = self.tree.child(Some(watch), entry.file_name()).is_none();
            found += usize::from(is_new);
            if !is_new || found <= room {
                places.push((Some(watch), entry.file_name().into()));
            }
        }
        if found > room {
            let detail = format!("holds {} more cgroups than may be followed", found - room);
            return Err(ResolveError::new(ResolveErrorKind::TooMany, &path(), detail));
        }
        Ok(())
    }

    fn check_limits(&self, parent: Option<Watch>, path: &Path) -> Result<(), ResolveError> {
        let Some(parent) = parent else { return Ok(()) };
        let Limits { depth, cgroups, in_pod } = self.limits;
        let (kind, detail) = if self.tree.node(parent).is_some_and(|node| node.depth >= depth) {
            (ResolveErrorKind::TooDeep, format!("is deeper than {depth} cgroups"))
        } else if self.tree.len() >= cgroups {
            (ResolveErrorKind::TooMany, format!("is one of more than {cgroups} cgroups"))
        } else if self.room_in_pod(parent) == 0 {
            (ResolveErrorKind::TooMany, format!("is one of more than {in_pod} cgroups of its pod"))
        } else {
            return Ok(());
        };
        Err(ResolveError::new(kind, path, detail))
    }

    /// How many more cgroups may be added to the pod of this one.
    fn room_in_pod(&self, watch: Watch) -> usize {
        let pod = self.tree.node(watch).and_then(|node| self.tree.node(node.pod?));
        pod.map_or(usize::MAX, |pod| self.limits.in_pod.saturating_sub(pod.in_pod))
    }
}

/// Whether a directory is gone, or something else has its name.
fn is_no_directory(error: Errno) -> bool {
    is_gone(error) || matches!(error, Errno::NOTDIR | Errno::LOOP)
}
