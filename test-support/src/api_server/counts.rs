//! What the server was asked, and waiting for it.

use std::collections::{BTreeMap, BTreeSet};

use super::request::Verb;
use super::store::Key;
use super::write::Write;
use super::{ApiServer, DEADLINE};

impl ApiServer {
    /// Number of requests of this kind.
    pub fn requests(&self, verb: Verb) -> u64 {
        self.shared.lock().counts[verb as usize]
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open_connections
    }

    /// Number of connections opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// All writes in order, including refused ones.
    pub fn written(&self) -> Vec<Write> {
        self.shared.lock().writes.clone()
    }

    /// The clients' `User-Agent`s.
    pub fn user_agents(&self) -> BTreeSet<String> {
        self.shared.lock().user_agents.clone()
    }

    /// The paths that this server does not know, with their queries.
    pub fn unparsed(&self) -> Vec<String> {
        self.shared.lock().unparsed.clone()
    }

    /// Number of metadata-only lists that named a version: those of a client that compares.
    pub fn comparisons(&self) -> u64 {
        self.shared.lock().comparisons
    }

    /// The version that each list named, except comparisons. A list of version 0 comes from the cache.
    pub fn listed_versions(&self) -> Vec<Option<u64>> {
        self.shared.lock().listed_versions.clone()
    }

    /// Number of write requests.
    pub fn writes(&self) -> u64 {
        self.requests(Verb::Create) + self.requests(Verb::Replace) + self.requests(Verb::Delete)
    }

    /// Number of open watches.
    pub fn open_watches(&self) -> usize {
        self.shared.lock().open_watches
    }

    /// Number of open watches on each object watched by name; the others are under an empty name.
    pub fn open_watches_by_object(&self) -> BTreeMap<Key, usize> {
        self.shared.lock().open_by_object.clone()
    }

    /// Number of watches opened so far, grouped likewise.
    pub fn begun_watches_by_object(&self) -> BTreeMap<Key, u64> {
        self.shared.lock().begun_by_object.clone()
    }

    /// Waits for this many requests of this kind.
    pub async fn seen(&self, verb: Verb, count: u64) {
        self.until(&format!("{count} of {verb:?}"), |server| server.requests(verb) >= count).await;
    }

    /// Waits for this many open watches.
    pub async fn watched_by(&self, watches: usize) {
        self.until(&format!("{watches} open watches"), |server| server.open_watches() == watches).await;
    }

    /// Waits until this holds. Checked at each change.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        let wait = async {
            while !holds(self) {
                changes.changed().await.unwrap();
            }
        };
        assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "never came: {what}");
    }
}
