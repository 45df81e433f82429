//! Counts lookups by outcome.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The counts. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    found: Counter,
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

    pub(super) fn count(&self, outcomes: Outcomes) {
        self.found.inc_by(outcomes.found);
        self.unknown.inc_by(outcomes.unknown);
        self.invalid.inc_by(outcomes.invalid);
    }
}

/// How many lookups had which outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcomes {
    pub(super) found: u64,
    unknown: u64,
    invalid: u64,
}

impl Outcomes {
    /// A lookup found nothing: no pod has the identity, or the query is none.
    pub(super) fn failed(&mut self, is_identity: bool) {
        *if is_identity { &mut self.unknown } else { &mut self.invalid } += 1;
    }
}
