//! The `extract` block as written.

use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtractBlock {
    /// `None`: the processor's default.
    pub(super) metadata: Option<Vec<String>>,
    #[serde(default)]
    pub(super) annotations: Vec<RuleBlock>,
    #[serde(default)]
    pub(super) labels: Vec<RuleBlock>,
    #[serde(default)]
    pub(super) otel_annotations: bool,
    #[serde(default)]
    pub(super) deployment_name_from_replicaset: bool,
}

/// One of `labels` or `annotations`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleBlock {
    #[serde(default)]
    pub(super) tag_name: String,
    #[serde(default)]
    pub(super) key: String,
    #[serde(default)]
    pub(super) key_regex: String,
    #[serde(default)]
    pub(super) from: String,
}
