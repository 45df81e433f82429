//! Counts lookups by outcome.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The counts. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    pub(super) found: Counter,
    unknown: Counter,
    /// The query is not an identity.
    invalid: Counter,
}

impl Lookups {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counts = Family::<[(&str, &str); 1], Counter>::default();
        let [found, unknown, invalid] = ["found", "unknown", "invalid"]
            .map(|outcome| counts.get_or_create(&[("outcome", outcome)]).clone());
        registry.register("lookups", "Pods that clients looked up, by outcome", counts);
        Self { found, unknown, invalid }
    }

    pub(super) fn failed(&self, is_identity: bool) {
        if is_identity { &self.unknown } else { &self.invalid }.inc();
    }
}
