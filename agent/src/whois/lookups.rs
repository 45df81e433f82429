//! Counts lookups by kind and outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::answer::Kind;

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found,
    Unknown,
    /// The query is not an identity.
    Invalid,
}

/// The counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookups(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By [`Kind`]: found, unknown.
    of_kind: [[AtomicU64; 2]; Kind::ALL.len()],
    invalid: AtomicU64,
}

impl Lookups {
    pub(super) fn count(&self, kind: Option<Kind>, outcome: Outcome) {
        self.counter(kind, outcome).fetch_add(1, Ordering::Relaxed);
    }

    /// Each kind and outcome, with their labels.
    pub(crate) fn series(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 2], u64)> + '_ {
        let labels = |kind, outcome| [("kind", kind), ("outcome", outcome)];
        let of_kind = Kind::ALL.into_iter().flat_map(move |kind| {
            [(Outcome::Found, "found"), (Outcome::Unknown, "unknown")].map(|(outcome, label)| {
                (labels(kind.label(), label), self.counter(Some(kind), outcome).load(Ordering::Relaxed))
            })
        });
        let invalid = (labels("none", "invalid"), self.0.invalid.load(Ordering::Relaxed));
        of_kind.chain([invalid])
    }

    fn counter(&self, kind: Option<Kind>, outcome: Outcome) -> &AtomicU64 {
        match (kind, outcome) {
            (Some(kind), Outcome::Found) => &self.0.of_kind[kind as usize][0],
            (Some(kind), Outcome::Unknown) => &self.0.of_kind[kind as usize][1],
            _ => &self.0.invalid,
        }
    }
}
