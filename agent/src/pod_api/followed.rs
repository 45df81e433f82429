//! Resources that the agent follows on the API server, besides pods: one list and one watch each, for all clients.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use pod_index::PodUid;
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::sources::api_server::ApiServerSource;
use tokio::sync::watch as channel;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::collection::{Collection, Known, history, key};
use super::history::{History, Shown, uid};
use super::keep::restore;
use super::resource::Resource;
use super::seats::Seats;
use super::served::Served;
use super::status::Refusal;

/// Interval between checks of the events' age.
const AGING: Duration = Duration::from_secs(10);
/// How long a request waits for the first list. Fluent Bit asks once for a Namespace and remembers a refusal.
const START: Duration = Duration::from_secs(5);

/// The collection of a source, and the work that follows the source.
pub(super) fn follow<R: Resource>(
    source: ApiServerSource<R>,
    version: u64,
    seats: &Arc<Seats>,
    directory: Option<&Path>,
) -> (Vec<Arc<dyn Served>>, BoxFuture<'static, ()>) {
    let history = history::<R>(version, seats);
    let (read, known) = channel::channel(restore(&history, directory, ""));
    let status = source.status();
    let shown = status.clone();
    let followed = known.clone();
    let current = move |_| {
        let (mut known, mut status) = (known.clone(), status.clone());
        async move {
            let read = async { known.wait_for(|known| *known == Ok(None)).await.is_ok() };
            let failed = async { status.wait_for(|status| !status.problems.is_empty()).await.is_ok() };
            let is_read = tokio::select! {
                biased;
                is_read = read => is_read,
                _ = failed => false,
                () = sleep(START) => false,
            };
            if is_read || known.borrow().is_ok() {
                return Ok(());
            }
            let why = status.borrow().problems.first().map(|problem| format!(": {}", problem.message()));
            let why = why.unwrap_or_default();
            Err(Refusal::unavailable(format!("{} have not been read yet{why}", R::URL_PATH_SEGMENT)))
        }
        .boxed()
    };
    let collection = Collection::new(Arc::clone(&history), Box::new(current), Some(shown), Some(followed));
    (vec![collection], keep(source, history, read).boxed())
}

/// Shows what the source has, for ever.
async fn keep<R: Resource>(
    mut source: ApiServerSource<R>,
    history: Arc<History<R>>,
    read: channel::Sender<Known>,
) {
    let mut keys = HashMap::<PodUid, Arc<str>>::new();
    loop {
        let update = tokio::select! {
            update = source.next() => update,
            () = sleep(AGING) => {
                history.age();
                continue;
            }
        };
        let Some(update) = update else { return };
        // A thousand objects take milliseconds.
        block_in_place(|| history.show(shown(update, &mut keys, &history)));
        let _ = read.send_replace(Ok(None));
    }
}

/// The objects to show after an update. `keys` are the keys of all objects.
fn shown<R: Resource>(
    update: SourceUpdate<R>,
    keys: &mut HashMap<PodUid, Arc<str>>,
    history: &History<R>,
) -> Vec<Shown<R>> {
    let mut put = |objects: Vec<Arc<R>>| -> Vec<Shown<R>> {
        let put = |object: Arc<R>| {
            let metadata = object.metadata();
            let key = key(metadata);
            keys.insert(PodUid::from(metadata.uid.as_deref().unwrap_or_default()), Arc::clone(&key));
            (key, Some((object, true)))
        };
        objects.into_iter().map(put).collect()
    };
    match update {
        SourceUpdate::Upsert(objects) => put(objects),
        SourceUpdate::Set(objects) => {
            let mut shown = put(objects);
            let there: HashSet<_> = shown.iter().map(|(key, _)| Arc::clone(key)).collect();
            keys.retain(|_, key| there.contains(key));
            let (state, _) = history.now();
            let gone = state.keys().filter(|key| !there.contains(*key));
            shown.extend(gone.map(|key| (Arc::clone(key), None)));
            shown
        }
        SourceUpdate::Remove(uids) => {
            let (state, _) = history.now();
            // A newer object may already have the name.
            let is_there = |key: &Arc<str>, gone: &PodUid| {
                let there = state.get(key).and_then(|object| uid(object));
                there.map(|uid| PodUid::from(&*uid)).as_ref() == Some(gone)
            };
            let gone = uids.iter().filter_map(|gone| Some((keys.remove(gone)?, gone)));
            gone.filter(|(key, gone)| is_there(key, gone)).map(|(key, _)| (key, None)).collect()
        }
    }
}
