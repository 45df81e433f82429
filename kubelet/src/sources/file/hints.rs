//! File events. Each is a hint that a new listing would differ.
//!
//! Hints may be lost, repeated, late or missing (network file systems, exhausted inotify instances). The
//! periodic listing makes up for that. So a problem here is never an error of the source: its status only shows
//! a problem of the kind `unhinted`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Watches a path: the directory and its parent, so that creation, removal and replacement are seen. If the
/// path does not exist, watches the nearest existing ancestor.
pub(super) struct Hints {
    path: PathBuf,
    signal: Arc<Signal>,
    armed: Option<Armed>,
}

struct Armed {
    /// Holds the watcher's threads; dropping it ends them.
    _watcher: RecommendedWatcher,
    places: Vec<Place>,
}

/// A directory and its identity: another directory may have the same name later.
#[derive(PartialEq)]
struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

/// Shared with the watcher's thread.
#[derive(Default)]
pub(super) struct Signal {
    hint: Notify,
    /// A watched directory itself has changed: its name may now refer to another directory.
    stale: AtomicBool,
}

impl Signal {
    /// Waits for a hint. All hints since the last wait count as one.
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

    /// Makes sure that later changes cause a hint. Call this *before* each listing: a change between a
    /// listing and this call would be missed until the next listing.
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
                // Events were lost; anything may have changed.
                _ => return signal.hint.notify_one(),
            };
            if is_reading(event.kind) {
                return;
            }
            let is_above = |event: &PathBuf| directories.iter().any(|directory| directory.starts_with(event));
            if event.paths.iter().any(is_above) {
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

/// The listing itself opens and reads files. If these events counted, it would trigger itself forever.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// Whether an event at one path may change the listing of another.
fn concerns(event: &Path, path: &Path) -> bool {
    // The path itself, or a parent directory.
    if path.starts_with(event) {
        return true;
    }
    let name = event.file_name().unwrap_or_default().as_encoded_bytes();
    // The link that a mounted ConfigMap swaps: all visible files there are links through `..data`.
    let swapped = name.starts_with(b"..");
    match event.parent() {
        // Other hidden files are not listed, and an editor's swap file changes with every keystroke.
        Some(parent) if parent == path => swapped || !name.starts_with(b"."),
        parent => swapped && parent == path.parent(),
    }
}

fn directory(path: &Path) -> Option<Place> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.is_dir().then(|| Place { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
}
