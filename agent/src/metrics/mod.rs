//! The metrics at `/metrics`. Pods are counted on each scrape, in one snapshot.
//!
//! A module registers its metrics in [`Metrics::ours`] before the agent serves: either values that it keeps up to date,
//! or a [`Collector`](prometheus_client::collector::Collector) that reads them on each scrape.
//!
//! This module knows names and values. It must not change what it measures.

mod checkpoints;
mod index;
mod log;
pub(crate) mod memory;
mod process;
mod writing;

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use self::checkpoints::Checkpoints;
use self::index::{Index, KubeletsOwn};
use self::log::LogLines;
use self::process::Process;
pub(crate) use self::writing::Writing;
use crate::config::log::Log;
use pod_index::Reader;
use pod_index_kubelet::checkpoint::Checkpointing;

/// The content type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Registry);

impl Metrics {
    /// The metrics of every agent: its index and its process. Each module registers its own.
    pub(crate) fn new(reader: &Reader<Pod>) -> Self {
        let mut metrics = Self::default();
        metrics.0.register_collector(Box::new(Process));
        metrics.ours().register_collector(Box::new(KubeletsOwn(reader.clone())));
        metrics.ours().register_collector(Box::new(Index(reader.clone())));
        metrics
    }

    /// The same values under the kubelet's own names, where it has them. On a node with a kubelet, a sum over both
    /// would count every pod twice.
    pub(crate) fn as_the_kubelet(&mut self, reader: &Reader<Pod>) {
        let kubelet = self.0.sub_registry_with_prefix("kubelet");
        kubelet.register_collector(Box::new(KubeletsOwn(reader.clone())));
    }

    /// Checkpoint metrics, if the agent keeps checkpoints.
    pub(crate) fn checkpoints(&mut self, checkpointing: &Checkpointing) {
        self.ours().register_collector(Box::new(Checkpoints(Box::new(checkpointing.observer()))));
    }

    /// The number of dropped log lines.
    pub(crate) fn log(&mut self, log: &Log) {
        self.ours().register_collector(Box::new(LogLines(log.clone())));
    }

    /// The number of open connections. The server updates it.
    pub(crate) fn connections(&mut self) -> Gauge {
        let connections = Gauge::default();
        self.ours().register("http_connections", "Open client connections", connections.clone());
        connections
    }

    /// The registry for the agent's own metrics. It prefixes each name with `pod_index_`.
    pub(crate) fn ours(&mut self) -> &mut Registry {
        self.0.sub_registry_with_prefix("pod_index")
    }

    /// All metrics, in the `OpenMetrics` text format.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

/// A gauge.
pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(encoder)
}

/// A gauge with labels.
pub(crate) fn gauges<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (impl EncodeLabelSet, V)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    series.into_iter().try_for_each(|(labels, value)| encoder.encode_family(&labels)?.encode_gauge(&value))
}

/// A counter. `_total` is appended to the name.
pub(crate) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(encoder)
}

/// A counter with labels. `_total` is appended to the name.
pub(crate) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (impl EncodeLabelSet, u64)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let mut series = series.into_iter();
    series.try_for_each(|(labels, value)| ConstCounter::new(value).encode(encoder.encode_family(&labels)?))
}

/// Converts a number of objects in memory to a gauge value.
pub(crate) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
