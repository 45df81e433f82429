//! Decodes bytes into pods: formats, kinds, and the document that a problem belongs to.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;

use super::field::Field;
use super::locate::{Locator, MOST_DOCUMENTS, most_replaced, most_text, options};
use super::origin::Origin;
use super::validate::Objection;
use super::{api_objects, defaults, validate};
use crate::sources::{NodeName, Problem, ProblemKind, Source, undecodable};

/// The content of a manifest.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The valid pods, with the kubelet's defaults applied, in the order of the manifest.
    pub pods: Vec<Pod>,
    /// The problems of the others.
    pub problems: Vec<Problem>,
}

/// Decodes a manifest into pods of `node`, as the [module](super) describes.
///
/// A manifest without any document (empty, or comments only) is a problem too.
///
/// # Complexity
/// Linear in the length of `bytes`. Deep nesting, alias bombs and the like are refused early. With every
/// alias replaced, the text of a YAML document may have twice the length of `bytes`, or 4 MiB if that is more. Its
/// aliases may stand for 400,000 YAML events in all documents together, or for 10,000 in each if that is more: one for
/// each scalar or key, two for each list or mapping. At most 1,024 documents are read.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use pod_index_kubelet::sources::{NodeName, manifest::{self, Origin}};
///
/// let bytes = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},
///                  "spec":{"containers":[{"name":"web","image":"nginx"}]}}"#;
/// let decoded = manifest::decode(bytes, Origin::File(Path::new("/pods/web.json")), &NodeName::new("n1"));
/// assert!(decoded.problems.is_empty());
/// assert_eq!(decoded.pods[0].metadata.name.as_deref(), Some("web-n1"));
/// ```
///
/// Kubelet: `tryDecodeSinglePod`, `tryDecodePodList` (`pkg/kubelet/config/common.go`).
#[doc(alias = "tryDecodeSinglePod")]
#[doc(alias = "tryDecodePodList")]
#[must_use]
pub fn decode(bytes: &[u8], origin: Origin<'_>, node: &NodeName) -> Decoded {
    let mut decoding =
        Decoding { bytes, origin, node, locator: None, unlisted: 0, length: 0, decoded: Decoded::default() };
    decoding.run();
    decoding.summarize_the_rest();
    decoding.decoded
}

/// Limit of problems reported for one manifest: ten megabytes of nonsense must not become a gigabyte of
/// messages.
const MOST_PROBLEMS: usize = 16;

/// A `Pod`, a `PodList`, or neither.
///
/// Not k8s-openapi's own `Pod`: that one accepts a missing `kind` and refuses a list.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<ObjectMeta>,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
    items: Option<Vec<Document>>,
}

struct Decoding<'a> {
    bytes: &'a [u8],
    origin: Origin<'a>,
    node: &'a NodeName,
    /// Created when the first problem needs a line.
    locator: Option<Locator>,
    /// Number of problems beyond [`MOST_PROBLEMS`].
    unlisted: usize,
    /// Length of the documents so far as JSON.
    length: usize,
    decoded: Decoded,
}

