//! The thread that watches over the others: it samples the workers of the runtime, notifies systemd's watchdog while every
//! part runs, reports parts that stop, and ends a process that does not end by itself.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::RuntimeMetrics;

use super::systemd;
use crate::vitals::{BEAT, Part, Vitals};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// When the process must have ended. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    began: Instant,
    /// Milliseconds after `began`; the greatest number without a deadline.
    at: Arc<AtomicU64>,
}

impl Deadline {
    /// There is none yet.
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, at: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// The process must have ended after this time, or earlier if it was said earlier.
    pub(crate) fn set(&self, after: Duration) {
        self.at.fetch_min(millis(self.began.elapsed() + after), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        millis(self.began.elapsed()) >= self.at.load(Ordering::Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What one look found out of a worker of the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    /// How often it has fallen asleep and woken up. Odd: it sleeps until there is work.
    parks: u64,
    /// Grows every few tasks, also of a worker that never sleeps.
    busy: Duration,
}

impl Progress {
    fn of(metrics: &RuntimeMetrics, worker: usize) -> Self {
        let parks = metrics.worker_park_unpark_count(worker);
        Self { parks, busy: metrics.worker_total_busy_duration(worker) }
    }

    fn is_asleep(self) -> bool {
        self.parks % 2 == 1
    }
}

/// Watches for ever.
pub(crate) fn watch(vitals: &Vitals, workers: &RuntimeMetrics, deadline: &Deadline) {
    let own = vitals.heartbeat(Part::Vitals);
    let beats = Part::WORKERS.map(|part| vitals.heartbeat(part));
    let mut before = [None; Part::WORKERS.len()];
    let mut stopped = Vec::new();
    let has_watchdog = systemd::has_watchdog();
    let mut notified = None::<Instant>;
    loop {
        // First, and without memory: a thread that has stopped may hold the allocator's lock.
        if deadline.is_over() {
            let _ = kill_process(getpid(), Signal::KILL);
            process::abort();
        }
        own.beat();
        for (worker, beat) in beats.iter().enumerate().take(workers.num_workers()) {
            let now = Progress::of(workers, worker);
            if now.is_asleep() || before[worker] != Some(now) {
                beat.beat();
            }
            before[worker] = Some(now);
        }
        let now = Instant::now();
        if vitals.are_well(now) {
            if has_watchdog && notified.is_none_or(|notified| now - notified >= BEAT) {
                systemd::notify("WATCHDOG=1");
                notified = Some(now);
            }
            if !stopped.is_empty() {
                tracing::warn!("every part of the agent runs again");
                stopped.clear();
            }
        } else {
            let found = vitals.stopped(now);
            for age in &found {
                if !stopped.contains(&age.part) {
                    tracing::error!("{age}: /livez fails, so that the agent is restarted");
                }
            }
            stopped = found.iter().map(|age| age.part).collect();
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_can_only_become_earlier() {
        let deadline = Deadline::new(Instant::now());
        assert!(!deadline.is_over());
        deadline.set(Duration::from_secs(3600));
        assert!(!deadline.is_over());
        deadline.set(Duration::ZERO);
        deadline.set(Duration::from_secs(3600));
        assert!(deadline.is_over());
    }

    /// One worker is kept by a task that never yields, the other by nothing.
    #[test]
    fn a_worker_that_a_task_blocks_makes_no_progress_and_the_other_one_does() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        runtime.spawn(async move {
            let _ = blocked.recv();
        });
        let metrics = runtime.metrics();
        let progress = || [0, 1].map(|worker| Progress::of(&metrics, worker));
        // Until the blocked one is awake, and the other one asleep.
        let deadline = Instant::now() + Duration::from_secs(60);
        while progress().iter().filter(|progress| progress.is_asleep()).count() != 1 {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(10));
        }
        let before = progress();
        runtime
            .block_on(async { tokio::spawn(tokio::time::sleep(Duration::from_millis(20))).await.unwrap() });
        thread::sleep(Duration::from_millis(100));
        let after = progress();
        let stuck = [0, 1].map(|worker| !after[worker].is_asleep() && before[worker] == after[worker]);
        assert_eq!(stuck.iter().filter(|stuck| **stuck).count(), 1, "{before:?} {after:?}");
        drop(release);
    }
}
