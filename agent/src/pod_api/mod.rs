//! What the agent knows as a read-only Kubernetes API: get, list and watch for every Kubernetes client. Pods always; the
//! node's Node, Namespaces and the owners of pods if configured.
//!
//! ```text
//! index ─> follow ─────┐
//! API server ─> followed ─> history ─┬─> list  ─┐
//!                                    └─> watch ─┴─> write ─> HTTP
//! ```
//! One thread compares snapshots of the index and appends to the history of the pods. The index's writer never waits for
//! it. `docs/pod-api.md` lists the differences from the API server.

mod accept;
mod collection;
mod discovery;
mod event;
mod follow;
mod followed;
mod history;
mod keep;
mod list;
pub(crate) mod metrics;
mod namespace;
mod node;
mod object;
mod owner;
pub(crate) mod owners;
mod pod;
pub(crate) mod printed;
mod query;
mod resource;
mod routes;
mod seats;
mod selection;
mod shape;
mod status;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::{any, get};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use pod_index::Reader;
use pod_index_kubelet::sources::SourceStatus;
use pod_index_kubelet::sources::api_server::ApiServer;
use tokio::sync::watch as channel;
use tokio::time::sleep;

use self::collection::{Begin, Collection, Origin};
use self::owners::Owners;
pub(crate) use self::pod::own_cells;
pub(crate) use self::printed::since;
use self::seats::Seats;
pub(crate) use self::status::Refusal;
use crate::api::request::resource;
use crate::config::Settings;
use crate::config::args::Shared;
use crate::config::values::Extra;
use crate::pipeline::events::Events;
use crate::pipeline::readiness::Readiness;

/// Interval between checks of the events' age.
const AGING: Duration = Duration::from_secs(10);

/// The API. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct PodApi {
    /// All resources. The first is the pods.
    served: Vec<Arc<Collection>>,
    seats: Arc<Seats>,
    /// The first version of each resource.
    version: u64,
    missing: Vec<Extra>,
    owners: Owners,
}

/// Work for resources: its name, and the task.
pub(crate) type Following = (&'static str, BoxFuture<'static, ()>);

impl PodApi {
    /// The API of the pods, and the work that follows the index for it and for `events`, for a thread of its own. It ends
    /// when the writer is gone and its last publication was seen.
    pub(crate) fn new(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        given: &Shared,
        events: Events,
    ) -> (Self, impl FnOnce() + Send + use<>) {
        let static_pods = given.static_pod_object;
        let seats = Seats::new(given.max_watches, given.max_watches_per_client);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let version = u64::try_from(started).unwrap_or(1).max(1);
        let (reach, reached) = channel::channel(0);
        let history = Begin { version, seats: &seats, directory: None }.history(&pod::PODS);
        let (origin, readiness) = (reader.clone(), Arc::clone(readiness));
        let origin = Origin::Index { reader: origin, reached, readiness };
        let served = vec![Collection::new(Arc::clone(&history), origin)];
        let mut changes = reader.changes();
        let follow = move || {
            while let Some(step) = changes.wait() {
                let (changes, generation) = (step.changes(), step.after().generation());
                history.show(follow::touched(&changes, step.after(), static_pods));
                reach.send_replace(generation);
                events.count(&changes, generation);
            }
        };
        (Self { served, seats, version, missing: Vec::new(), owners: Owners::default() }, follow)
    }

    /// Adds the other resources, and returns the work that follows them and that drops old events.
    pub(crate) fn serve_also(
        &mut self,
        settings: &Settings,
        client: Option<&Client>,
        pods: (&Reader<Pod>, &Arc<Readiness>),
    ) -> Vec<Following> {
        let directory = settings.checkpoints.as_ref().map(|(path, _)| path.clone());
        let mut all = Vec::new();
        let PodApi { served, seats, version, missing, owners, .. } = self;
        for extra in Extra::ALL {
            let asked = settings.given.serve_resources.contains(&extra);
            let Some(client) = client.filter(|_| asked) else {
                missing.push(extra);
                continue;
            };
            let mut server = ApiServer::new(client.clone());
            let begin = Begin { version: *version, seats, directory: directory.as_deref() };
            let (collections, work) = match extra {
                Extra::Nodes => {
                    if !settings.given.all_nodes {
                        server.fields.push(format!("metadata.name={}", settings.node));
                    }
                    followed::follow::<Node>(&node::NODES, server.objects(), begin)
                }
                Extra::Namespaces => {
                    followed::follow::<Namespace>(&namespace::NAMESPACES, server.objects(), begin)
                }
                Extra::Owners => {
                    let (follower, kinds) = owners::Follower::new(client, pods, begin);
                    *owners = follower.owners();
                    (kinds, follower.run().boxed())
                }
            };
            served.extend(collections);
            all.push(("a follower of resources", work));
        }
        let aging = served.clone();
        let age = async move {
            loop {
                sleep(AGING).await;
                for served in &aging {
                    served.history.age();
                }
            }
        };
        all.push(("the end of old events", age.boxed()));
        all.extend(directory.map(|path| ("the keeper of lists", keep::keep(served.clone(), path).boxed())));
        all
    }

    /// `/pods`, and all paths below `/api`, `/apis` and `/version`.
    pub(crate) fn router(&self) -> Router {
        let router = discovery::router(self.served.iter().map(|served| served.of()));
        let router = self.served.iter().fold(router, |router, served| routes::of(Arc::clone(served), router));
        let router = router.route("/pods", get(routes::list::<true>).with_state(Arc::clone(&self.served[0])));
        let missing = Arc::new(self.missing.clone());
        ["/api/{*path}", "/apis/{*path}"]
            .into_iter()
            .fold(router, |router, path| {
                let missing = Arc::clone(&missing);
                router.route(path, any(async move |uri: axum::http::Uri| nothing(&missing, uri.path())))
            })
            .method_not_allowed_fallback(async || Refusal::method_not_allowed())
    }

    /// What is known of the owners of pods.
    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The sources of the resources that have one of their own.
    pub(crate) fn sources(&self) -> impl Iterator<Item = SourceStatus> {
        self.served.iter().filter_map(|served| served.status())
    }

    /// The resources that are known only from the last run, and the age of their lists in seconds.
    pub(crate) fn restored(&self) -> BTreeMap<String, u64> {
        self.served.iter().filter_map(|served| served.restored()).collect()
    }

    /// Ends all watches.
    pub(crate) fn close(&self) {
        self.served.iter().for_each(|served| served.history.close());
    }
}

/// The answer for a resource that is not served.
fn nothing(missing: &[Extra], path: &str) -> Refusal {
    let named = resource(path).map(|(group, name, _)| (group, name));
    let is_named = |extra: &&Extra| extra.resources().iter().any(|resource| Some(*resource) == named);
    let needs = missing.iter().find(is_named).map(|extra| extra.needs());
    Refusal::no_such_resource(needs.as_deref().unwrap_or("the agent does not serve it"))
}
