//! Runs the agent for minutes with all features on and everything changing. Its memory, descriptors and
//! threads must not grow. Ignored by default, because it takes long:
//!
//! ```text
//! .ci/run soak
//! ```
//!
//! Takes ten minutes, or `POD_INDEX_SOAK_SECONDS` (at least thirty). In any case it writes `soak.csv` and
//! `soak.svg` to `target/soak`. The API server runs in the test's process.

mod churn;
mod plot;
mod samples;

use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::api_server::ApiServer;
use crate::support::{Agent, Stop};

use self::churn::{Counts, Site};
use self::samples::{Sample, growth};

/// A shorter run would be all warm-up.
const SHORTEST: u64 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: .ci/run soak"]
async fn ten_minutes_of_churn_leave_memory_descriptors_and_threads_as_they_were() {
    let seconds = std::env::var("POD_INDEX_SOAK_SECONDS").map_or(600, |seconds| seconds.parse().unwrap());
    assert!(seconds >= SHORTEST, "POD_INDEX_SOAK_SECONDS: {seconds} seconds are too few");
    let site = Site::new(ApiServer::start().await);
    let agent = site.start();
    let (counts, stop) = (Counts::default(), Stop::default());
    let samples = std::thread::scope(|scope| {
        let stop = &stop;
        let _end = stop.at_the_end();
        let works = site.works(&agent, &counts).into_iter();
        let working: Vec<_> = works.map(|work| scope.spawn(move || until(stop, &work))).collect();
        watch(&agent, &counts, seconds, || working.iter().any(ScopedJoinHandle::is_finished))
    });

    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("target/soak");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("soak.csv"), samples::csv(&samples)).unwrap();
    std::fs::write(directory.join("soak.svg"), plot::svg(&samples)).unwrap();
    assert_eq!(samples.len() as u64, seconds, "a worker has failed");
    println!("{}\n{}", counts.report(), samples::report(&samples));
    println!("{} watches of Secrets", site.watches_begun());
    // After all failures, it has the right pods.
    site.quiet(&agent);
    let grown = growth(&samples);
    assert!(grown.is_empty(), "{}; see {}", grown.join("; "), directory.display());
}

/// Repeats the work until stopped.
fn until(stop: &Stop, work: &churn::Work<'_>) {
    let mut turn = 0;
    while !stop.is_set() {
        work(turn);
        turn += 1;
    }
}

/// One sample per second, until `broken`.
fn watch(agent: &Agent, counts: &Counts, seconds: u64, broken: impl Fn() -> bool) -> Vec<Sample> {
    let start = Instant::now();
    let mut samples = Vec::new();
    for second in 1..=seconds {
        let due = start + Duration::from_secs(second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if broken() {
            break;
        }
        samples.push(Sample::take(agent, second, counts));
    }
    samples
}
