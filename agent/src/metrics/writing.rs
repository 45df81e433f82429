//! Metrics that the writer thread updates.

use std::fmt;
use std::time::Duration;

use crossbeam_channel::Sender;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::{gauge, number};

/// One pod takes about ten microseconds, a hundred thousand of them a few seconds.
const SECONDS: [f64; 18] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3,
    500e-3, 1.0, 2.5, 10.0,
];

/// The writer thread's counters. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    publications: Counter,
    refused: Counter,
    operations: Histogram,
    duration: Histogram,
    retired: Gauge,
}

impl Writing {
    /// All counts are zero. `channel` leads to the writer thread.
    pub(crate) fn register<T: fmt::Debug + Send + 'static>(
        registry: &mut Registry,
        channel: Sender<T>,
    ) -> Self {
        registry.register_collector(Box::new(Channel(channel)));
        let counts = Self {
            publications: Counter::default(),
            refused: Counter::default(),
            // 1 to 262,144.
            operations: Histogram::new(exponential_buckets(1.0, 4.0, 10)),
            duration: Histogram::new(SECONDS),
            retired: Gauge::default(),
        };
        let Self { publications, refused, operations, duration, retired } = counts.clone();
        registry.register("publications", "Snapshots published", publications);
        registry.register("refused_pods", "Pods that the index refused", refused);
        registry.register("batch_operations", "Operations per batch", operations);
        registry.register_with_unit(
            "write_duration",
            "Time to merge, apply and publish a batch",
            Unit::Seconds,
            duration,
        );
        registry.register("retired_snapshots", "Replaced snapshots that readers still hold", retired);
        counts
    }

    /// Records a finished batch.
    pub(crate) fn applied(&self, operations: usize, refused: usize, published: bool, took: Duration) {
        self.published(published);
        self.refused.inc_by(refused as u64);
        // Exact far beyond any number of pods.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        self.operations.observe(operations as f64);
        self.duration.observe(took.as_secs_f64());
    }

    /// Records a write that is not a batch of the sources.
    pub(crate) fn published(&self, published: bool) {
        self.publications.inc_by(u64::from(published));
    }

    /// Records how many replaced snapshots are still held.
    pub(crate) fn retired(&self, snapshots: usize) {
        self.retired.set(number(snapshots));
    }
}

/// The fill level of the channel to the writer thread.
#[derive(Debug)]
struct Channel<T>(Sender<T>);

impl<T: fmt::Debug + Send + 'static> Collector for Channel<T> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        gauge(&mut encoder, "channel_depth", "Updates queued for the writer thread.", number(self.0.len()))?;
        let capacity = number(self.0.capacity().unwrap_or(usize::MAX));
        gauge(
            &mut encoder,
            "channel_capacity",
            "Maximum number of queued updates; beyond it, sources wait.",
            capacity,
        )
    }
}
