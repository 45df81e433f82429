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
use super::history::{History, Shown, State};
use super::resource::{Item, Resource};

/// The collection of a source, and the work that follows the source. `tell` is told of each update.
pub(super) fn follow<K: Item>(
    of: &'static Resource,
    source: Updates<K>,
    begin: Begin<'_>,
    tell: Option<impl Fn(&SourceUpdate<K>) + Send + 'static>,
) -> (Vec<Arc<Collection>>, BoxFuture<'static, ()>) {
    let (collection, known) = begin.restored(of, Some(source.status()), None);
    let following = show(source, Arc::clone(&collection.history), known, tell).boxed();
    (vec![collection], following)
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
                block_in_place(|| history.show(shown(update, history.now())));
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

/// The objects to show after an update.
fn shown<K: Item>(update: SourceUpdate<K>, (state, _): (State, u64)) -> Vec<Shown> {
    let put = |object: Arc<K>| (key(object.metadata()), Some((object as Arc<dyn Item>, true)));
    match update {
        SourceUpdate::Upsert(objects) | SourceUpdate::Incomplete(objects) => {
            objects.into_iter().map(put).collect()
        }
        SourceUpdate::Set(objects) => {
            let mut shown: Vec<_> = objects.into_iter().map(put).collect();
            let there: HashSet<_> = shown.iter().map(|(key, _)| Arc::clone(key)).collect();
            let gone = state.keys().filter(|key| !there.contains(*key));
            shown.extend(gone.map(|key| (Arc::clone(key), None)));
            shown
        }
        SourceUpdate::Remove(uids) => {
            let uids: HashSet<_> = uids.into_iter().collect();
            // A newer object with the name has another UID.
            let is_gone = |uid: &str| uids.contains(&PodUid::from(uid));
            let gone = state.iter().filter(|(_, object)| {
                object.current().is_some_and(|object| object.metadata().uid.as_deref().is_some_and(is_gone))
            });
            gone.map(|(key, _)| (Arc::clone(key), None)).collect()
        }
    }
}
