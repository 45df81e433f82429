//! Metrics that the writer thread updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::scrape::collected;
use super::{number, registered};

/// One pod takes about ten microseconds, a hundred thousand of them a few seconds.
const SECONDS: [f64; 5] = [100e-6, 1e-3, 10e-3, 100e-3, 1.0];

/// The writer thread's metrics.
#[derive(Debug)]
pub(crate) struct Writing {
    refused: Counter,
    operations: Counter,
    duration: Histogram,
    retired: Gauge,
    oldest: Oldest,
    clock_steps: Counter,
}

/// For how long the oldest replaced snapshot has been the oldest. A scrape computes that itself, since the writer thread may sleep.
#[derive(Debug)]
struct Oldest {
    generation: Option<u64>,
    since: Arc<Since>,
}

/// Since when, for the scrape.
#[derive(Debug)]
struct Since {
    start: Instant,
    /// In milliseconds after the start, plus one. 0: there is none.
    millis: AtomicU64,
}

impl Since {
    fn new() -> Self {
        Self { start: Instant::now(), millis: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn seconds(&self) -> f64 {
        match self.millis.load(Ordering::Relaxed) {
            0 => 0.0,
            since => Duration::from_millis(self.now().saturating_sub(since)).as_secs_f64(),
        }
    }
}

impl Oldest {
    fn is(&mut self, generation: Option<u64>) {
        if self.generation != generation {
            self.generation = generation;
            let since = if generation.is_some() { self.since.now() } else { 0 };
            self.since.millis.store(since, Ordering::Relaxed);
        }
    }
}

impl Writing {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let duration = Histogram::new(SECONDS);
        let help = "Time to merge, apply and publish a batch";
        registry.register_with_unit("write_duration", help, Unit::Seconds, duration.clone());
        let help = "Replaced snapshots that are not freed yet";
        let retired = registered(registry, "retired_snapshots", help, Gauge::default());
        let since = Arc::new(Since::new());
        let shown = Arc::clone(&since);
        registry.register_collector(collected(move |to| {
            let help = "For how long the oldest of the retired snapshots has been the oldest; 0 without one.";
            to.gauge("retired_snapshot_age_seconds", help, shown.seconds());
        }));
        let mut counter = |name, help| registered(registry, name, help, Counter::default());
        Self {
            refused: counter("refused_pods", "Pods that the index refused"),
            operations: counter("operations", "Operations of the sources' updates"),
            duration,
            retired,
            oldest: Oldest { generation: None, since },
            clock_steps: counter("clock_steps", "Times that the wall clock was set by more than a second"),
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

    /// Records how often the wall clock was set. Returns whether it was set since the last time.
    pub(crate) fn stepped(&self, steps: u64) -> bool {
        let more = steps.saturating_sub(self.clock_steps.get());
        self.clock_steps.inc_by(more);
        more > 0
    }

    /// Records how many replaced snapshots are not freed yet, and which is the oldest of them.
    pub(crate) fn retired(&mut self, snapshots: usize, oldest: Option<u64>) {
        // In this order: whoever sees the number sees the age, too.
        self.oldest.is(oldest);
        self.retired.set(number(snapshots));
    }
}
