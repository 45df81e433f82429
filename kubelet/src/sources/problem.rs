//! Problems with something that a source read, for people and programs.

use std::fmt;

use serde::Serialize;

use crate::text::shorten_to;

/// Something that a source could not use, and why. The source's other pods are unaffected.
///
/// Displayed like a compiler's message, as `origin:line: field: message`.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use pod_index_kubelet::sources::{NodeName, ProblemKind, manifest::{self, Origin}};
///
/// let bytes = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: web, image: nginx}]\n  serviceAccountName: robot\n";
/// let decoded = manifest::decode(bytes, Origin::File(Path::new("/pods/web.yaml")), &NodeName::new("n1"));
/// let problem = &decoded.problems[0];
/// assert_eq!(problem.kind, ProblemKind::Reference);
/// assert_eq!(problem.field.as_deref(), Some("spec.serviceAccountName"));
/// assert_eq!(
///     problem.to_string(),
///     "/pods/web.yaml: spec.serviceAccountName: static pods may not reference serviceaccounts",
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// Where it was found: a path or a URL.
    pub origin: String,
    /// The line in the manifest, counted from 1, of what the YAML parser refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The field of the pod in Kubernetes' notation, such as `spec.containers[0].image`, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The message.
    pub message: String,
}

kinds! {
/// The kinds of [`Problem`]s.
#[derive(PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProblemKind {
    /// The path does not exist.
    Missing = "missing",
    /// It exists and could not be read.
    Unreadable = "unreadable",
    /// It is larger than the limit.
    TooLarge = "too_large",
    /// It was skipped on purpose: a sub-directory, a socket, an editor's leftover.
    Skipped = "skipped",
    /// It could not be decoded as a pod.
    Syntax = "syntax",
    /// It is a pod, but an invalid one.
    Invalid = "invalid",
    /// It is a pod that names an object of the API server, which static pods may not do.
    Reference = "reference",
    /// Another pod of the same source has the same name or UID and is used instead.
    Duplicate = "duplicate",
    /// A mirror pod names a static pod that it cannot belong to.
    Claim = "claim",
    /// The server did not answer as expected.
    Request = "request",
    /// Something in a manifest is ignored, for example an unknown field, of which the kubelet's strict decoder warns, too; or
    /// the lists and mappings of a very large `spec`. The pod counts.
    Warning = "warning",
    /// There are no file events, so changes are seen only at the next listing. No pod is hidden.
    Unhinted = "unhinted",
    /// The list may lack pods: the kubelet was restarted, or was unreachable, and does not list the API server's pods
    /// yet. Those that it listed before stay.
    Incomplete = "incomplete",
    /// This program has a defect: it panicked on a manifest, on a pod, or while it read. The panic is in the log.
    Defect = "defect",
}
}

impl ProblemKind {
    /// Whether it may hide a pod and needs attention.
    #[must_use]
    pub fn is_grave(self) -> bool {
        !matches!(self, Self::Skipped | Self::Warning | Self::Unhinted | Self::Incomplete)
    }
}

impl Problem {
    /// A problem of your own source. `origin` is the file, URL or pod it is about.
    #[must_use]
    pub fn new(
        kind: ProblemKind,
        origin: impl Into<String>,
        line: Option<u64>,
        field: Option<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, origin: origin.into(), line, field, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Problem {}

/// Limit of problems that are listed one by one: a server that is a version ahead may have thousands. Far more than a node has
/// pods, so that nobody's pods hide the problem of another one.
const MOST_PROBLEMS: usize = 1_024;

/// The longest `namespace/name`, in bytes.
const LONGEST_NAME: usize = 63 + 1 + 253;

/// The problem with this field of a pod.
pub(super) fn undecodable(
    kind: ProblemKind,
    namespace: &str,
    name: &str,
    field: &str,
    message: &str,
) -> Problem {
    let field = (!field.is_empty()).then(|| field.to_owned());
    let pod = shorten_to(&format!("{namespace}/{name}"), LONGEST_NAME);
    Problem::new(kind, pod, None, field, message)
}

/// The problems of pods. If there are very many, the first ones and a summary.
pub(super) fn limited(problems: impl Iterator<Item = Problem>) -> Vec<Problem> {
    let mut problems: Vec<_> = problems.collect();
    let more = problems.split_off(MOST_PROBLEMS.min(problems.len()));
    // A grave kind, if there is any.
    if let Some(problem) = more.iter().find(|problem| problem.kind.is_grave()).or(more.first()) {
        let message = format!("and {} more pods have problems", more.len());
        problems.push(Problem::new(problem.kind, "pods", None, None, message));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_many_problems_is_grave_if_one_of_them_is() {
        let more = MOST_PROBLEMS + 2;
        for (grave, expected) in [(more, ProblemKind::Syntax), (10_000, ProblemKind::Warning)] {
            let kind = |pod: &usize| if *pod == grave { ProblemKind::Syntax } else { ProblemKind::Warning };
            let problems =
                limited((0..MOST_PROBLEMS + 4).map(|pod| undecodable(kind(&pod), "a", "b", "", "")));
            let last = problems.last().unwrap();
            let said = (problems.len(), last.kind, &*last.message);
            assert_eq!(said, (MOST_PROBLEMS + 1, expected, "and 4 more pods have problems"));
        }
    }

    /// A warning about one of them would otherwise hide the other one, whose pod is then missing in the log.
    #[test]
    fn the_longest_names_that_differ_at_their_end_are_two_problems() {
        let namespace = "n".repeat(63);
        let problem = |end: &str| {
            let name = format!("{}{end}", "x".repeat(252));
            undecodable(ProblemKind::Warning, &namespace, &name, "", "too large")
        };
        assert_ne!(problem("a"), problem("b"));
        assert!(problem("aa").origin.len() < 400);
    }
}
