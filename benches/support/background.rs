//! Background threads during measurements of readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::designs::{Read, Write};
use crate::workload::{Pod, Workload};

/// The writer's pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// No writer.
    Idle,
    /// This many updates per second, each published alone.
    PerSecond(u32),
    /// One update after the other.
    FullSpeed,
    /// One replacement of all pods after the other.
    Sets,
}

impl Pace {
    /// Its name in the reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "no writer",
            Self::PerSecond(_) => "1,000 updates/s",
            Self::FullSpeed => "a writer at full speed",
            Self::Sets => "SetPods back to back",
        }
    }
}

/// All pods of a node in two versions, so that every update stores a new object.
pub struct Versions {
    pods: [Vec<Arc<Pod>>; 2],
    mirrors: Vec<Arc<Pod>>,
}

impl Versions {
    /// Two versions of these pods.
    pub fn new(workload: &mut Workload) -> Arc<Self> {
        let pods = [workload.updates(), workload.updates()];
        Arc::new(Self { pods, mirrors: workload.mirrors.clone() })
    }

    /// One pod after the other, first in one version, then in the other.
    fn one(&self, at: usize) -> &Arc<Pod> {
        let len = self.pods[0].len();
        &self.pods[at / len % 2][at % len]
    }

    /// All pods, alternating between the two versions.
    fn all(&self, at: usize) -> Vec<Arc<Pod>> {
        self.pods[at % 2].iter().chain(&self.mirrors).cloned().collect()
    }
}

/// A thread that repeats something until it is stopped.
pub struct Background<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts a thread with its state.
    pub fn new(mut on: T, mut work: impl FnMut(&mut T) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                work(&mut on);
            }
            on
        });
        Self { stop, thread }
    }

    /// Starts a thread that works this often per second.
    pub fn paced(on: T, times: u32, mut work: impl FnMut(&mut T) + Send + 'static) -> Self {
        let mut due = Instant::now();
        Self::new(on, move |on| {
            work(on);
            due += Duration::from_secs(1) / times;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        })
    }

    /// Stops the thread and returns its state.
    ///
    /// # Panics
    /// If it has panicked.
    #[must_use]
    pub fn stop(self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread is well")
    }

    /// A writer at this pace. Returns the writer if there is nothing for it to do.
    ///
    /// # Errors
    /// The writer, if the pace is [`Pace::Idle`].
    pub fn writing(writer: T, pace: Pace, pods: &Arc<Versions>) -> Result<Self, T>
    where
        T: Write,
    {
        let pods = Arc::clone(pods);
        let mut at = 0;
        Ok(match pace {
            Pace::Idle => return Err(writer),
            Pace::FullSpeed => Self::new(writer, move |writer| {
                at += 1;
                writer.update(pods.one(at));
            }),
            Pace::PerSecond(updates) => Self::paced(writer, updates, move |writer| {
                at += 1;
                writer.update(pods.one(at));
            }),
            Pace::Sets => Self::new(writer, move |writer| {
                at += 1;
                writer.set(pods.all(at));
            }),
        })
    }

    /// A reader that reads all pods and translations again and again.
    pub fn scanning<K>(reader: T) -> Self
    where
        T: Read<K>,
    {
        Self::new(reader, |reader| {
            std::hint::black_box(reader.scan());
        })
    }
}
