//! How a resolver finds cgroups: it walks the directories, and inotify tells what has changed since. These are private
//! methods of [`CgroupResolver`]; the public ones, in `cgroup`, call them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::cgroup::LastScan;
use super::error::ResolveError;
use super::read::is_gone;
use super::tree::{Node, Watch};
use super::{CgroupResolver, Placement};

/// The events to watch for: entries created in a directory and removed from it. Follows no symbolic link.
const HEARD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

/// The most cgroups above one another.
const DEEPEST: usize = 16;

impl CgroupResolver {
    /// Finds every cgroup, and removes those that no longer exist.
    pub(super) fn scan(&mut self) {
        let start = self.options.clock.now();
        self.scans += 1;
        self.problem = None;
        self.is_stale = false;
        self.enter(Path::new(""));
        for path in self.tree.unseen(self.scans) {
            self.remove(&path);
        }
        let end = self.options.clock.now();
        self.last_scan = LastScan { ended: end, took: end.saturating_sub(start) };
    }

    /// Applies an event of a watched directory.
    pub(super) fn apply(&mut self, event: &inotify::Event<'_>) {
        let what = event.events();
        self.is_stale |= what.contains(ReadFlags::QUEUE_OVERFLOW);
        let Some(path) = self.tree.path(event.wd()).cloned() else { return };
        if what.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT | ReadFlags::DELETE_SELF) {
            // If the root is gone, the tree must be scanned again.
            self.is_stale |= path.as_os_str().is_empty();
            return self.remove(&path);
        }
        let Some(name) = event.file_name().filter(|_| what.contains(ReadFlags::ISDIR)) else { return };
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.enter(&path);
        } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.remove(&path);
        }
    }

    fn remove(&mut self, path: &Path) {
        let until = self.options.clock.now().saturating_add(self.options.keep_removed);
        for watch in self.tree.remove(path, until) {
            // The kernel has removed the watches of removed directories by itself.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Adds a directory and all below it, and notes the first problem.
    fn enter(&mut self, below: &Path) {
        if let Err(problem) = self.try_to_enter(below) {
            self.problem.get_or_insert(problem);
        }
    }

    /// A directory that is gone is no error.
    fn try_to_enter(&mut self, below: &Path) -> Result<(), ResolveError> {
        let path = self.full_path(below);
        if self.tree.node(below).is_none() {
            self.check_limits(below, &path)?;
        }
        let Some(opened) = open_directory(&path, below)? else { return Ok(()) };
        self.check_file_system(&opened, below, &path)?;
        if !self.follow(below, &path, opened.id)? {
            return Ok(());
        }
        let unreadable = |error: Errno| ResolveError::unreadable(&path, &error.into());
        for entry in Dir::new(opened.directory).map_err(unreadable)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if is_gone(error) => break,
                Err(error) => return Err(unreadable(error)),
            };
            let name = entry.file_name();
            let is_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if is_directory && name != c"." && name != c".." {
                self.enter(&below.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
        Ok(())
    }

    /// The path of a cgroup, without a slash at the end.
    fn full_path(&self, below: &Path) -> PathBuf {
        if is_root(below) { self.root.clone() } else { self.root.join(below) }
    }

    /// Only the file system of the root has cgroups whose IDs are looked up.
    fn check_file_system(&mut self, opened: &Opened, below: &Path, path: &Path) -> Result<(), ResolveError> {
        if is_root(below) {
            self.device = opened.device;
        } else if self.device != opened.device {
            let detail = "belongs to another file system, in which IDs mean other cgroups";
            return Err(ResolveError::new(path, detail));
        }
        Ok(())
    }

    /// Records the cgroup that has this ID and this path, and watches it. Returns whether to look below it: not if it is gone,
    /// or was seen already.
    fn follow(&mut self, below: &Path, path: &Path, id: u64) -> Result<bool, ResolveError> {
        let scan = self.scans;
        match self.tree.node(below) {
            Some(known) if known.id == id => {
                known.scan = scan;
                return Ok(true);
            }
            // Another cgroup had the path.
            Some(_) => self.remove(below),
            None => {}
        }
        // Set before the directory is listed, so that one that is created meanwhile causes an event.
        let Some(watch) = self.watch(path)? else { return Ok(false) };
        if let Some(other) = self.tree.path(watch).cloned() {
            if self.tree.node(&other).is_some_and(|other| other.scan == scan) {
                // A directory that is mounted below itself.
                return Ok(false);
            }
            // It was renamed while events were lost. The watches stay: they are those of the new name.
            self.tree.remove(&other, self.options.clock.now());
        }
        let placement = self.placement(below);
        self.tree.insert(below.into(), Node { id, watch, scan }, placement);
        Ok(true)
    }

    /// Watches a directory. `None` if it is gone.
    fn watch(&self, path: &Path) -> Result<Option<Watch>, ResolveError> {
        match inotify::add_watch(&self.inotify, path, HEARD) {
            Ok(watch) => Ok(Some(watch)),
            Err(error) if is_no_directory(error) => Ok(None),
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => {
                let detail = format!("cannot be watched: {}", std::io::Error::from(error));
                Err(ResolveError::new(path, detail))
            }
            Err(error) => Err(ResolveError::unreadable(path, &error.into())),
        }
    }

    /// What the path says about the pod of a cgroup.
    fn placement(&self, below: &Path) -> Placement {
        match (below.to_str(), below.parent()) {
            (Some(below), _) => self.options.roots.placement(below),
            // A container may choose any names for the cgroups below its own. A cgroup whose name is not UTF-8 has the
            // placement of its parent.
            (None, Some(parent)) => self.tree.placement(parent),
            (None, None) => Placement::NoPod,
        }
    }

    /// Whether another cgroup may be followed.
    fn check_limits(&self, below: &Path, path: &Path) -> Result<(), ResolveError> {
        let Some(parent) = below.parent() else { return Ok(()) };
        let cgroups = self.options.max_cgroups;
        let in_pod = self.options.max_in_pod;
        let detail = if below.iter().count() > DEEPEST {
            format!("is deeper than {DEEPEST} cgroups")
        } else if self.tree.len() >= cgroups {
            format!("is one of more than {cgroups} cgroups")
        } else if self.tree.in_pod(parent) > in_pod {
            format!("is one of more than {in_pod} cgroups of its pod")
        } else {
            return Ok(());
        };
        Err(ResolveError::new(path, detail))
    }
}

/// An open directory.
struct Opened {
    directory: OwnedFd,
    /// The cgroup's ID is the number of its inode.
    id: u64,
    device: u64,
}

/// Opens the directory of a cgroup. `None` if it is gone; the root must exist.
fn open_directory(path: &Path, below: &Path) -> Result<Option<Opened>, ResolveError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty()).and_then(|directory| {
        let stat = fstat(&directory)?;
        Ok(Opened { directory, id: stat.st_ino, device: stat.st_dev })
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if !is_root(below) && is_no_directory(error) => Ok(None),
        Err(error) => Err(ResolveError::unreadable(path, &error.into())),
    }
}

/// Whether a path below the root is the root itself.
fn is_root(below: &Path) -> bool {
    below.parent().is_none()
}

/// Whether a directory is gone, or something else has its name.
fn is_no_directory(error: Errno) -> bool {
    is_gone(error) || matches!(error, Errno::NOTDIR | Errno::LOOP)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use crate::process::{CgroupOptions, CgroupResolver};

    #[test]
    fn a_directory_renamed_while_events_were_lost_is_found_under_its_new_name() {
        let directory = pod_index_test_support::files::Directory::new();
        let id = |path: &str| fs::metadata(directory.at(path)).unwrap().ino();
        fs::create_dir_all(directory.at("kubepods/podold/inner")).unwrap();
        let mut resolver = CgroupResolver::new(directory.path(), CgroupOptions::default()).unwrap();
        fs::rename(directory.at("kubepods/podold"), directory.at("kubepods/podnew")).unwrap();
        // The events are in the queue; the scan does without them.
        resolver.scan();
        for path in ["kubepods/podnew", "kubepods/podnew/inner"] {
            let placement = resolver.get(id(path)).cloned().unwrap();
            assert_eq!(placement.pod().unwrap().pod_uid, Some("new".into()), "{path}");
        }
        // The watches are those of the new names.
        fs::create_dir(directory.at("kubepods/podnew/inner/later")).unwrap();
        let later = resolver.resolve(id("kubepods/podnew/inner/later"));
        assert_eq!(later.pod().unwrap().pod_uid, Some("new".into()));
    }
}
