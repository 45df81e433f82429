//! The metrics at `/metrics`. Pods are counted on each scrape, in one snapshot.
//!
//! A module registers its metrics before the agent serves: either values that it keeps up to date, in [`Metrics::ours`], or
//! a function that reads them on each scrape, with [`Metrics::collect`].
//!
//! This module knows names and values. It must not change what it measures.

mod index;
mod memory;
mod process;
mod scrape;
mod writing;

use pod_index::Reader;
use pod_index_kubelet::records::Record;
use prometheus_client::encoding::text;
use prometheus_client::registry::{Metric, Registry};

pub(crate) use self::scrape::Scrape;
use self::scrape::collected;
pub(crate) use self::writing::Writing;

/// The content type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Registry);

impl Metrics {
    /// The metrics of every agent: its index and its process. Each module registers its own.
    pub(crate) fn new(reader: &Reader<Record>) -> Self {
        let mut metrics = Self::default();
        let started = std::time::SystemTime::now();
        metrics.0.register_collector(collected(move |to| process::show(started, to)));
        let reader = reader.clone();
        metrics.collect(move |to| index::show(&reader.load(), to));
        metrics
    }

    /// Adds metrics that `show` reads on each scrape. It names them without `pod_index_`, which is put in front of each.
    pub(crate) fn collect(&mut self, show: impl Fn(&mut Scrape<'_>) + Send + Sync + 'static) {
        self.ours().register_collector(collected(show));
    }

    /// The registry for the agent's own metrics. It prefixes each name with `pod_index_`.
    pub(crate) fn ours(&mut self) -> &mut Registry {
        self.0.sub_registry_with_prefix("pod_index")
    }

    /// All metrics, in the `OpenMetrics` text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.0);
        text
    }
}

/// Registers a metric that the caller keeps up to date.
pub(crate) fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Converts a number of objects in memory to a gauge value.
pub(crate) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
