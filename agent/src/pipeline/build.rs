//! The pipeline of a running agent: built from the settings, then spawned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use kube::Client;
use pod_index::{Options, Reader, Writer};
use pod_index_kubelet::checkpoint::Checkpointing;
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::{Merge, Source};
use tokio::sync::watch;

use super::api_clients::ApiClients;
use super::readiness::Readiness;
use super::records::{self, Feed, Joining};
use super::removed::KeptRemoved;
use super::sources::{self, Opened};
use super::writer::{Command, Report, Setup, WriterThread};
use super::{checkpoints, own_node, source_metrics};
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::rules::SourceKind;
use crate::metrics::Metrics;
use crate::tasks::{self, Tasks, cannot_start};
use crate::vitals::{Part, Vitals};

/// The index before the first pod is in it. Everything that reads it can be built already.
pub(crate) struct EmptyIndex {
    pub(crate) reader: Reader<Record>,
    /// Is to be told of the objects that pods are joined with.
    pub(crate) feed: Feed,
    writer: Writer<Record>,
    joining: Joining,
}

impl EmptyIndex {
    /// Reads the file of `--extract`, so this may block.
    pub(crate) fn build(settings: &Settings) -> Result<Self, Failure> {
        let (feed, joining) = records::build(settings)?;
        let removed = &settings.effective.removed_pods;
        let options = Options::new().keep_removed(removed.keep, removed.max).keep_times(true);
        let (writer, reader) = pod_index::with_options(options);
        Ok(Self { reader, feed, writer, joining })
    }
}

/// The sources, the writer of the index, and the checkpoints.
pub(crate) struct Pipeline {
    pub(crate) readiness: Arc<Readiness>,
    /// Tells the writer.
    pub(crate) commands: Sender<Command>,
    sources: Vec<Opened>,
    reports: Sender<Report>,
    write: tasks::Work,
    checkpoints: Option<Checkpointing>,
    own_node: Option<OwnNodeReader>,
}

/// Reads this node's Node object when the writer needs it.
struct OwnNodeReader {
    client: Client,
    node: String,
    needed: watch::Receiver<bool>,
    commands: Sender<Command>,
}

/// What is left of the pipeline when its threads run.
pub(crate) struct RunningPipeline {
    pub(crate) commands: Sender<Command>,
    pub(crate) checkpoints: Option<Checkpointing>,
    pub(crate) sources: WaitingSources,
}

/// The sources, before they read.
pub(crate) struct WaitingSources {
    opened: Vec<Opened>,
    reports: Sender<Report>,
}

impl Pipeline {
    /// Reads the checkpoints of the last run, so this may block. Their pods are in the index when it returns.
    pub(crate) fn build(
        settings: &Settings,
        index: EmptyIndex,
        clients: Option<&ApiClients>,
        vitals: &Vitals,
        metrics: &mut Metrics,
    ) -> Result<Self, Failure> {
        let EmptyIndex { reader, writer, joining, .. } = index;
        let sources = sources::open(settings, clients.map(|clients| clients.pods.clone()))?;
        let names: Vec<Source> = sources.iter().map(Opened::source).collect();
        let period_of = |opened: &Opened| (opened.source(), sources::period_of(settings, opened.kind));
        let periods = sources.iter().map(period_of).collect();
        let (stored, restored) = checkpoints::open(settings)?.unzip();
        let has_restored = restored.as_ref().is_some_and(|restored| !restored.pods.is_empty());
        let followed = sources.iter().map(|opened| (opened.updates.status(), opened.nudge.clone()));
        let readiness = Arc::new(Readiness::new(followed, has_restored));
        let removed = &settings.effective.removed_pods;
        let setup = Setup {
            writer,
            joining,
            merge: merge(settings, &names),
            readiness: Arc::clone(&readiness),
            heartbeat: vitals.heartbeat(Part::Index),
            kept_removed: KeptRemoved::new(removed.keep, removed.max),
        };
        let writer = WriterThread::build(setup, restored, &names, metrics);
        show_sources(periods, &readiness, metrics);
        // Its thread has nothing to do before the index changes.
        let checkpoints = stored.map(|stored| stored.keep(reader.clone())).transpose();
        let checkpoints = checkpoints.map_err(|error| cannot_start("the checkpoint thread", error))?;
        if let Some(checkpoints) = &checkpoints {
            let status = checkpoints.status();
            metrics.collect(move |to| checkpoints::show(&status.borrow(), &reader.load(), to));
        }
        let own_node = clients.map(|clients| OwnNodeReader {
            client: clients.agent.clone(),
            node: settings.node.to_string(),
            needed: writer.needs_own_node,
            commands: writer.commands.clone(),
        });
        Ok(Self {
            readiness,
            commands: writer.commands,
            sources,
            reports: writer.reports,
            write: writer.work,
            checkpoints,
            own_node,
        })
    }

    /// Runs everything except the sources.
    pub(crate) fn spawn(self, tasks: &mut Tasks) -> Result<RunningPipeline, Failure> {
        tasks.thread("index", self.write)?;
        if let Some(OwnNodeReader { client, node, needed, commands }) = self.own_node {
            tasks.spawn("the reader of the Node", own_node::follow(client, node, needed, commands));
        }
        Ok(RunningPipeline {
            commands: self.commands,
            checkpoints: self.checkpoints,
            sources: WaitingSources { opened: self.sources, reports: self.reports },
        })
    }
}

impl WaitingSources {
    pub(crate) fn spawn(self, tasks: &mut Tasks) {
        for opened in self.opened {
            opened.spawn(tasks, self.reports.clone());
        }
    }
}

/// Shows the state of the sources when the metrics are read. `periods`: how often each is read.
fn show_sources(periods: HashMap<Source, Duration>, readiness: &Arc<Readiness>, metrics: &mut Metrics) {
    let readiness = Arc::clone(readiness);
    let period_of = move |source| periods.get(&source).copied().unwrap_or_default();
    metrics.collect(move |to| source_metrics::show(&readiness, &period_of, to));
}

/// The merge of these sources.
fn merge(settings: &Settings, sources: &[Source]) -> Merge {
    let mut merge = Merge::new(sources.iter().copied()).derive_static_pods(settings.node.clone());
    if settings.kind_of(Source::Kubelet).is_some_and(SourceKind::is_trusted_kubelet) {
        merge = merge.trust_kubelet();
    }
    if settings.mirrors {
        // This agent has the static pods of this node.
        let _ = merge.manage_own_mirror_pods(true);
    }
    merge
}
