//! File events. Each is a hint that a new listing would differ.
//!
//! Hints may be lost, repeated, late or missing (network file systems, exhausted inotify instances). The
//! periodic listing makes up for that. So a problem here is never an error of the source: its status only shows
//! a problem of the kind `unhinted`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Watches a path: the directory and its parent, so that creation, removal and replacement are seen. If the path does not
/// exist, watches the nearest existing ancestor. All hints since the last wait count as one.
pub(super) struct Hints {
    path: PathBuf,
    hint: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    /// What is watched now.
    places: Vec<PathBuf>,
}

impl Hints {
    pub(super) fn new(path: &Path, hint: Arc<Notify>) -> Self {
        // Events carry absolute paths.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, hint, watcher: None, places: Vec::new() }
    }

    /// Call this *before* each listing: a change between a listing and this call would be missed until the next listing.
    /// A name may refer to another directory each time.
    pub(super) fn watch(&mut self) -> notify::Result<()> {
        let watched = self.watch_places();
        if watched.is_err() {
            // Its thread may have ended. The next call makes a new one.
            self.watcher = None;
        }
        watched
    }

    fn watch_places(&mut self) -> notify::Result<()> {
        let path = &self.path;
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(watcher(path.clone(), Arc::clone(&self.hint))?),
        };
        for place in self.places.drain(..) {
            // It may be gone.
            let _ = watcher.unwatch(&place);
        }
        let parent = path.parent().into_iter().flat_map(Path::ancestors).find(|path| path.is_dir());
        for place in path.is_dir().then_some(&**path).into_iter().chain(parent) {
            watcher.watch(place, RecursiveMode::NonRecursive)?;
            self.places.push(place.to_owned());
        }
        Ok(())
    }
}

/// A watcher that gives a hint at each event that concerns the path.
fn watcher(path: PathBuf, hint: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let concerns_path = move |event: &Event| event.paths.iter().any(|event| concerns(event, &path));
    // If events were lost, anything may have changed.
    let is_hint = move |event: &Event| event.need_rescan() || !is_reading(event.kind) && concerns_path(event);
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.as_ref().map_or(true, &is_hint) {
            hint.notify_one();
        }
    })
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
