//! The API, built from the settings, then spawned: a thread that follows the index, and a task for each thing that is
//! followed on the API server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use kube::Client;
use pod_index::{Changes, Reader, WaitError};
use pod_index_kubelet::owners::{Options, Owners};
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::api_server::ApiServer;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch as channel;

use super::collection::{Begin, Collection, Origin};
use super::followed::Followed;
use super::history::History;
use super::keep::Keeper;
use super::watch_limits::WatchLimits;
use super::{PodApi, cluster, follow, followed, metrics, owner, pod};
use crate::config::changing::Changing;
use crate::config::failure::Failure;
use crate::config::values::{Extra, MostWatches, StaticPods};
use crate::config::{Settings, descriptors};
use crate::metrics::{Metrics, registered};
use crate::pipeline::events::Events;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::records::Feed;
use crate::tasks::{End, Tasks};
use crate::vitals::{BEAT, Heartbeat};

/// What the API is built from, besides the settings.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// Of the API server, if one is configured.
    pub(crate) client: Option<&'a Client>,
    pub(crate) reader: &'a Reader<Record>,
    pub(crate) readiness: &'a Arc<Readiness>,
    /// Is told of the objects that pods are joined with.
    pub(crate) feed: &'a Feed,
    pub(crate) most_watches: &'a Changing<MostWatches>,
}

/// The API, and its work before it runs.
pub(crate) struct Built {
    pub(crate) api: PodApi,
    follower: IndexFollower,
    tasks: Vec<Task>,
    /// `None`: there is no directory for the lists.
    keeper: Option<Keeper>,
}

/// The work for a resource.
struct Task {
    name: &'static str,
    work: BoxFuture<'static, ()>,
}

impl Built {
    /// Reads the lists of the last run, so this may block.
    pub(crate) fn new(
        settings: &Settings,
        inputs: Inputs<'_>,
        heartbeat: Heartbeat,
        metrics: &mut Metrics,
    ) -> Self {
        let effective = &settings.effective.pod_api;
        let watch_limits = WatchLimits::new(inputs.most_watches.clone(), descriptors::half());
        let directory = settings.checkpoints.as_ref().map(|checkpoints| checkpoints.path.as_path());
        let begin = Begin { version: first_version(), watch_limits: &watch_limits, directory };
        let (reach, reached) = channel::channel(0);
        let history = begin.history(&pod::PODS);
        let follower = IndexFollower {
            changes: inputs.reader.changes(),
            history: Arc::clone(&history),
            static_pods: effective.static_pod_object,
            reach,
            events: Events::register(metrics.ours()),
            heartbeat,
        };
        let origin =
            Origin::Index { reader: inputs.reader.clone(), reached, readiness: Arc::clone(inputs.readiness) };
        let mut served = vec![Arc::new(Collection { history, origin })];
        let owners = Owners::default();
        let mut missing = Vec::new();
        let mut tasks = Vec::new();
        for extra in Extra::all() {
            let client = inputs.client.filter(|_| effective.serve_resources.contains(&extra));
            let Some(client) = client else {
                missing.push(extra);
                continue;
            };
            let resource = match extra {
                Extra::Nodes => follow_nodes(settings, client, inputs.feed, begin),
                Extra::Namespaces => follow_namespaces(client, inputs.feed, begin),
                Extra::Owners => follow_owners(client, inputs, &owners, begin),
            };
            served.extend(resource.collections);
            tasks.push(Task { name: "a follower of resources", work: resource.following });
        }
        let keeper = directory.map(|directory| keeper(served.clone(), directory, metrics));
        let api = PodApi { served, watch_limits, missing, owners };
        let measured = api.clone();
        metrics.collect(move |to| metrics::show(&measured, to));
        Self { api, follower, tasks, keeper }
    }

    /// The thread whose end is returned ends when the writer is gone and its last publication was seen.
    pub(crate) fn spawn(self, tasks: &mut Tasks) -> Result<End, Failure> {
        for Task { name, work } in self.tasks {
            tasks.spawn(name, work);
        }
        if let Some(keeper) = self.keeper {
            drop(tasks.thread(Keeper::NAME, move || keeper.run())?);
        }
        let follower = self.follower;
        tasks.thread("changes", move || follower.run())
    }

    /// Follows the index until its writer is gone.
    #[cfg(test)]
    pub(crate) fn run_to_the_end(self) -> PodApi {
        self.follower.run();
        self.api
    }
}

/// Appends to the history of the pods what changes in the index, and counts it.
struct IndexFollower {
    changes: Changes<Record>,
    history: Arc<History>,
    static_pods: StaticPods,
    /// The generation that the history has reached.
    reach: channel::Sender<u64>,
    events: Events,
    heartbeat: Heartbeat,
}

impl IndexFollower {
    fn run(mut self) {
        loop {
            self.heartbeat.beat();
            let step = match self.changes.wait_until(Instant::now() + BEAT) {
                Ok(step) => step,
                Err(WaitError::WriterGone) => return,
                Err(_) => continue,
            };
            let changes = step.changes();
            let generation = step.after().generation();
            self.history.show(follow::touched(&changes, step.after(), self.static_pods));
            self.reach.send_replace(generation);
            self.events.count(&changes, generation);
        }
    }
}

/// The first version of every history: see [`history`](super::history).
fn first_version() -> u64 {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    u64::try_from(started).unwrap_or(1).max(1)
}

/// Writes the lists to this directory, for the next run.
fn keeper(served: Vec<Arc<Collection>>, directory: &Path, metrics: &mut Metrics) -> Keeper {
    let help = "Lists of resources whose files are missing or outdated";
    let problems = registered(metrics.ours(), "list_problems", help, Gauge::default());
    Keeper { served, directory: directory.to_owned(), problems }
}

/// This node's Node, or with `--all-nodes` all.
fn follow_nodes(settings: &Settings, client: &Client, feed: &Feed, begin: Begin<'_>) -> Followed {
    let mut source = ApiServer::new(client.clone());
    if !settings.effective.api_server.all_nodes {
        source.fields.push(format!("metadata.name={}", settings.node));
    }
    followed::follow(&cluster::NODES, source.objects(), begin, feed.of_nodes())
}

fn follow_namespaces(client: &Client, feed: &Feed, begin: Begin<'_>) -> Followed {
    let source = ApiServer::new(client.clone());
    followed::follow(&cluster::NAMESPACES, source.objects(), begin, feed.of_namespaces())
}

fn follow_owners(client: &Client, inputs: Inputs<'_>, owners: &Owners, begin: Begin<'_>) -> Followed {
    let readiness = Arc::clone(inputs.readiness);
    let options = Options {
        needed: inputs.feed.needed_owners,
        are_pods_complete: Box::new(move || readiness.has_pods()),
    };
    let tell = inputs.feed.of_owners();
    owner::follow(client, inputs.reader, owners, options, begin, tell)
}
