//! The load: pods are added, changed and removed in all three sources.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::site::{PODS, Site};

/// Manifests that come and go.
pub const CHURN: u64 = 20;

/// The counts so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub requests: AtomicU64,
    pub changes: AtomicU64,
    /// Clients that disconnected early or never finished a request.
    pub rude: AtomicU64,
    /// Times that the API server ended its watches.
    pub interruptions: AtomicU64,
}

pub fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub fn rest(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

impl Counts {
    pub fn report(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} requests answered, {} clients that left or hung, {} changes of pods, {} times watches ended",
            of(&self.requests),
            of(&self.rude),
            of(&self.changes),
            of(&self.interruptions)
        )
    }
}

pub fn change_manifests(site: &Site, turn: u64, counts: &Counts) {
    let name = format!("churn-{}", turn % CHURN);
    match turn / CHURN % 4 {
        0 | 1 => site.write(&name, turn),
        2 => site.spoil(&name),
        _ => site.delete(&name),
    }
    one(&counts.changes);
    rest(60);
}

pub fn change_the_served_manifest(site: &Site, turn: u64, counts: &Counts) {
    site.serve(turn);
    one(&counts.changes);
    rest(500);
}

pub fn change_pods(site: &Site, turn: u64, counts: &Counts) {
    // The same numbers again, in another order.
    let number = turn * 7919 % PODS;
    if turn.is_multiple_of(3) {
        site.remove(number);
    }
    site.put(number, turn);
    one(&counts.changes);
    if turn % 250 == 249 {
        let server = &site.server;
        match turn / 250 % 4 {
            0 => server.close_watches(),
            1 => server.cut_connections(),
            2 => server.expire_watches(),
            _ => server.send_bookmarks(),
        }
        server.compact();
        one(&counts.interruptions);
    }
    rest(40);
}
