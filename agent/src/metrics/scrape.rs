//! Metrics that are read when Prometheus asks.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A function that writes metrics on each scrape.
struct Collected<F>(F);

/// A collector that calls `show`.
pub(super) fn collected(show: impl Fn(&mut Scrape<'_>) + Send + Sync + 'static) -> Box<dyn Collector> {
    Box::new(Collected(show))
}

impl<F> fmt::Debug for Collected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected").finish_non_exhaustive()
    }
}

impl<F: Fn(&mut Scrape<'_>) + Send + Sync + 'static> Collector for Collected<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape { encoder, result: Ok(()) };
        (self.0)(&mut scrape);
        scrape.result
    }
}

/// Where metrics are written to. Each method takes the name and the description.
pub(crate) struct Scrape<'a> {
    encoder: DescriptorEncoder<'a>,
    /// The first error.
    result: fmt::Result,
}

impl Scrape<'_> {
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) {
        self.one(name, help, MetricType::Gauge, &ConstGauge::new(value));
    }

    /// A gauge with labels.
    pub(crate) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, V)>,
    ) {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, MetricType::Gauge, series);
    }

    /// A counter. `_total` is appended to the name.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.one(name, help, MetricType::Counter, &ConstCounter::new(value));
    }

    /// A counter of seconds.
    pub(crate) fn seconds(&mut self, name: &str, help: &str, value: f64) {
        self.one(name, help, MetricType::Counter, &ConstCounter::new(value));
    }

    /// A counter with labels. `_total` is appended to the name.
    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, MetricType::Counter, series);
    }

    fn one(&mut self, name: &str, help: &str, kind: MetricType, metric: &impl EncodeMetric) {
        let encoder = self.encoder.encode_descriptor(name, help, None, kind);
        let done = encoder.and_then(|encoder| metric.encode(encoder));
        self.result = self.result.and(done);
    }

    fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        mut series: impl Iterator<Item = (L, M)>,
    ) {
        let encoder = self.encoder.encode_descriptor(name, help, None, kind);
        let done = encoder.and_then(|mut encoder| {
            series.try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(&labels)?))
        });
        self.result = self.result.and(done);
    }
}
