//! The answer to a query for which no pod was found: why not.

use pod_index::Time;
use serde_json::{Map, Value};

use super::answer::{Line, Retry};

/// Why no pod was found.
#[derive(Clone)]
pub(super) struct Unknown {
    /// `None`: the query is no identity.
    pub(super) kind: Option<&'static str>,
    pub(super) error: String,
    pub(super) retry: Retry,
    /// The index has no such pod now: it may have it later. So a request with `wait` waits.
    pub(super) is_missing: bool,
    /// Several pods may have had the key at the time of the event.
    pub(super) is_ambiguous: bool,
    /// The event happened before this time, and the agent knows only what is later.
    pub(super) known_since: Option<Time>,
    /// What is known of the time of the event, if no pod had the key then for certain.
    pub(super) then: Map<String, Value>,
}

impl Unknown {
    /// Asking again is of no use, unless the caller sets `retry`.
    pub(super) fn new(kind: Option<&'static str>, error: impl Into<String>) -> Self {
        Self {
            kind,
            error: error.into(),
            retry: Retry::Never,
            is_missing: false,
            is_ambiguous: false,
            known_since: None,
            then: Map::new(),
        }
    }

    /// The query is no identity.
    pub(super) fn invalid(error: impl Into<String>) -> Self {
        Self::new(None, error)
    }

    /// Appends the answer to `query`.
    pub(super) fn write(&self, query: &str, to: &mut Vec<u8>) {
        let mut line = Line::new(false, query, to);
        line.put("kind", self.kind);
        line.put("error", Some(&self.error));
        line.put("retry", Some(self.retry.as_str()));
        for (name, value) in &self.then {
            line.put(name, Some(value));
        }
        line.end();
    }
}
