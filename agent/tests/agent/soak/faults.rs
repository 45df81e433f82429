//! The faults of a year on a node, one after another: the API server restarts, connections fall silent, the clock
//! jumps, the disk is full, certificates are renewed.

use std::fs;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pod_index_test_support::proxy::Forwards;
use tokio::runtime::Handle;

use super::doors::Doors;
use super::site::Site;
use crate::metrics::value;
use crate::support::{Agent, PATIENCE, Stop};

/// The API server's outage when it restarts.
const RESTART: Duration = Duration::from_secs(3);
/// A pod that is only changed to see whether the agent follows the API server.
const PROBE: u64 = 1_000_000;
const CHECKED: &str = "pod_index_source_last_check_timestamp_seconds{source=\"http\"} ";

/// The faults of a run, and how often each comes.
pub struct Faults<'a> {
    pub site: &'a Site,
    pub agent: &'a Agent,
    pub doors: &'a Doors,
    /// The double's runtime.
    pub runtime: Handle,
    /// Each fault occurs once within this time.
    pub cycle: Duration,
    pub stop: &'a Stop,
}

impl Faults<'_> {
    /// One fault after another, evenly over the cycle.
    pub fn next(&self, turn: u64) {
        let due = Instant::now() + self.cycle / 5;
        match turn % 5 {
            0 => self.restart_the_api_server(turn),
            1 => self.fill_the_disk(),
            2 => self.renew_the_certificate(),
            3 => self.move_the_clock(),
            _ => self.fall_silent(turn),
        }
        self.wait(due.saturating_duration_since(Instant::now()));
    }

    /// Nothing else reads the log.
    pub fn forget_log(&self) {
        self.agent.forget_log();
        self.wait(Duration::from_millis(500));
    }

    /// Waits, unless the test ends.
    fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.stop.is_set() {
            std::thread::sleep(Duration::from_millis(50).min(time));
        }
    }

    /// Changes a pod on the API server and waits until the agent shows it.
    fn probe(&self, version: u64) {
        self.site.put(PROBE, version);
        let shown = format!("\"version\":\"{version}\"");
        self.doors.until(&format!("/pods/default/pod-{PROBE}"), |answer| answer.body.contains(&shown));
    }

    fn restart_the_api_server(&self, turn: u64) {
        self.site.truth.outage(|| {
            self.site.server.refuse();
            self.wait(RESTART);
            self.runtime.block_on(self.site.server.accept());
            self.probe(turn);
        });
    }

    /// Open connections to the API server stop forwarding data. New connections work.
    fn fall_silent(&self, turn: u64) {
        self.site.truth.outage(|| {
            self.site.proxy.silence(Forwards::NOTHING);
            self.probe(turn);
        });
    }

    /// The disk of the checkpoints has no space for a while.
    fn fill_the_disk(&self) {
        if !self.site.has_disk {
            return;
        }
        let ballast = self.site.disk(self.agent).join("ballast");
        let mut file = fs::File::create(&ballast).unwrap();
        let mut is_noticed = false;
        let start = Instant::now();
        while !is_noticed || start.elapsed() < self.cycle / 10 {
            // Repeat it: the checkpoints of removed pods make space.
            let full = loop {
                if let Err(error) = file.write_all(&[0; 4096]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
            is_noticed |= self.checkpoint_problems() > 0;
            assert!(start.elapsed() < PATIENCE, "the agent reports no full disk");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(file);
        fs::remove_file(ballast).unwrap();
        let end = Instant::now();
        while self.checkpoint_problems() > 0 {
            assert!(end.elapsed() < PATIENCE, "the agent still reports a full disk");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn checkpoint_problems(&self) -> u64 {
        value(&self.doors.get(1, "/metrics").body, "pod_index_checkpoint_problems")
    }

    fn renew_the_certificate(&self) {
        let certificate = self.site.pki.renew("node", "127.0.0.1");
        self.site.pki.client().meets(self.agent, &certificate);
    }

    /// Sets the clock an hour ahead, a day back, and then to the right time.
    fn move_the_clock(&self) {
        if !self.site.has_clock {
            return;
        }
        for ahead in [3600, -86_400, 0] {
            self.site.set_clock(ahead);
            // The agent notes when it last requested the manifest from its URL.
            self.doors.until("/metrics", |answer| {
                let checked = answer.body.lines().find_map(|line| line.strip_prefix(CHECKED)).unwrap();
                let shown: f64 = checked.parse().unwrap();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
                (shown - now - f64::from(ahead)).abs() < 60.0
            });
            self.wait(self.cycle / 20);
        }
    }
}
