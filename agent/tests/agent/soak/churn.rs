//! The load: pods are added, changed and removed in all three sources.

use std::time::Duration;

use super::site::{PODS, Site};

/// Manifests that come and go.
pub const CHURN: u64 = 20;

pub fn rest(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

pub fn change_manifests(site: &Site, turn: u64) {
    let name = format!("churn-{}", turn % CHURN);
    match turn / CHURN % 4 {
        0 | 1 => site.write(&name, turn),
        2 => site.spoil(&name),
        _ => site.delete(&name),
    }
    rest(60);
}

pub fn change_the_served_manifest(site: &Site, turn: u64) {
    site.serve(turn);
    rest(500);
}

pub fn change_pods(site: &Site, turn: u64) {
    // The same numbers again, in another order.
    let number = turn * 7919 % PODS;
    if turn.is_multiple_of(3) {
        site.remove(number);
    }
    site.put(number, turn);
    if turn % 250 == 249 {
        let server = &site.server;
        match turn / 250 % 4 {
            0 => server.close_watches(),
            1 => server.cut_connections(),
            2 => server.expire_watches(),
            _ => server.send_bookmarks(),
        }
        server.compact();
    }
    rest(40);
}
