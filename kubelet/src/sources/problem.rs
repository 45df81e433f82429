//! What was wrong with something a source read, in a form that a person and a program can both use.

use std::fmt;

use serde::Serialize;

/// Something that a source could not use, and why. The rest of the source's pods are served all the same.
///
/// Displayed as `origin:line: field: message`, as compilers do, so that editors and terminals can jump there.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use pod_index_kubelet::sources::{NodeName, ProblemKind, manifest::{self, Origin}};
///
/// let bytes = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: web, image: nginx}]\n  serviceAccountName: robot\n";
/// let decoded = manifest::decode(bytes, Origin::File(Path::new("/pods/web.yaml")), &NodeName::new("n1"));
/// let problem = &decoded.problems[0];
/// assert_eq!(problem.kind(), ProblemKind::Reference);
/// assert_eq!((problem.line(), problem.field()), (Some(6), Some("spec.serviceAccountName")));
/// assert_eq!(
///     problem.to_string(),
///     "/pods/web.yaml:6: spec.serviceAccountName: static pods may not reference serviceaccounts",
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Problem {
    kind: ProblemKind,
    origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    message: String,
}

/// The kinds of [`Problem`]s, for counting and for deciding what to tell whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ProblemKind {
    /// The path does not exist.
    Missing,
    /// It exists and could not be read.
    Unreadable,
    /// It is larger than the limit.
    TooLarge,
    /// It was passed over on purpose: a sub-directory, a socket, what an editor left behind.
    Skipped,
    /// It could not be decoded as a pod.
    Syntax,
    /// It is a pod, and an invalid one.
    Invalid,
    /// It is a pod that names an object of the API server, which static pods may not do.
    Reference,
    /// Another pod of the same source bears the same name or UID, and counts instead.
    Duplicate,
    /// A mirror pod names a static pod that it cannot stand for.
    Claim,
    /// The server did not answer as it should have.
    Request,
    /// There are no file events, so what changes is seen at the next listing only. It hides no pod.
    Unhinted,
}

impl ProblemKind {
    /// A short word for the kind, in `snake_case`, for labels of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too_large",
            Self::Skipped => "skipped",
            Self::Syntax => "syntax",
            Self::Invalid => "invalid",
            Self::Reference => "reference",
            Self::Duplicate => "duplicate",
            Self::Claim => "claim",
            Self::Request => "request",
            Self::Unhinted => "unhinted",
        }
    }
}

impl Problem {
    /// A problem of a source of your own. `origin` is the file, the URL or the pod it is about.
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

    /// The same, with more to say.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// What kind of problem it is.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Where it was found: a path, or a URL.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The line in the manifest, counted from 1, where one is known.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.line
    }

    /// The field of the pod, in Kubernetes' notation, such as `spec.containers[0].image`, where one is known.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// What is wrong there.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
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
