//! Resources that the agent follows on the API server, besides pods: one list and one watch each, for all clients.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use pod_index::PodUid;
use pod_index_kubelet::sources::{SourceUpdate, Updates};
use tokio::sync::watch as channel;
use tokio::task::block_in_place;

use super::collection::{Collection, Origin, Read, key};
use super::history::{History, Shown, State, uid};
use super::object::Object;
use super::resource::Item;

/// The collection of a source, and the work that follows the source, for ever.
pub(super) fn follow<K: Item>(
    source: Updates<K>,
    history: Arc<History>,
) -> (Arc<Collection>, impl Future<Output = ()> + Send) {
    let (reads, read) = channel::channel(None);
    let origin = Origin::Server { read, status: Some(source.status()) };
    (Collection::new(Arc::clone(&history), origin), show(source, history, reads))
}

async fn show<K: Item>(mut source: Updates<K>, history: Arc<History>, reads: channel::Sender<Read>) {
    let mut status = source.status();
    loop {
        tokio::select! {
            update = source.next() => {
                let Some(update) = update else { return };
                // A thousand objects take milliseconds.
                block_in_place(|| history.show(shown(update, history.now())));
                reads.send_replace(Some(Ok(())));
            }
            Ok(()) = status.changed() => {
                let problem = status.borrow_and_update().problems.first().map(|problem| problem.message.clone());
                if let Some(why) = problem && !matches!(*reads.borrow(), Some(Ok(()))) {
                    reads.send_replace(Some(Err(why)));
                }
            }
        }
    }
}

/// The objects to show after an update.
fn shown<K: Item>(update: SourceUpdate<K>, (state, _): (State, u64)) -> Vec<Shown> {
    let put = |object: Arc<K>| (key(object.metadata()), Some((object as Arc<dyn Item>, true)));
    match update {
        SourceUpdate::Upsert(objects) => objects.into_iter().map(put).collect(),
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
            let is_gone =
                |object: &Object| uid(object).is_some_and(|uid| uids.contains(&PodUid::from(&*uid)));
            let gone = state.iter().filter(|(_, object)| is_gone(object));
            gone.map(|(key, _)| (Arc::clone(key), None)).collect()
        }
    }
}
