//! Runs the agent for minutes with all features on, 2,000 pods, 200 watchers, and the faults of a year. Its memory,
//! descriptors and threads must not grow, and each answer must equal what the sources have. Ignored by default,
//! because it takes long:
//!
//! ```text
//! .ci/run soak
//! ```
//!
//! Takes ten minutes, or `POD_INDEX_SOAK_SECONDS` (at least sixty). The API server runs in the test's process.

mod churn;
mod clients;
mod doors;
mod faults;
mod samples;
mod site;
mod truth;
mod watchers;

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::support::{Agent, Stop};

use self::churn::CHURN;
use self::faults::Faults;
use self::samples::{Sample, growth, sample};
use self::site::Site;
use self::watchers::{WATCHERS, Watchers};

/// A shorter run would be all warm-up.
const SHORTEST: u64 = 60;

/// One iteration of a worker.
type Work<'a> = Box<dyn Fn(u64) + Send + Sync + 'a>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: .ci/run soak"]
async fn ten_minutes_of_churn_leave_memory_descriptors_and_threads_as_they_were() {
    let seconds = std::env::var("POD_INDEX_SOAK_SECONDS").map_or(600, |seconds| seconds.parse().unwrap());
    assert!(seconds >= SHORTEST, "POD_INDEX_SOAK_SECONDS: {seconds} seconds are too few");
    let site = Site::new().await;
    let (agent, doors) = site.start();
    let watchers = Watchers::new();
    let (stop, gone) = (Stop::default(), Stop::default());
    let faults = Faults {
        site: &site,
        agent: &agent,
        doors: &doors,
        runtime: Handle::current(),
        // Two in each quarter, so that the quarters compare.
        cycle: Duration::from_secs(seconds) / 8,
        stop: &stop,
    };
    let works: [Work<'_>; 9] = [
        Box::new(|turn| churn::change_manifests(&site, turn)),
        Box::new(|turn| churn::change_the_served_manifest(&site, turn)),
        Box::new(|turn| churn::change_pods(&site, turn)),
        Box::new(|turn| clients::single_requests(&site, &doors, turn)),
        Box::new(|turn| clients::figures(&doors, turn)),
        Box::new(|turn| clients::lists(&site, &doors, turn)),
        Box::new(|turn| clients::on_one_connection(&doors, turn)),
        Box::new(|turn| clients::rude(&doors, turn)),
        Box::new(|turn| faults.next(turn)),
    ];
    let samples = std::thread::scope(|scope| {
        let (stop, gone, doors, watchers) = (&stop, &gone, &doors, &watchers);
        let (all_leave, all_stop) = (gone.at_the_end(), stop.at_the_end());
        let watching = (0..WATCHERS).map(|number| scope.spawn(move || watchers.run(number, doors, gone)));
        let watching: Vec<_> = watching.collect();
        let working: Vec<_> = works.iter().map(|work| scope.spawn(move || until(stop, work))).collect();
        let forgetting = scope.spawn(|| until(stop, &|_| faults.forget_log()));
        let failed = || watching.iter().chain(&working).any(ScopedJoinHandle::is_finished);
        let samples = watch(&agent, seconds, failed);
        assert_eq!(samples.len() as u64, seconds, "a worker has failed");
        // Nothing changes any more. After all faults, the agent and all watchers have the right pods.
        drop(all_stop);
        working.into_iter().chain([forgetting]).for_each(|worker| worker.join().unwrap());
        (0..CHURN).for_each(|number| site.delete(&format!("churn-{number}")));
        site.quiet(doors);
        watchers.all_know(&site.truth.now());
        drop(all_leave);
        samples
    });
    let grown = growth(&samples);
    assert!(grown.is_empty(), "{}", grown.join("; "));
}

/// Repeats the work until stopped.
fn until(stop: &Stop, work: &(dyn Fn(u64) + Send + Sync + '_)) {
    let mut turn = 0;
    while !stop.is_set() {
        work(turn);
        turn += 1;
    }
}

/// One sample per second, until `broken`.
fn watch(agent: &Agent, seconds: u64, broken: impl Fn() -> bool) -> Vec<Sample> {
    let start = Instant::now();
    let mut samples = Vec::new();
    for second in 1..=seconds {
        let due = start + Duration::from_secs(second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if broken() {
            break;
        }
        samples.push(sample(agent));
    }
    samples
}
