//! The manager of this node's mirror pods, built from the settings, then spawned.

use std::sync::Arc;

use pod_index::Reader;
use pod_index_kubelet::records::Record;

use super::api_clients::ApiClients;
use super::build::Pipeline;
use super::mirror_metrics;
use super::mirrors::{MirrorKeeper, Work};
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::tasks::Tasks;

/// The manager of this node's mirror pods, before it runs.
pub(crate) struct MirrorManager {
    pub(crate) keeper: Arc<MirrorKeeper>,
    /// `None` if it is not asked to manage them.
    work: Option<Work>,
}

impl MirrorManager {
    pub(crate) fn build(
        settings: &Settings,
        clients: Option<&ApiClients>,
        reader: &Reader<Record>,
        pipeline: &Pipeline,
        metrics: &mut Metrics,
    ) -> Self {
        let readiness = Arc::clone(&pipeline.readiness);
        let keeper = Arc::new(MirrorKeeper::new(settings.node.clone(), settings.mirrors, readiness));
        let work = clients.filter(|_| settings.mirrors).map(|clients| Work {
            asked_by: settings.written.name("manage-mirror-pods"),
            client: clients.agent.clone(),
            reader: reader.clone(),
            writer: pipeline.commands.clone(),
        });
        if settings.mirrors {
            let measured = Arc::clone(&keeper);
            let reader = reader.clone();
            metrics.collect(move |to| mirror_metrics::show(&measured, &reader, to));
        }
        Self { keeper, work }
    }

    pub(crate) fn spawn(self, tasks: &mut Tasks) {
        let Self { keeper, work } = self;
        if let Some(work) = work {
            tasks.spawn_with_reason("the manager of mirror pods", async move { keeper.keep(work).await });
        }
    }
}
