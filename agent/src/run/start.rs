//! The start of the agent: builds each subsystem from the settings, then spawns them.
//!
//! ```text
//! Settings ─> build: index, pipeline, mirrors, pod API, whois, servers            (errors of the settings; metrics)
//!          ─> spawn: threads and tasks, in `Tasks`; the sources last              (errors of the machine)
//! ```

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use pod_index::Reader;
use pod_index_kubelet::checkpoint::Checkpointing;
use pod_index_kubelet::records::Record;
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::reload::ChangingParts;
use super::systemd;
use crate::config::Settings;
use crate::config::changing::Changing;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::values::AllowedClients;
use crate::http;
use crate::http::build::{RunningServer, Server};
use crate::http::listeners::Listeners;
use crate::kubelet_api::KubeletApi;
use crate::metrics::Metrics;
use crate::pipeline::api_clients::ApiClients;
use crate::pipeline::build::{EmptyIndex, Pipeline, RunningPipeline};
use crate::pipeline::mirror_manager::MirrorManager;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::writer::Command;
use crate::pod_api;
use crate::tasks::{End, Tasks};
use crate::vitals::{Part, Vitals};
use crate::whois::Whois;

/// The running agent.
pub(super) struct Started {
    pub(super) tasks: Tasks,
    pub(super) reader: Reader<Record>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) changing: ChangingParts,
    /// `None` with `--once`.
    pub(super) server: Option<RunningServer>,
    /// Tells the writer of the index.
    pub(super) commands: Sender<Command>,
    pub(super) checkpoints: Option<Checkpointing>,
    /// The end of the thread that follows the index. It ends after the writer's.
    pub(super) follower: End,
}

/// Starts all parts, which serve until `stopped` becomes true. Waits for no server, but a disk may hang.
pub(super) async fn start(
    settings: Arc<Settings>,
    log: Log,
    vitals: Vitals,
    tasks: Tasks,
    stopped: watch::Receiver<bool>,
) -> Result<Started, Failure> {
    let listeners = Listeners::bind(&settings).await?;
    let subsystems = Subsystems::new(&settings, log, vitals).await?;
    subsystems.spawn(&settings, listeners, tasks, stopped)
}

/// All subsystems, before they run.
struct Subsystems {
    reader: Reader<Record>,
    readiness: Arc<Readiness>,
    pipeline: Pipeline,
    mirrors: MirrorManager,
    pod_api: pod_api::build::Built,
    server: Server,
    kubelet_api: Option<KubeletApi>,
    changing: ChangingParts,
}

impl Subsystems {
    /// In the order in which one needs the other. All of them register their metrics in `metrics`, which the server serves.
    async fn new(settings: &Settings, log: Log, vitals: Vitals) -> Result<Self, Failure> {
        let index = block_in_place(|| EmptyIndex::build(settings))?;
        let reader = index.reader.clone();
        let feed = index.feed.clone();
        let mut metrics = Metrics::new(&reader);
        measure(&vitals, log.clone(), &mut metrics);
        let clients = ApiClients::build(settings, &mut metrics).await?;
        let clients = clients.as_ref();
        let pipeline = block_in_place(|| Pipeline::build(settings, index, clients, &vitals, &mut metrics))?;
        let readiness = Arc::clone(&pipeline.readiness);
        let mirrors = MirrorManager::build(settings, clients, &reader, &pipeline, &mut metrics);
        let most_watches = Changing::new(settings.effective.most_watches());
        let pod_api_inputs = pod_api::build::Inputs {
            client: clients.map(|clients| &clients.agent),
            reader: &reader,
            readiness: &readiness,
            feed: &feed,
            most_watches: &most_watches,
        };
        let heartbeat = vitals.heartbeat(Part::Changes);
        let pod_api =
            block_in_place(|| pod_api::build::Built::new(settings, pod_api_inputs, heartbeat, &mut metrics));
        let whois = Whois::build(settings, &reader, &readiness, pod_api.api.owners(), &mut metrics)?;
        let kubelet_api = KubeletApi::build(settings, &reader, &readiness, &most_watches, &mut metrics);
        let server_inputs = http::build::Inputs {
            reader: reader.clone(),
            readiness: Arc::clone(&readiness),
            vitals,
            mirrors: Arc::clone(&mirrors.keeper),
            pods: pod_api.api.clone(),
            whois: Arc::new(whois),
        };
        let reviews = clients.map(|clients| &clients.reviews);
        let server = Server::build(settings, server_inputs, reviews, metrics)?;
        // Without `access`, clients need not identify themselves, and no list of allowed clients can be set: see `rules`.
        let allowed_clients = server
            .access()
            .map_or_else(|| Changing::new(AllowedClients::default()), |access| access.allowed());
        let changing = ChangingParts { log, allowed_clients, most_watches };
        Ok(Self { reader, readiness, pipeline, mirrors, pod_api, server, kubelet_api, changing })
    }

    /// Spawns the subsystems; the sources last, because an agent that cannot serve requests no pods.
    fn spawn(
        self,
        settings: &Settings,
        listeners: Option<Listeners>,
        mut tasks: Tasks,
        stopped: watch::Receiver<bool>,
    ) -> Result<Started, Failure> {
        let Self { reader, readiness, pipeline, mirrors, pod_api, server, kubelet_api, changing } = self;
        let RunningPipeline { commands, checkpoints, sources } = pipeline.spawn(&mut tasks)?;
        mirrors.spawn(&mut tasks);
        let follower = pod_api.spawn(&mut tasks)?;
        let server = match listeners {
            Some(listeners) => {
                if let Some(kubelet_api) = kubelet_api {
                    kubelet_api.spawn(settings, &mut tasks, &stopped)?;
                }
                let server = server.spawn(settings, listeners, &mut tasks, stopped)?;
                systemd::notify("READY=1\nSTATUS=waiting for the pods of every source");
                Some(server)
            }
            None => None,
        };
        sources.spawn(&mut tasks);
        Ok(Started { tasks, reader, readiness, changing, server, commands, checkpoints, follower })
    }
}

/// Registers the metrics of the agent as a whole.
fn measure(vitals: &Vitals, log: Log, metrics: &mut Metrics) {
    let vitals = vitals.clone();
    metrics.collect(move |to| {
        vitals.show(Instant::now(), to);
        let help = "Log lines dropped because standard error blocked.";
        to.counter("dropped_log_lines", help, log.dropped_lines());
    });
}
