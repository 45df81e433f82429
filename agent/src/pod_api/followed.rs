//! Resources that the agent follows on the API server, besides pods: one list and one watch each, for all clients.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use pod_index::PodUid;
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::sources::api_server::ApiServerSource;
use tokio::sync::watch as channel;
use tokio::task::block_in_place;
use tokio::time::interval;

use super::collection::{Begin, Collection, Known, Origin, key};
use super::history::{History, Shown, uid};
use super::resource::{Item, Resource};

/// Interval between checks of the events' age.
const AGING: Duration = Duration::from_secs(10);

/// The collection of a source, and the work that follows the source.
pub(super) fn follow<K: Item>(
    of: &'static Resource,
    source: ApiServerSource<K>,
    begin: Begin<'_>,
) -> (Vec<Arc<Collection>>, BoxFuture<'static, ()>) {
    let (history, known) = begin.restored(of);
    let origin = Origin::Server { known: known.subscribe(), status: Some(source.status()) };
    let collection = Collection::new(Arc::clone(&history), origin);
    (vec![collection], show(source, history, known).boxed())
}

/// Shows what the source has, for ever.
async fn show<K: Item>(mut source: ApiServerSource<K>, history: Arc<History>, known: channel::Sender<Known>) {
    let mut keys = HashMap::<PodUid, Arc<str>>::new();
    let mut status = source.status();
    let mut aging = interval(AGING);
    loop {
        tokio::select! {
            update = source.next() => {
                let Some(update) = update else { return };
                // A thousand objects take milliseconds.
                block_in_place(|| history.show(shown(update, &mut keys, &history)));
                known.send_replace(Known::READ);
            }
            Ok(()) = status.changed() => {
                let problem = status.borrow_and_update().problems.first().map(|problem| problem.message().to_string());
                known.send_if_modified(|known| {
                    let is_news = problem.is_some() && !matches!(known.read, Some(Ok(())));
                    if is_news {
                        known.read = problem.map(Err);
                    }
                    is_news
                });
            }
            _ = aging.tick() => history.age(),
        }
    }
}

/// The objects to show after an update. `keys` are the keys of all objects.
fn shown<K: Item>(
    update: SourceUpdate<K>,
    keys: &mut HashMap<PodUid, Arc<str>>,
    history: &History,
) -> Vec<Shown> {
    let (state, _) = history.now();
    let mut put = |objects: Vec<Arc<K>>| -> Vec<Shown> {
        let put = |object: Arc<K>| {
            let metadata = object.metadata();
            let key = key(metadata);
            keys.insert(PodUid::from(metadata.uid.as_deref().unwrap_or_default()), Arc::clone(&key));
            (key, Some((object as Arc<dyn Item>, true)))
        };
        objects.into_iter().map(put).collect()
    };
    match update {
        SourceUpdate::Upsert(objects) => put(objects),
        SourceUpdate::Set(objects) => {
            let mut shown = put(objects);
            let there: HashSet<_> = shown.iter().map(|(key, _)| Arc::clone(key)).collect();
            keys.retain(|_, key| there.contains(key));
            let gone = state.keys().filter(|key| !there.contains(*key));
            shown.extend(gone.map(|key| (Arc::clone(key), None)));
            shown
        }
        SourceUpdate::Remove(uids) => {
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
