//! Runs a model and counts what was explored; too few executions are a failure.

use std::time::Instant;

/// Minimum number of executions of a model.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Within two preemptions.
    pub two: usize,
    /// Within three.
    pub three: usize,
    /// Within five.
    pub five: usize,
    /// Without a bound, if the model is small enough.
    pub all: Option<usize>,
}

/// Prints how far a model got, even if it failed.
struct Counted {
    name: &'static str,
    bound: String,
    started: Instant,
    executions: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let executions = self.executions.load(std::sync::atomic::Ordering::Relaxed);
        let what = if std::thread::panicking() { "FAILED in execution" } else { "executions:" };
        let (name, bound, time) = (self.name, &self.bound, self.started.elapsed());
        println!("{name}: {bound}: {what} {executions}, {:.1} s", time.as_secs_f64());
    }
}

impl Counted {
    fn new(name: &'static str, bound: String) -> Self {
        Self { name, bound, started: Instant::now(), executions: std::sync::Arc::default() }
    }

    fn counting(&self, model: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
        let executions = std::sync::Arc::clone(&self.executions);
        move || {
            executions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            model();
        }
    }
}

/// Explores every interleaving of `model` within `LOOM_MAX_PREEMPTIONS` preemptions.
///
/// # Panics
/// If the model fails in one of them, if fewer than `floor` were explored, or if the environment requests an
/// exploration that would prove nothing.
#[cfg(pod_index_loom)]
pub fn explore(name: &'static str, floor: Floor, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    assert_eq!(builder.max_duration, None, "LOOM_MAX_DURATION stops early and passes");
    assert_eq!(builder.max_permutations, None, "LOOM_MAX_PERMUTATIONS stops early and passes");
    let (bound, floor) = match builder.preemption_bound {
        None => ("no bound".to_owned(), floor.all.expect("too large to be explored without a bound")),
        Some(2) => ("bound 2".to_owned(), floor.two),
        Some(3) => ("bound 3".to_owned(), floor.three),
        Some(5) => ("bound 5".to_owned(), floor.five),
        Some(bound) => panic!("how many executions {bound} preemptions must have is not known"),
    };
    let counted = Counted::new(name, bound);
    builder.check(counted.counting(model));
    let executions = counted.executions.load(std::sync::atomic::Ordering::Relaxed);
    assert!(executions >= floor, "{name}: only {executions} executions, there should be {floor}");
}

/// Runs `model` under as many random schedules.
#[cfg(pod_index_shuttle)]
pub fn schedules(name: &'static str, count: usize, model: impl Fn() + Send + Sync + 'static) {
    let counted = Counted::new(name, "random schedules".to_owned());
    shuttle::check_random(counted.counting(model), count);
    let executions = counted.executions.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(executions, count, "{name}: all schedules were run");
}
