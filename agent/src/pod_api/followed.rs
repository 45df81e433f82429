//! Resources that the agent follows on the API server, besides pods: one list and one watch each, for all clients.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use pod_index::PodUid;
use pod_index_kubelet::sources::{SourceUpdate, Updates};
use tokio::sync::watch as channel;
use tokio::task::block_in_place;

use super::collection::{Begin, Collection, Known, Reading, key};
use super::history::{History, Shown, ShownObject, State};
use super::resource::{Item, Resource};

/// What clients see of a resource, and the work that follows it on the API server.
pub(super) struct Followed {
    pub(super) collections: Vec<Arc<Collection>>,
    pub(super) following: BoxFuture<'static, ()>,
}

/// Follows a source. `tell` is told of each update.
pub(super) fn follow<K: Item>(
    of: &'static Resource,
    source: Updates<K>,
    begin: Begin<'_>,
    tell: Option<impl Fn(&SourceUpdate<K>) + Send + 'static>,
) -> Followed {
    let (collection, known) = begin.restored(of, Some(source.status()), None);
    let following = show(source, Arc::clone(&collection.history), known, tell).boxed();
    Followed { collections: vec![collection], following }
}

/// Shows what the source has, for ever.
async fn show<K: Item>(
    mut source: Updates<K>,
    history: Arc<History>,
    known: channel::Sender<Known>,
    tell: Option<impl Fn(&SourceUpdate<K>)>,
) {
    let mut status = source.status();
    loop {
        tokio::select! {
            update = source.next() => {
                let Some(update) = update else { return };
                if let Some(tell) = &tell {
                    tell(&update);
                }
                // A thousand objects take milliseconds.
                block_in_place(|| history.show(shown(update, &history.now().objects)));
                known.send_replace(Known::READ);
            }
            Ok(()) = status.changed() => {
                let problem = status.borrow_and_update().problems.first().map(|problem| problem.message.clone());
                let is_read = known.borrow().is_read();
                if let Some(problem) = problem.filter(|_| !is_read) {
                    known.send_modify(|known| known.reading = Reading::Failed(problem));
                }
            }
        }
    }
}

/// What to show after an update. `objects`: those before it.
fn shown<K: Item>(update: SourceUpdate<K>, objects: &State) -> Vec<Shown> {
    let put = |object: Arc<K>| Shown {
        key: key(object.metadata()),
        object: Some(ShownObject { item: object, is_in_kubelet_view: true }),
    };
    let remove = |key: &Arc<str>| Shown { key: Arc::clone(key), object: None };
    match update {
        SourceUpdate::Upsert(changed) | SourceUpdate::Incomplete(changed) => {
            changed.into_iter().map(put).collect()
        }
        SourceUpdate::Set(all) => {
            let mut shown: Vec<_> = all.into_iter().map(put).collect();
            let there: HashSet<_> = shown.iter().map(|shown| Arc::clone(&shown.key)).collect();
            shown.extend(objects.keys().filter(|key| !there.contains(*key)).map(remove));
            shown
        }
        SourceUpdate::Remove(uids) => {
            let uids: HashSet<_> = uids.into_iter().collect();
            // A newer object with the name has another UID.
            let is_gone = |uid: &str| uids.contains(&PodUid::from(uid));
            let gone = objects.iter().filter(|(_, object)| {
                object.current().is_some_and(|object| object.metadata().uid.as_deref().is_some_and(is_gone))
            });
            gone.map(|(key, _)| remove(key)).collect()
        }
    }
}
