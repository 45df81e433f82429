//! The agent's responses as far as commands read them. Unknown content is ignored: the agent may be newer.
#![allow(clippy::struct_field_names, reason = "the fields have the names of the response")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

pub(crate) use super::mirrors::{Mirrors, Pair};

/// The response of `/sources`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sources {
    #[serde(default)]
    pub(crate) node: String,
    pub(crate) ready: bool,
    pub(crate) sources: Vec<SeenSource>,
}

/// The state of one source.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SeenSource {
    pub(crate) source: String,
    pub(crate) origin: String,
    pub(crate) seen: bool,
    pub(crate) pods: u64,
    pub(crate) seconds_since_heard: Option<u64>,
    pub(crate) seconds_failing: Option<u64>,
    pub(crate) next_try: Option<Time>,
    pub(crate) waits_for: Option<String>,
    pub(crate) problems: Vec<Problem>,
}

/// A problem of the source.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub(crate) kind: String,
    pub(crate) origin: String,
    pub(crate) line: Option<u64>,
    pub(crate) field: Option<String>,
    pub(crate) message: String,
}

impl Problem {
    /// Whether the problem may hide a pod and needs attention.
    pub(crate) fn is_grave(&self) -> bool {
        !["skipped", "warning", "unhinted", "incomplete"].contains(&&*self.kind)
    }

    /// Leaves out the place if it is only `source`, the origin of the source.
    pub(crate) fn words(&self, source: &str) -> String {
        let place = match self.line {
            Some(line) => format!("{}:{line}: ", self.origin),
            None if self.origin == source => String::new(),
            None => format!("{}: ", self.origin),
        };
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        format!("{place}{field}{}", self.message)
    }
}
