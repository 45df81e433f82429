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
mod asked;
pub(crate) mod build;
mod cluster;
mod collection;
mod discovery;
mod event;
mod follow;
mod followed;
mod history;
mod keep;
mod list;
mod metrics;
mod object;
mod owner;
mod pod;
pub(crate) mod printed;
mod query;
mod resource;
mod routes;
mod selection;
mod shape;
mod status;
pub(crate) mod watch;
pub(crate) mod watch_limits;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use pod_index_kubelet::owners::Owners;
use pod_index_kubelet::sources::SourceStatus;

use self::collection::Collection;
pub(crate) use self::pod::kubelet_cells;
pub(crate) use self::printed::since;
use self::watch_limits::WatchLimits;
use crate::api::refusal::Refusal;
use crate::api::request::resource;
use crate::api::view::View;
use crate::config::values::Extra;

/// The API. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct PodApi {
    /// All resources. The first is the pods.
    served: Vec<Arc<Collection>>,
    watch_limits: Arc<WatchLimits>,
    missing: Vec<Extra>,
    owners: Owners,
}

impl PodApi {
    /// `/pods`, and all paths below `/api`, `/apis` and `/version`.
    pub(crate) fn router(&self) -> Router {
        let router = discovery::router(self.served.iter().map(|served| served.of()));
        let router = self.served.iter().fold(router, |router, served| routes::of(Arc::clone(served), router));
        let router = router.route("/pods", routes::lists(Arc::clone(&self.served[0]), View::Kubelet));
        let missing = Arc::new(self.missing.clone());
        ["/api/{*path}", "/apis/{*path}"]
            .into_iter()
            .fold(router, |router, path| {
                let missing = Arc::clone(&missing);
                router.route(path, any(async move |uri: axum::http::Uri| nothing(&missing, uri.path())))
            })
            .method_not_allowed_fallback(async || status::method_not_allowed())
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
    status::no_such_resource(needs.as_deref().unwrap_or("the agent does not serve it"))
}
