//! Stores resources on disk and restores them, so that they are known after a restart without the API server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use pod_index_kubelet::checkpoint::{read_list, write_list};
use pod_index_kubelet::sources::SourceStatus;
use prometheus_client::metrics::gauge::Gauge;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch as channel;

use super::asked::Asked;
use super::collection::{Begin, Collection, Known, Origin, key};
use super::history::{History, Now, Shown, ShownObject};
use super::list::list;
use super::resource::Resource;
use super::shape::Form;
use crate::metrics::number;

/// The pause after a pass, once more for each 256 KiB written, with success or without: large lists that change often do
/// not wear out the disk.
const PAUSE: Duration = Duration::from_secs(2);

/// Stores lists for ever, in a thread of its own: a disk that hangs must hold up nothing else.
pub(super) struct Keeper {
    pub(super) served: Vec<Arc<Collection>>,
    pub(super) directory: PathBuf,
    /// The number of lists whose files are missing or outdated because of an error.
    pub(super) problems: Gauge,
}

impl Keeper {
    /// The name of its thread.
    pub(super) const NAME: &'static str = "list files";

    pub(super) fn run(self) {
        let Self { served, directory, problems } = self;
        let mut last = Pass::default();
        let mut saved = vec![0; served.len()];
        loop {
            sleep(PAUSE * (1 + u32::try_from(last.bytes >> 18).unwrap_or(u32::MAX / 2)));
            let done = pass(&served, &directory, &mut saved);
            if let Some(why) = done.why.as_ref().filter(|_| done.why != last.why) {
                tracing::warn!("a list cannot be written: {why}");
            }
            problems.set(number(done.failed));
            last = done;
        }
    }
}

/// What came of writing all lists once.
#[derive(Default)]
struct Pass {
    /// Of failed attempts, too.
    bytes: usize,
    /// The number of lists that could not be written.
    failed: usize,
    /// The first error.
    why: Option<String>,
}

/// Stores each list that was read and has changed. `saved`: the versions on disk.
fn pass(served: &[Arc<Collection>], directory: &Path, saved: &mut [u64]) -> Pass {
    let mut done = Pass::default();
    for (served, saved) in served.iter().zip(saved) {
        // Asked first: an earlier state may be incomplete.
        let is_read = served.known() == Some(Known::READ);
        let Now { objects, version } = served.history.now();
        if !is_read || *saved == version {
            continue;
        }
        let list: Vec<u8> =
            list(served.of(), version, objects.values(), Form::KubeletObject).flatten().collect();
        done.bytes += list.len();
        let path = file(served.of(), directory);
        match write_list(&path, &list) {
            Ok(()) => *saved = version,
            Err(error) => {
                done.failed += 1;
                done.why = done.why.or_else(|| Some(format!("{}: {error}", path.display())));
            }
        }
    }
    done
}

fn file(of: &Resource, directory: &Path) -> PathBuf {
    directory.join(format!("{}.yaml", of.name))
}

impl Begin<'_> {
    /// A collection of objects of the API server, and what is known of them. Shows those of the last run.
    pub(super) fn restored(
        self,
        of: &'static Resource,
        status: Option<channel::Receiver<SourceStatus>>,
        asked: Option<Asked>,
    ) -> (Arc<Collection>, channel::Sender<Known>) {
        let history = self.history(of);
        let path = self.directory.map(|directory| file(of, directory));
        let stored = path.and_then(|path| {
            restore(&history, &path).unwrap_or_else(|error| {
                tracing::error!("{}: it is not used: {error}", path.display());
                None
            })
        });
        let known = channel::Sender::new(Known::stored(stored));
        let origin = Origin::Server { known: known.subscribe(), status, asked };
        (Arc::new(Collection { history, origin }), known)
    }
}

/// Shows the objects of the last run. Returns when they were stored, if they were.
fn restore(history: &History, path: &Path) -> io::Result<Option<SystemTime>> {
    #[derive(Deserialize)]
    struct Stored<'a> {
        kind: String,
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let Some((json, written)) = read_list(path)? else { return Ok(None) };
    let of = history.of;
    let shown = |item: &&RawValue| {
        let object = (of.decode)(item.get().as_bytes()).ok()?;
        let key = key(object.metadata());
        Some(Shown { key, object: Some(ShownObject { item: object, is_in_kubelet_view: true }) })
    };
    let stored = serde_json::from_slice::<Stored>(&json).ok();
    let stored = stored.filter(|stored| stored.kind.strip_suffix("List") == Some(of.kind));
    let shown = stored.and_then(|stored| stored.items.iter().map(shown).collect());
    // Without the decoder's error, which may quote a value.
    let why = || io::Error::new(io::ErrorKind::InvalidData, format!("it holds no list of {}", of.name));
    history.show(shown.ok_or_else(why)?);
    Ok(Some(written))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use k8s_openapi::api::core::v1::{Namespace, Node};

    use super::super::cluster::{NAMESPACES, NODES};
    use super::super::resource::Item;
    use super::super::watch_limits::WatchLimits;
    use super::*;
    use crate::config::values::MostWatches;

    /// What to show for the cluster's object of this name.
    fn shown(name: &str, item: Option<Arc<dyn Item>>) -> Shown {
        let object = item.map(|item| ShownObject { item, is_in_kubelet_view: true });
        Shown { key: format!("/{name}").into(), object }
    }

    #[test]
    fn a_list_that_is_too_large_for_a_file_is_named_keeps_its_old_file_and_stops_no_other() {
        let directory = std::env::temp_dir().join(format!("pod-index-large-list-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let watch_limits = WatchLimits::of(MostWatches { of_all: 1, of_client: 1 });
        let begin = Begin { version: 1, watch_limits: &watch_limits, directory: Some(&directory) };
        let served = [&NAMESPACES, &NODES].map(|of| {
            let (collection, known) = begin.restored(of, None, None);
            known.send_replace(Known::READ);
            collection
        });
        let named = |name: &str, filler: usize| {
            let mut object = Namespace::default();
            object.metadata.name = Some(name.to_owned());
            object.metadata.annotations = Some([("filler".to_owned(), "x".repeat(filler))].into());
            shown(name, Some(Arc::new(object)))
        };
        served[0].history.show(vec![named("first", 1)]);
        let mut saved = [0; 2];
        assert_eq!(pass(&served, &directory, &mut saved).why, None);
        let first = fs::read(directory.join("namespaces.yaml")).unwrap();
        // Together more than the 64 MiB that are read again.
        served[0].history.show((0..65).map(|n| named(&n.to_string(), 1 << 20)).collect());
        let mut node = Node::default();
        node.metadata.name = Some("node-1".to_owned());
        served[1].history.show(vec![shown("node-1", Some(Arc::new(node)))]);
        let Pass { bytes, failed, why } = pass(&served, &directory, &mut saved);
        assert_eq!(failed, 1);
        let why = why.unwrap();
        assert!(why.contains("namespaces.yaml: ") && why.contains("64 MiB"), "{why}");
        assert!(bytes > 64 << 20, "the next pass waits for long");
        assert!(fs::read(directory.join("namespaces.yaml")).unwrap() == first);
        assert!(fs::read_to_string(directory.join("nodes.yaml")).unwrap().contains("node-1"));
        let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(files.count(), 2, "nothing half written is left");
        served[0].history.show((1..65).map(|n| shown(&n.to_string(), None)).collect());
        let Pass { failed, why, .. } = pass(&served, &directory, &mut saved);
        assert_eq!((failed, why), (0, None), "it fits again");
        fs::remove_dir_all(&directory).unwrap();
    }
}
