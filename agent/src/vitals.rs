//! Heartbeats: whether the threads on which everything else depends still run.
//!
//! A thread that hangs does not end, so nothing else notices it: the agent would answer for ever with pods as they were
//! when its writer stopped. Therefore each vital part gives a heartbeat every [`BEAT`]. One that gave none for [`LIMIT`]
//! counts as stopped. Then `/livez` and `/readyz` fail, systemd's watchdog gets no more notifications, and what started the
//! agent restarts it.
//!
//! A heartbeat is one store, and reading them takes no lock: a part that stops in the middle of either must not stop those
//! who ask.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::metrics::Scrape;

/// How often a part gives a heartbeat.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// A part that gave no heartbeat for this long has stopped. Long enough for a set of 100,000 pods on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A part without which the agent answers wrongly, or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The thread that writes the index.
    Index,
    /// The thread that follows the index, for watches and events.
    Changes,
    /// The thread that waits for the end of the agent.
    Main,
    /// The thread that receives signals.
    Signals,
    /// The thread that watches over the others.
    Vitals,
    /// The tasks of the runtime: one that sleeps is woken.
    Tasks,
    /// The threads of the runtime.
    Worker0,
    Worker1,
}

impl Part {
    pub(crate) const ALL: [Self; 8] = [
        Self::Index,
        Self::Changes,
        Self::Main,
        Self::Signals,
        Self::Vitals,
        Self::Tasks,
        Self::Worker0,
        Self::Worker1,
    ];

    /// The threads of the runtime, in its order.
    pub(crate) const WORKERS: [Self; 2] = [Self::Worker0, Self::Worker1];

    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Changes => "changes",
            Self::Main => "main",
            Self::Signals => "signals",
            Self::Vitals => "vitals",
            Self::Tasks => "tasks",
            Self::Worker0 => "worker-0",
            Self::Worker1 => "worker-1",
        }
    }
}

/// The heartbeats of all parts. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Vitals(Arc<Beats>);

#[derive(Debug)]
struct Beats {
    began: Instant,
    /// Of each part, in the order of [`Part::ALL`], the milliseconds from `began` to its last heartbeat; [`NONE`] before
    /// the first.
    last: [AtomicU64; Part::ALL.len()],
}

/// No heartbeat yet. A part counts from its first one.
const NONE: u64 = u64::MAX;

impl Vitals {
    /// No part has given a heartbeat yet.
    pub(crate) fn new(began: Instant) -> Self {
        Self(Arc::new(Beats { began, last: [const { AtomicU64::new(NONE) }; Part::ALL.len()] }))
    }

    /// What this part calls at least every [`BEAT`].
    pub(crate) fn heartbeat(&self, of: Part) -> Heartbeat {
        Heartbeat { vitals: self.clone(), of }
    }

    /// The time since the last heartbeat of each part that has begun.
    fn ages(&self, now: Instant) -> impl Iterator<Item = Age> + '_ {
        Part::ALL.into_iter().zip(&self.0.last).filter_map(move |(part, last)| {
            let last = Some(last.load(Ordering::Relaxed)).filter(|last| *last != NONE)?;
            let age = now.saturating_duration_since(self.0.began).saturating_sub(Duration::from_millis(last));
            Some(Age { part, age })
        })
    }

    /// The parts that have stopped.
    pub(crate) fn stopped(&self, now: Instant) -> Vec<Age> {
        self.ages(now).filter(|part| part.age > LIMIT).collect()
    }

    /// Whether every part runs. Takes no memory.
    pub(crate) fn are_well(&self, now: Instant) -> bool {
        self.ages(now).all(|part| part.age <= LIMIT)
    }

    /// The age of each heartbeat.
    pub(crate) fn show(&self, now: Instant, to: &mut Scrape<'_>) {
        let series = self.ages(now).map(|Age { part, age }| ([("part", part.name())], age.as_secs_f64()));
        let help = "Seconds since the last heartbeat of each part without which the agent cannot work.";
        to.gauges("heartbeat_age_seconds", help, series);
    }
}

/// How long ago a part gave its last heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Age {
    pub(crate) part: Part,
    age: Duration,
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no heartbeat of {} for {} s", self.part.name(), self.age.as_secs())
    }
}

/// Gives the heartbeats of one part.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    vitals: Vitals,
    of: Part,
}

impl Heartbeat {
    /// This part runs.
    pub(crate) fn beat(&self) {
        self.beat_at(Instant::now());
    }

    pub(crate) fn beat_at(&self, now: Instant) {
        let Beats { began, last } = &*self.vitals.0;
        let now = u64::try_from(now.saturating_duration_since(*began).as_millis()).unwrap_or(NONE - 1);
        last[self.of as usize].store(now, Ordering::Relaxed);
    }

    /// Gives a heartbeat every [`BEAT`] as long as this is polled.
    pub(crate) async fn keep(self) -> Infallible {
        loop {
            self.beat();
            tokio::time::sleep(BEAT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_stopped_once_its_heartbeat_is_older_than_the_limit() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let vitals = Vitals::new(began);
        assert!(vitals.are_well(at(3600)), "no part has begun");
        for part in Part::ALL {
            vitals.heartbeat(part).beat_at(at(100));
        }
        assert_eq!((vitals.stopped(at(120)), vitals.are_well(at(120))), (vec![], true));
        for stopped in Part::ALL {
            for part in Part::ALL.into_iter().filter(|part| *part != stopped) {
                vitals.heartbeat(part).beat_at(at(121));
            }
            let found = vitals.stopped(at(121));
            assert_eq!(found.iter().map(|age| age.part).collect::<Vec<_>>(), [stopped]);
            assert!(!vitals.are_well(at(121)));
            assert_eq!(found[0].to_string(), format!("no heartbeat of {} for 21 s", stopped.name()));
            vitals.heartbeat(stopped).beat_at(at(121));
            assert!(vitals.are_well(at(121)), "it runs again");
            for part in Part::ALL {
                vitals.heartbeat(part).beat_at(at(100));
            }
        }
    }
}
