//! Which attributes a record has: rules in the form of OpenTelemetry's `k8sattributes` processor.
//!
//! This module knows rules and objects. It does not know which objects belong together.

mod config;
mod fields;
mod objects;
mod pod;

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use self::config::ExtractBlock;
use self::fields::Fields;
pub(super) use self::objects::{FromKind, ObjectRules, UidAttribute, without};
pub(super) use self::pod::{Around, Owner, is_ignored};
use super::associate::{AssociationBlock, Associations};
use crate::text::yaml_problem;

/// Rules as users of OpenTelemetry's `k8sattributes` processor write them: its blocks `extract` and `pod_association`, as
/// they are.
///
/// # Examples
/// ```
/// use pod_index_kubelet::records::Rules;
///
/// let rules = Rules::parse(
///     "
/// extract:
///   metadata: [k8s.pod.name, k8s.deployment.name, service.name]
///   labels:
///     - { key_regex: app.kubernetes.io/(.*), tag_name: $$1, from: pod }
///   otel_annotations: true
/// pod_association:
///   - sources: [{ from: resource_attribute, name: k8s.pod.ip }]
///   - sources: [{ from: connection }]",
/// )?;
/// # drop(rules);
///
/// let refused = Rules::parse("extract: { metadata: [k8s.service.name] }").unwrap_err();
/// assert_eq!(refused.place, "extract.metadata[0]");
/// # Ok::<(), pod_index_kubelet::records::RulesError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// What is extracted.
    pub extract: Extract,
    /// By what a pod is found.
    pub associations: Associations,
}

/// Which names attributes have that OpenTelemetry has renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Conventions {
    /// As the processor names them by default: `k8s.pod.labels.app`.
    #[default]
    V0,
    /// As the semantic conventions name them, and the processor with its feature gate `EmitV1K8sConventions`:
    /// `k8s.pod.label.app`.
    V1,
}

/// The `extract` block: which attributes records have.
///
/// Its default is the processor's: `k8s.namespace.name`, `k8s.pod.name`, `k8s.pod.uid`, `k8s.pod.start_time`,
/// `k8s.deployment.name`, `k8s.node.name`, and of a container the image's name and tag.
///
/// # Names
/// | rule | attributes |
/// |---|---|
/// | `metadata` | as listed |
/// | `labels`, `annotations` with `key` | `tag_name`; without one `k8s.pod.labels.KEY`, by where it is from |
/// | with `key_regex` | likewise; in `tag_name`, `$1` and `$name` are groups of the expression (`$$1`, as in the collector's file, too) |
/// | `otel_annotations` | `resource.opentelemetry.io/NAME` becomes `NAME` |
///
/// At most 256 attributes come from the labels of an object, and 256 from its annotations; further ones are left out, in the
/// order of the rules and then of the keys.
///
/// What two rules name alike, the processor decides by their order, and so does this: of one object's rules the last
/// counts, of several objects' the pod's, then the container's, the Namespace's, the Node's, the owners'.
#[derive(Clone, Debug)]
pub struct Extract {
    pub(super) fields: Arc<Fields>,
    pub(super) objects: Arc<ObjectRules>,
    pub(super) deployment_name_from_replicaset: bool,
}

impl Default for Extract {
    fn default() -> Self {
        Self::new(ExtractBlock::default(), Conventions::default()).unwrap_or_else(|_| Self::none())
    }
}

/// Why rules are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesError {
    /// The line, if the YAML is at fault.
    pub line: Option<u64>,
    /// The place, such as `extract.labels[0].from`.
    pub place: String,
    /// What is wrong there.
    pub message: String,
}

impl RulesError {
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: None, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for RulesError {}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    extract: Option<ExtractBlock>,
    pod_association: Option<Vec<AssociationBlock>>,
    #[serde(default)]
    conventions: Conventions,
}

impl Rules {
    /// Reads rules from YAML or JSON: a mapping with `extract` and `pod_association`, as in the processor's configuration,
    /// each of which may be missing. A third key, `conventions`, is `v0` or `v1`: see [`Conventions`].
    ///
    /// # Errors
    /// If something is not supported: the error names it and its place.
    pub fn parse(yaml: &str) -> Result<Self, RulesError> {
        let file: File = serde_saphyr::from_str(yaml).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().map(|location| location.line());
            RulesError { line, place: String::new(), message: yaml_problem(error) }
        })?;
        let extract = Extract::new(file.extract.unwrap_or_default(), file.conventions)?;
        let associations = match file.pod_association {
            Some(blocks) => Associations::new(blocks)?,
            None => Associations::default(),
        };
        Ok(Self { extract, associations })
    }
}

impl Extract {
    /// No attributes: records have their pods, and what was joined to them.
    #[must_use]
    pub fn none() -> Self {
        Self { fields: Arc::default(), objects: Arc::default(), deployment_name_from_replicaset: false }
    }

    fn new(block: ExtractBlock, conventions: Conventions) -> Result<Self, RulesError> {
        let ExtractBlock { metadata, annotations, labels, otel_annotations, deployment_name_from_replicaset } =
            block;
        let fields = Fields::new(metadata, conventions)?;
        let objects = ObjectRules::new(labels, annotations, otel_annotations, conventions, &fields)?;
        Ok(Self { fields: Arc::new(fields), objects: Arc::new(objects), deployment_name_from_replicaset })
    }

    /// Whether a rule needs the Namespaces.
    #[must_use]
    pub fn needs_namespaces(&self) -> bool {
        self.objects.has(FromKind::Namespace) || self.fields.has("k8s.cluster.uid")
    }

    /// Whether a rule needs the Nodes.
    #[must_use]
    pub fn needs_nodes(&self) -> bool {
        self.objects.has(FromKind::Node) || self.fields.has("k8s.node.uid")
    }

    /// Whether a rule needs the owners of pods, such as `ReplicaSets`. Without them, the names of Deployments and
    /// `CronJobs` are derived where a pod's labels or a Job's name show them.
    #[must_use]
    pub fn needs_owners(&self) -> bool {
        let of_owners = ["k8s.deployment.uid", "k8s.cronjob.uid"];
        self.objects.has_owners() || of_owners.iter().any(|field| self.fields.has(field))
    }
}