impl Decoding<'_> {
    fn run(&mut self) {
        // As in Go's `hasJSONPrefix`. If JSON refuses it, it may still be a YAML flow mapping.
        let json = self.bytes.trim_ascii_start().starts_with(b"{");
        if json && let Some(document) = self.json() {
            return self.document(document, 0);
        }
        let mut reader = self.bytes;
        let mut documents = 0;
        for document in serde_saphyr::read_with_options::<_, Value>(&mut reader, options(self.bytes)) {
            if documents == MOST_DOCUMENTS {
                let message = format!("has more than {MOST_DOCUMENTS} documents; the others are not read");
                self.problem(ProblemKind::TooLarge, None, None, &message);
                break;
            }
            match document {
                Ok(document) => self.yaml(&document, documents),
                Err(error) => self.undecodable(&error),
            }
            documents += 1;
            if self.length > self.most_json() {
                break;
            }
        }
        if documents == 0 {
            self.problem(ProblemKind::Syntax, None, None, "holds no pod");
        }
    }

    fn json(&self) -> Option<Document> {
        serde_json::from_str(std::str::from_utf8(self.bytes).ok()?).ok()
    }

    /// Converts the YAML into JSON first, as the kubelet does. An unquoted `1` is then a number, not a string. This also
    /// keeps the program small: decoding pods directly from YAML takes several megabytes of machine code.
    fn yaml(&mut self, document: &Value, position: usize) {
        if !document.is_object() {
            return self.refuse(ProblemKind::Syntax, position, &Field::default(), "expected mapping");
        }
        let json = document.to_string();
        self.length += json.len();
        if self.length > self.most_json() {
            let most = self.most_json();
            let message = format!("larger than the limit of {most} bytes as JSON, with every alias replaced");
            return self.problem(ProblemKind::TooLarge, None, None, &message);
        }
        match undecodable::decode(&json) {
            Ok(document) => self.document(document, position),
            Err((path, message)) => {
                self.refuse(ProblemKind::Syntax, position, &Field::from(&path), &message);
            }
        }
    }

    /// Limit of all documents together. Without aliases, JSON takes less than four times as many bytes as YAML.
    fn most_json(&self) -> usize {
        2 * most_text(self.bytes.len())
    }

    fn document(&mut self, document: Document, position: usize) {
        let kind = document.kind.as_deref().unwrap_or_default();
        let list = matches!(kind, "PodList" | "List") && self.origin.source() == Source::Http;
        if kind != "Pod" && !list {
            let message = match kind {
                "" => "must be set, to Pod".to_owned(),
                other => format!("must be Pod, not {}", crate::text::shorten(other)),
            };
            return self.refuse(ProblemKind::Syntax, position, &Field::new("kind"), &message);
        }
        match document.api_version.as_deref() {
            Some("v1") => {}
            None | Some("") => {
                let field = Field::new("apiVersion");
                return self.refuse(ProblemKind::Syntax, position, &field, "must be set, to v1");
            }
            Some(other) => {
                let message = format!("must be v1, not {}", crate::text::shorten(other));
                return self.refuse(ProblemKind::Syntax, position, &Field::new("apiVersion"), &message);
            }
        }
        if !list {
            return self.pod(document, position, &Field::default());
        }
        for (index, item) in document.items.unwrap_or_default().into_iter().enumerate() {
            let base = Field::new("items").index(index);
            // Items may omit what the list's kind implies.
            if item.kind.as_deref().is_some_and(|kind| kind != "Pod") {
                self.refuse(ProblemKind::Syntax, position, &base.name("kind"), "must be Pod");
            } else {
                self.pod(item, position, &base);
            }
        }
    }

    fn pod(&mut self, document: Document, position: usize, base: &Field) {
        let mut pod = Pod {
            metadata: document.metadata.unwrap_or_default(),
            spec: document.spec,
            status: document.status,
        };
        let mut objections = validate::before_defaults(&pod);
        if objections.is_empty() {
            defaults::apply(&mut pod, &self.origin, self.node);
            objections = validate::after_defaults(&pod);
            objections.extend(api_objects::find(&pod));
        }
        for Objection { kind, field, message } in &objections {
            self.refuse(*kind, position, &base.join(field), message);
        }
        if objections.is_empty() {
            self.decoded.pods.push(pod);
        }
    }

    fn undecodable(&mut self, error: &serde_saphyr::Error) {
        let mut cause = error.without_snippet();
        while let serde_saphyr::Error::AliasError { error, .. } = cause {
            cause = error;
        }
        let (kind, message) = match cause {
            serde_saphyr::Error::Budget {
                breach: BudgetBreach::ScalarBytes { .. } | BudgetBreach::RecordedAnchorBytes { .. },
                ..
            } => {
                let most = most_text(self.bytes.len());
                let message = format!("larger than the limit of {most} bytes, with every alias replaced");
                (ProblemKind::TooLarge, message)
            }
            serde_saphyr::Error::AliasReplayLimitExceeded { .. } => {
                let most = most_replaced(self.bytes);
                let message = format!("the aliases of a document stand for more than {most} values");
                (ProblemKind::TooLarge, message)
            }
            cause => (ProblemKind::Syntax, crate::text::yaml_problem(cause)),
        };
        if self.is_full() {
            return;
        }
        let place = error.location().map(|location| (location.line(), location.column()));
        let field = place.and_then(|(line, column)| self.locator().field_at(line, column));
        self.problem(kind, place.map(|(line, _)| line), field, &message);
    }

    fn refuse(&mut self, kind: ProblemKind, document: usize, field: &Field, message: &str) {
        if self.is_full() {
            return;
        }
        let line = self.locator().line_of(document, field);
        let field = Some(field.to_string()).filter(|field| !field.is_empty());
        self.problem(kind, line, field, message);
    }

    fn problem(&mut self, kind: ProblemKind, line: Option<u64>, field: Option<String>, message: &str) {
        // A key may be as long as the manifest.
        let field = field.map(|field| crate::text::shorten_to(&field, 256));
        self.decoded.problems.push(Problem::new(kind, self.origin.name(), line, field, message));
    }

    /// Call before a problem is described. If true, the problem was only counted.
    fn is_full(&mut self) -> bool {
        let full = self.decoded.problems.len() >= MOST_PROBLEMS;
        self.unlisted += usize::from(full);
        full
    }

    fn summarize_the_rest(&mut self) {
        if self.unlisted > 0 {
            let message = format!("and {} more problems", self.unlisted);
            self.problem(ProblemKind::Invalid, None, None, &message);
        }
    }

    fn locator(&mut self) -> &Locator {
        self.locator.get_or_insert_with(|| Locator::new(self.bytes))
    }
}
