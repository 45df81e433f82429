//! How a resolver finds cgroups: it walks the directories, and inotify tells what has changed since. These are private
//! methods of [`CgroupResolver`]; the public ones, in `cgroup`, call them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::error::ResolveError;
use super::read::is_gone;
use super::tree::Node;
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
        (self.problem, self.is_stale) = (None, false);
        self.enter(Path::new(""));
        for path in self.tree.unseen(self.scans) {
            self.remove(&path);
        }
        let end = self.options.clock.now();
        self.scanned = (end, end.saturating_sub(start));
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
        let parent = below.parent();
        // Without a slash at the end.
        let path = parent.map_or_else(|| self.root.clone(), |_| self.root.join(below));
        let unreadable = |error: Errno| ResolveError::unreadable(&path, &error.into());
        if self.tree.node(below).is_none() {
            self.check_limits(below, &path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(&path, flags, Mode::empty()).and_then(|open| Ok((fstat(&open)?, open)));
        let (stat, directory) = match opened {
            Ok(opened) => opened,
            Err(error) if parent.is_some() && is_no_directory(error) => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        if parent.is_none() {
            self.device = stat.st_dev;
        } else if self.device != stat.st_dev {
            let detail = "belongs to another file system, in which IDs mean other cgroups";
            return Err(ResolveError::new(&path, detail));
        }
        let (id, scan) = (stat.st_ino, self.scans);
        match self.tree.node(below) {
            Some(known) if known.id == id => known.scan = scan,
            known => {
                if known.is_some() {
                    self.remove(below);
                }
                // Set before the directory is listed, so that one that is created meanwhile causes an event.
                let watch = match inotify::add_watch(&self.inotify, &path, HEARD) {
                    Ok(watch) => watch,
                    Err(error) if is_no_directory(error) => return Ok(()),
                    Err(error @ (Errno::NOSPC | Errno::NOMEM)) => {
                        let detail = format!("cannot be watched: {}", std::io::Error::from(error));
                        return Err(ResolveError::new(&path, detail));
                    }
                    Err(error) => return Err(unreadable(error)),
                };
                if let Some(other) = self.tree.path(watch).cloned() {
                    if self.tree.node(&other).is_some_and(|other| other.scan == scan) {
                        // A directory that is mounted below itself.
                        return Ok(());
                    }
                    // It was renamed while events were lost. The watches stay: they are those of the new name.
                    self.tree.remove(&other, self.options.clock.now());
                }
                let resolved = match (below.to_str(), parent) {
                    (Some(below), _) => self.options.roots.placement(below),
                    // A container may choose any names for the cgroups below its own. A cgroup whose name is not
                    // UTF-8 has the placement of its parent.
                    (None, Some(parent)) => self.tree.placement(parent),
                    (None, None) => Placement::NoPod,
                };
                self.tree.insert(below.into(), Node { id, watch, scan }, resolved);
            }
        }
        for entry in Dir::new(directory).map_err(unreadable)? {
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

    /// Whether another cgroup may be followed.
    fn check_limits(&self, below: &Path, path: &Path) -> Result<(), ResolveError> {
        let Some(parent) = below.parent() else { return Ok(()) };
        let (cgroups, in_pod) = (self.options.max_cgroups, self.options.max_in_pod);
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
