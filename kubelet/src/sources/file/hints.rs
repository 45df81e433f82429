//! File events, taken as hints that a listing would show something new.
//!
//! Hints may be lost, doubled, late or missing altogether (network file systems, no more inotify instances); the
//! listing every so often makes up for it. So nothing here is ever an error to the source, only a word in its status.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Watches whatever there is to watch about a path: the directory, and the one it lies in, so that its coming, its
/// going and its replacement are seen; or else the nearest ancestor that exists.
pub(super) struct Hints {
    path: PathBuf,
    signal: Arc<Signal>,
    armed: Option<Armed>,
}

struct Armed {
    /// Held for its threads; dropping it ends them.
    _watcher: RecommendedWatcher,
    places: Vec<Place>,
}

/// A directory, and which one: another one may bear its name tomorrow.
#[derive(PartialEq)]
struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

/// Shared with the watcher's thread.
#[derive(Default)]
pub(super) struct Signal {
    hint: Notify,
    /// A watched directory itself has changed: what is watched may no longer be what bears the name.
    stale: AtomicBool,
}

impl Signal {
    /// Waits for a hint; those given since the last wait count, as one.
    pub(super) async fn hint(&self) {
        self.hint.notified().await;
    }
}

impl Hints {
    pub(super) fn new(path: &Path) -> Self {
        // Events carry absolute paths.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, signal: Arc::default(), armed: None }
    }

    pub(super) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.signal)
    }

    /// Sees to it that what happens from now on is hinted at. To be called *before* each listing: between a listing
    /// and an arming, a change would go unseen until the next listing.
    pub(super) fn arm(&mut self) -> notify::Result<()> {
        let places = self.places();
        let stale = self.signal.stale.swap(false, Ordering::AcqRel);
        if !stale && self.armed.as_ref().is_some_and(|armed| armed.places == places) {
            return Ok(());
        }
        self.armed = None;
        let signal = Arc::clone(&self.signal);
        let path = self.path.clone();
        let directories: Vec<_> = places.iter().map(|place| place.path.clone()).collect();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let event = match event {
                Ok(event) if !event.need_rescan() => event,
                // Events were lost; anything may have happened.
                _ => return signal.hint.notify_one(),
            };
            if is_reading(event.kind) {
                return;
            }
            if event
                .paths
                .iter()
                .any(|event| directories.iter().any(|directory| directory.starts_with(event)))
            {
                signal.stale.store(true, Ordering::Release);
            }
            if event.paths.iter().any(|event| concerns(event, &path)) {
                signal.hint.notify_one();
            }
        })?;
        for place in &places {
            watcher.watch(&place.path, RecursiveMode::NonRecursive)?;
        }
        self.armed = Some(Armed { _watcher: watcher, places });
        Ok(())
    }

    fn places(&self) -> Vec<Place> {
        let parent = self.path.parent().into_iter().flat_map(Path::ancestors).find_map(directory);
        directory(&self.path).into_iter().chain(parent).collect()
    }
}

/// The listing itself opens and reads: to answer that with another listing would never end.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// Whether an event at one path may change what another one lists.
fn concerns(event: &Path, path: &Path) -> bool {
    // The path itself, or a directory it lies in.
    if path.starts_with(event) {
        return true;
    }
    let name = event.file_name().unwrap_or_default().as_encoded_bytes();
    // What a mounted ConfigMap swaps: every visible file there is a link through `..data`.
    let swapped = name.starts_with(b"..");
    match event.parent() {
        // Other hidden names are not listed, and an editor's swap file changes with every key.
        Some(parent) if parent == path => swapped || !name.starts_with(b"."),
        parent => swapped && parent == path.parent(),
    }
}

fn directory(path: &Path) -> Option<Place> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.is_dir().then(|| Place { path: path.to_owned(), identity: identity(&metadata) })
}

#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> (u64, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use notify::event::{AccessKind, AccessMode, CreateKind, EventKind};

    use super::{concerns, is_reading};

    #[test]
    fn what_the_listing_does_itself_is_no_hint() {
        let access = |kind| is_reading(EventKind::Access(kind));
        assert!(access(AccessKind::Open(AccessMode::Any)));
        assert!(access(AccessKind::Close(AccessMode::Read)));
        assert!(!access(AccessKind::Close(AccessMode::Write)));
        assert!(!is_reading(EventKind::Create(CreateKind::File)));
    }

    #[test]
    fn events_count_by_what_they_may_change_in_the_listing() {
        for (event, path, counts) in [
            ("/m/web.yaml", "/m", true),
            ("/m", "/m", true),
            ("/", "/m", true),
            ("/m/..data", "/m", true),
            ("/m/.web.yaml.swp", "/m", false),
            ("/m/deeper/web.yaml", "/m", false),
            ("/other", "/m", false),
            ("/mm", "/m", false),
            ("/a", "/a/b/m", true),
            ("/a/x", "/a/b/m", false),
            ("/m/web.yaml", "/m/web.yaml", true),
            ("/m/other.yaml", "/m/web.yaml", false),
            ("/m/..data", "/m/web.yaml", true),
        ] {
            assert_eq!(concerns(Path::new(event), Path::new(path)), counts, "{event} for {path}");
        }
    }
}
