//! Stores a resource on disk and restores it, so that it is known after a restart without the API server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, atomic::Ordering};

use pod_index_kubelet::checkpoint::{read_list, write_list};
use serde::Deserialize;

use super::collection::{Collection, Known, key};
use super::history::History;
use super::list::List;
use super::resource::Resource;
use super::selection::Selection;
use super::shape::Form;

fn file<R: Resource>(directory: &Path) -> PathBuf {
    directory.join(format!("{}.yaml", R::URL_PATH_SEGMENT))
}

/// Stores the objects of a collection if they were read and have changed. Returns the number of bytes, and what failed.
pub(super) fn save<R: Resource>(of: &Collection<R>, directory: &Path) -> (usize, Result<(), String>) {
    let (state, version) = of.history.now();
    let is_read = of.known.as_ref().is_some_and(|known| *known.borrow() == Ok(None));
    if !is_read || of.saved.load(Ordering::Relaxed) == version {
        return (0, Ok(()));
    }
    let list: Vec<u8> = List::new(state, version, Selection::default(), Form::Marked).flatten().collect();
    let path = file::<R>(directory);
    let saved = write_list(&path, &list).map_err(|error| format!("{}: {error}", path.display()));
    if saved.is_ok() {
        of.saved.store(version, Ordering::Relaxed);
    }
    (list.len(), saved)
}

/// Shows the objects of the last run. `why` are there none, if they were not stored?
pub(super) fn restore<R: Resource>(history: &History<R>, directory: Option<&Path>, why: &str) -> Known {
    #[derive(Deserialize)]
    #[serde(bound = "")]
    struct Stored<R: Resource> {
        items: Vec<R>,
    }
    let path = file::<R>(directory.ok_or(why)?);
    let read = read_list(&path).and_then(|found| {
        let Some((json, written)) = found else { return Ok(None) };
        // The decoder's error may quote a value.
        let stored = serde_json::from_slice::<Stored<R>>(&json).map_err(|_| {
            let why = format!("it holds no list of {}", R::URL_PATH_SEGMENT);
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(Some((stored.items, written)))
    });
    let found = read.unwrap_or_else(|error| {
        tracing::error!("{}: it is not used: {error}", path.display());
        None
    });
    let (objects, written) = found.ok_or(why)?;
    let shown = |object: R| (key(object.metadata()), Some((Arc::new(object), true)));
    history.show(objects.into_iter().map(shown).collect());
    Ok(Some(written))
}
