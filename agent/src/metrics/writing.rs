//! Metrics that the writer thread updates.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{number, registered};

/// One pod takes about ten microseconds, a hundred thousand of them a few seconds.
const SECONDS: [f64; 5] = [100e-6, 1e-3, 10e-3, 100e-3, 1.0];

/// The writer thread's counters. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    refused: Counter,
    operations: Counter,
    duration: Histogram,
    retired: Gauge,
}

impl Writing {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let duration = Histogram::new(SECONDS);
        let help = "Time to merge, apply and publish a batch";
        registry.register_with_unit("write_duration", help, Unit::Seconds, duration.clone());
        let help = "Replaced snapshots that readers still hold";
        let retired = registered(registry, "retired_snapshots", help, Gauge::default());
        let mut counter = |name, help| registered(registry, name, help, Counter::default());
        Self {
            refused: counter("refused_pods", "Pods that the index refused"),
            operations: counter("operations", "Operations of the sources' updates"),
            duration,
            retired,
        }
    }

    /// Records a finished batch.
    pub(crate) fn applied(&self, operations: usize, took: Duration) {
        self.operations.inc_by(operations as u64);
        self.duration.observe(took.as_secs_f64());
    }

    /// Records a pod that the index would refuse.
    pub(crate) fn refused(&self, is_refused: bool) {
        self.refused.inc_by(u64::from(is_refused));
    }

    /// Records how many replaced snapshots are still held.
    pub(crate) fn retired(&self, snapshots: usize) {
        self.retired.set(number(snapshots));
    }
}
