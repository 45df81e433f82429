//! The thread that watches over the others: it samples the workers of the runtime, notifies systemd's watchdog while every
//! part runs, reports parts that stop, and ends a process that does not end by itself.
//!
//! How is a worker noticed that stops while it sleeps? Nobody misses it then, until it is needed and does not wake up. So a task
//! wakes every worker each second ([`wake_workers`]), and only progress is a sign of life.

use std::convert::Infallible;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::RuntimeMetrics;

use super::systemd;
use crate::vitals::{BEAT, Heartbeat, Part, Vitals};

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

/// Gives the heartbeats of the tasks. Each time it also wakes a worker of the runtime that sleeps, so that both workers make
/// progress.
pub(crate) async fn wake_workers(of_tasks: Heartbeat) -> Infallible {
    loop {
        of_tasks.beat();
        // This worker runs the last one itself. The others are for whoever takes them: a worker that sleeps is woken.
        for _ in 0..2 {
            drop(tokio::spawn(async {}));
        }
        tokio::time::sleep(BEAT).await;
    }
}

/// What one look found out of a worker of the runtime. If the next look finds the same, the worker has done nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    /// How often it has fallen asleep and woken up.
    parks: u64,
    /// Grows every few tasks, also of a worker that never sleeps.
    busy: Duration,
}

impl Progress {
    fn of(metrics: &RuntimeMetrics, worker: usize) -> Self {
        let parks = metrics.worker_park_unpark_count(worker);
        Self { parks, busy: metrics.worker_total_busy_duration(worker) }
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
            if before[worker] != Some(now) {
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

    /// One worker is kept by a task that never yields. The other one makes progress, although nothing else gives it work.
    #[test]
    fn a_worker_that_a_task_blocks_makes_no_progress_and_the_other_one_does() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let metrics = runtime.metrics();
        let progress = || [0, 1].map(|worker| Progress::of(&metrics, worker));
        let beat = Vitals::new(Instant::now()).heartbeat(Part::Tasks);
        runtime.spawn(async { match wake_workers(beat).await {} });
        // Those that have made progress within three heartbeats.
        let lively = || {
            let before = progress();
            thread::sleep(3 * BEAT);
            let after = progress();
            [0, 1].into_iter().filter(|worker| before[*worker] != after[*worker]).count()
        };
        let until = |expected: usize| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while lively() != expected {
                assert!(Instant::now() < deadline, "never {expected} workers make progress");
            }
        };
        until(2);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        runtime.spawn(async move {
            let _ = blocked.recv();
        });
        until(1);
        drop(release);
        until(2);
    }
}
