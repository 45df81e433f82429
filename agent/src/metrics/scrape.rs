//! Metrics that are read when Prometheus asks.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder,
};
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
        self.write(name, help, MetricType::Gauge, |to| ConstGauge::new(value).encode(to));
    }

    /// A gauge with labels.
    pub(crate) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, V)>,
    ) {
        self.write(name, help, MetricType::Gauge, |mut to| {
            let mut series = series.into_iter();
            series.try_for_each(|(labels, value)| ConstGauge::new(value).encode(to.encode_family(&labels)?))
        });
    }

    /// A counter. `_total` is appended to the name.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) {
        self.write(name, help, MetricType::Counter, |to| ConstCounter::new(value).encode(to));
    }

    /// A counter with labels. `_total` is appended to the name.
    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.write(name, help, MetricType::Counter, |mut to| {
            let mut series = series.into_iter();
            series.try_for_each(|(labels, value)| ConstCounter::new(value).encode(to.encode_family(&labels)?))
        });
    }

    fn write(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        metric: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) {
        let done = self.encoder.encode_descriptor(name, help, None, kind).and_then(metric);
        self.result = self.result.and(done);
    }
}
