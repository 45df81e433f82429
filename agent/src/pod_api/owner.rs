//! Owners of pods as resources of the API. Only their metadata is known, so that is all that is served; the spec and the
//! status are there for clients that cannot do without, and say nothing.

use std::any::Any;
use std::sync::Arc;

use futures_util::FutureExt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use pod_index::Reader;
use pod_index_kubelet::HasPod;
use pod_index_kubelet::owners::{
    Follower, Options, Owner, OwnerId, OwnerKind, OwnerUpdate, Owners, OwnersState,
};
use tokio::sync::watch as channel;

use super::asked::Asked;
use super::collection::{Begin, Collection, Known, Reading};
use super::followed::Followed;
use super::history::{Shown, ShownObject};
use super::resource::{Item, Resource};

/// Spec and status have the fields that any version of the schema requires, because typed clients such as Python's refuse an
/// object without them, and those that `kubectl describe` reads.
static REPLICA_SETS: Resource = owner::<ReplicaSet>(&["rs"], SCALED);
static DEPLOYMENTS: Resource = owner::<Deployment>(&["deploy"], SCALED);
static STATEFUL_SETS: Resource = owner::<StatefulSet>(&["sts"], NAMED);
static DAEMON_SETS: Resource = owner::<DaemonSet>(&["ds"], SCHEDULED);
static JOBS: Resource = owner::<Job>(&[], r#","spec":{"selector":{},"template":{}},"status":{}"#);
static CRON_JOBS: Resource =
    owner::<CronJob>(&["cj"], r#","spec":{"schedule":"","jobTemplate":{}},"status":{}"#);

const SCALED: &str = r#","spec":{"replicas":0,"selector":{},"template":{}},"status":{"replicas":0}"#;
const NAMED: &str =
    r#","spec":{"replicas":0,"selector":{},"serviceName":"","template":{}},"status":{"replicas":0}"#;
const SCHEDULED: &str = r#","spec":{"selector":{},"template":{}},"status":{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#;

const fn owner<K: k8s_openapi::Resource>(
    short_names: &'static [&'static str],
    empty: &'static str,
) -> Resource {
    Resource { short_names, empty, categories: &["all"], ..Resource::of::<K, Owner>() }
}

fn resource(kind: OwnerKind) -> &'static Resource {
    match kind {
        OwnerKind::ReplicaSet => &REPLICA_SETS,
        OwnerKind::Deployment => &DEPLOYMENTS,
        OwnerKind::StatefulSet => &STATEFUL_SETS,
        OwnerKind::DaemonSet => &DAEMON_SETS,
        OwnerKind::Job => &JOBS,
        OwnerKind::CronJob => &CRON_JOBS,
    }
}

impl Item for Owner {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The owners of one kind, as clients see them.
struct Served {
    kind: OwnerKind,
    collection: Arc<Collection>,
    known: channel::Sender<Known>,
}

impl Served {
    fn show(&self, id: &OwnerId, owner: Option<Arc<Owner>>) {
        let history = &self.collection.history;
        let key: Arc<str> = format!("{}/{}", id.namespace, id.name).into();
        // A newer object with the name has another UID.
        let is_shown = || {
            let shown = history.get(&key).and_then(|shown| shown.current());
            shown.is_some_and(|shown| shown.metadata().uid.as_deref() == Some(&*id.uid))
        };
        if owner.is_some() || is_shown() {
            let object = owner.map(|owner| ShownObject { item: owner, is_in_kubelet_view: true });
            history.show(vec![Shown { key, object }]);
        }
    }

    fn set(&self, state: OwnersState) {
        self.known.send_modify(|known| match state {
            OwnersState::Read => *known = Known::READ,
            OwnersState::Denied(why) => *known = Known { stored: None, reading: Reading::Failed(why) },
            // A kind that was read stays served if a later request fails.
            OwnersState::Failed(why) if *known != Known::READ => known.reading = Reading::Failed(why),
            _ => {}
        });
    }

    /// The objects of the last run.
    fn restored(&self) -> Vec<Arc<Owner>> {
        let objects = self.collection.history.now().objects;
        let owner = |object: Arc<dyn Item>| (object as Arc<dyn Any + Send + Sync>).downcast().ok();
        objects.values().filter_map(|object| owner(object.current()?)).collect()
    }
}

/// The collections of owners, and the work that fills them. `feed` is told the same.
pub(super) fn follow<P: HasPod + Send + Sync + 'static>(
    client: &Client,
    reader: &Reader<P>,
    owners: &Owners,
    options: Options,
    begin: Begin<'_>,
    feed: impl Fn(&OwnerUpdate) + Send + 'static,
) -> Followed {
    let served: Vec<_> = OwnerKind::ALL.into_iter().map(|kind| serve(kind, owners, begin)).collect();
    let collections = served.iter().map(|served| Arc::clone(&served.collection)).collect();
    let restored: Vec<_> = served
        .iter()
        .flat_map(|served| served.restored().into_iter().map(|owner| (served.kind, owner)))
        .collect();
    let tell = move |update: OwnerUpdate| {
        feed(&update);
        let of = |kind: OwnerKind| served.iter().filter(move |served| served.kind == kind);
        match update {
            OwnerUpdate::Read { id, owner } => {
                of(id.kind).for_each(|served| served.show(&id, Some(Arc::clone(&owner))));
            }
            OwnerUpdate::Gone { id } => of(id.kind).for_each(|served| served.show(&id, None)),
            OwnerUpdate::State { kind, state } => of(kind).for_each(|served| served.set(state.clone())),
            _ => {}
        }
    };
    let mut follower = Follower::new(client.clone(), reader.clone(), owners.clone(), options, tell);
    for (kind, owner) in restored {
        follower.restore(kind, owner);
    }
    Followed { collections, following: follower.run().boxed() }
}

fn serve(kind: OwnerKind, owners: &Owners, begin: Begin<'_>) -> Served {
    let owners = owners.clone();
    let (collection, known) = begin.restored(resource(kind), None, Some(Asked { owners, kind }));
    Served { kind, collection, known }
}
