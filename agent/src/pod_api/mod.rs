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
mod cluster;
mod collection;
mod discovery;
mod event;
mod follow;
mod followed;
mod history;
pub(crate) mod interest;
mod keep;
mod list;
pub(crate) mod metrics;
mod object;
mod owner;
pub(crate) mod owners;
mod pod;
pub(crate) mod printed;
mod query;
mod resource;
mod routes;
mod selection;
mod shape;
mod status;
mod watch;
mod watch_limits;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::{any, get};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use pod_index::{Reader, WaitError};
use pod_index_kubelet::records::Change;
use pod_index_kubelet::sources::SourceStatus;
use pod_index_kubelet::sources::api_server::ApiServer;
use tokio::sync::watch as channel;

use self::collection::{Begin, Collection, Origin};
use self::owners::Owners;
pub(crate) use self::pod::own_cells;
pub(crate) use self::printed::since;
pub(crate) use self::status::Refusal;
use self::watch_limits::WatchLimits;
use crate::api::request::resource;
use crate::config::values::Extra;
use crate::config::{Settings, descriptors};
use crate::pipeline::events::Events;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::records::Feed;
use crate::vitals::{BEAT, Heartbeat};

/// The API. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct PodApi {
    /// All resources. The first is the pods.
    served: Vec<Arc<Collection>>,
    watch_limits: Arc<WatchLimits>,
    missing: Vec<Extra>,
    owners: Owners,
}

/// Work for resources: its name, and the task.
pub(crate) type Following = (&'static str, BoxFuture<'static, ()>);

impl PodApi {
    /// The API, and the work for it: what follows the index, also for `events`, in a thread of its own, and what follows the
    /// API server. The first ends when the writer is gone and its last publication was seen.
    pub(crate) fn new(
        settings: &Settings,
        client: Option<&Client>,
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        events: Events,
        heartbeat: Heartbeat,
        feed: Option<&Feed>,
    ) -> (Self, impl FnOnce() + Send + use<>, Vec<Following>) {
        let given = &settings.given.pod_api;
        let directory = settings.checkpoints.as_ref().map(|checkpoints| checkpoints.path.as_path());
        let watch_limits =
            WatchLimits::new(given.max_watches.min(descriptors::half()), given.max_watches_per_client);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let version = u64::try_from(started).unwrap_or(1).max(1);
        let (reach, reached) = channel::channel(0);
        let begin = Begin { version, watch_limits: &watch_limits, directory };
        let history = begin.history(&pod::PODS);
        let origin = Origin::Index { reader: reader.clone(), reached, readiness: Arc::clone(readiness) };
        let mut served = vec![Arc::new(Collection { history: Arc::clone(&history), origin })];
        let (mut changes, static_pods) = (reader.changes(), given.static_pod_object);
        let follow = move || {
            loop {
                heartbeat.beat();
                let step = match changes.wait_until(Instant::now() + BEAT) {
                    Ok(step) => step,
                    Err(WaitError::WriterGone) => break,
                    Err(_) => continue,
                };
                let (changes, generation) = (step.changes(), step.after().generation());
                history.show(follow::touched(&changes, step.after(), static_pods));
                reach.send_replace(generation);
                events.count(&changes, generation);
            }
        };
        let (mut work, mut missing, mut owners) = (Vec::new(), Vec::new(), Owners::default());
        for extra in Extra::ALL {
            let Some(client) = client.filter(|_| given.serve_resources.contains(&extra)) else {
                missing.push(extra);
                continue;
            };
            let mut source = ApiServer::new(client.clone());
            let (collections, following) = match extra {
                Extra::Nodes => {
                    if !settings.given.api_server.all_nodes {
                        source.fields.push(format!("metadata.name={}", settings.node));
                    }
                    let tell = feed.cloned().map(|feed| -> followed::Tell<Node> {
                        Box::new(move |update| feed.nodes(Change::metadata(update)))
                    });
                    followed::follow(&cluster::NODES, source.objects(), begin, tell)
                }
                Extra::Namespaces => {
                    let tell = feed.cloned().map(|feed| -> followed::Tell<Namespace> {
                        Box::new(move |update| feed.namespaces(Change::metadata(update)))
                    });
                    followed::follow(&cluster::NAMESPACES, source.objects(), begin, tell)
                }
                Extra::Owners => {
                    let (follower, kinds) = owners::Follower::new(client, (reader, readiness), begin, feed);
                    owners = follower.owners.clone();
                    (kinds, follower.run().boxed())
                }
            };
            served.extend(collections);
            work.push(("a follower of resources", following));
        }
        let keep = |path: &Path| ("the keeper of lists", keep::keep(served.clone(), path.to_owned()).boxed());
        work.extend(directory.map(keep));
        (Self { served, watch_limits, missing, owners }, follow, work)
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
