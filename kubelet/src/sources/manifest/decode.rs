//! Decodes bytes into pods: formats, kinds, and the document that a problem belongs to.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_saphyr::budget::BudgetBreach as Breach;
use serde_saphyr::{DuplicateKeyPolicy, Error as E};

use super::field::{Field, join};
use super::origin::Origin;
use super::validate::Objection;
use super::{api_objects, defaults, validate};
use crate::sources::{NodeName, Problem, ProblemKind, Source};

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
/// Linear in the length of `bytes`. Everything else has a limit:
///
/// | what | limit |
/// |---|---|
/// | nested lists and mappings of YAML | 32 levels |
/// | documents | 1,024 |
/// | text of a YAML document with every alias replaced | twice the length of `bytes`, or 4 MiB if that is more |
/// | YAML events that replace aliases | 400,000, shared equally by the documents |
/// | pods | 1,024 |
/// | one pod as JSON | 1.5 MiB |
///
/// A decoded pod takes about 8 KiB and up to 30 times the length of its JSON.
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
    let mut decoding = Decoding::new(bytes, origin, node);
    decoding.run();
    decoding.decoded
}

/// Limit of nested lists and mappings. A pod has about ten. Decoding takes stack for each.
const DEEPEST: usize = 32;

/// Limit of documents in a manifest.
const MOST_DOCUMENTS: usize = 1024;

/// Limit of pods in a manifest. A kubelet runs 110 by default.
const MOST_PODS: usize = 1024;

/// Limit of a pod's length as JSON: etcd's. The API server refuses larger mirror pods.
const LARGEST_POD: usize = 3 << 19;

/// Limit of a document's text in bytes, with every alias replaced, in a manifest of `length` bytes. Without aliases, the
/// text is shorter than twice the manifest: the escape sequence `\L` stands for three bytes.
fn most_text(length: usize) -> usize {
    (2 * length).max(4 << 20)
}

/// Limit of the YAML events that replace a document's aliases: together, the documents have 400,000, from where on go-yaml
/// becomes strict. Each event takes time, even if a merge then drops what it stands for.
fn most_replaced(bytes: &[u8]) -> usize {
    // A document after the first one begins after such a line. Text may contain more of them.
    let is_marker = |line: &&[u8]| line.starts_with(b"---") || line.starts_with(b"...");
    let documents = 1 + bytes.split(|byte| matches!(byte, b'\n' | b'\r')).filter(is_marker).count();
    400_000 / documents.min(MOST_DOCUMENTS)
}

/// YAML as Go's `sigs.k8s.io/yaml` reads it. The other limits are serde-saphyr's own.
fn options(manifest: &[u8], duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEEPEST,
            max_total_scalar_bytes: most_text(manifest.len()),
            max_recorded_anchor_bytes: most_text(manifest.len()),
            // Some programs write one anchor for what a hundred pods share.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: most_replaced(manifest),
        },
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// Limit of problems reported for one manifest: ten megabytes of nonsense must not become a gigabyte of
/// messages.
const MOST_PROBLEMS: usize = 16;

/// A `Pod`, a `PodList`, or neither; or an item of a list.
///
/// Not k8s-openapi's own `Pod`: that one accepts a missing `kind` and refuses a list.
#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<ObjectMeta>,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
    /// Not decoded yet: a list may have millions.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

struct Decoding<'a> {
    bytes: &'a [u8],
    origin: Origin<'a>,
    node: &'a NodeName,
    /// The number of the present document, counted from 0.
    document: usize,
    /// Length of the documents so far as JSON.
    length: usize,
    /// Number of pods so far, usable or not.
    read: usize,
    decoded: Decoded,
}

impl<'a> Decoding<'a> {
    fn new(bytes: &'a [u8], origin: Origin<'a>, node: &'a NodeName) -> Self {
        Self { bytes, origin, node, document: 0, length: 0, read: 0, decoded: Decoded::default() }
    }

    fn run(&mut self) {
        let Ok(text) = std::str::from_utf8(self.bytes) else {
            return self.problem(ProblemKind::Syntax, None, None, "is not UTF-8 text");
        };
        // As in Go's `hasJSONPrefix`. If JSON refuses it, it may still be a YAML flow mapping.
        let is_json = text.trim_ascii_start().starts_with('{');
        if is_json && let Ok(document) = serde_json::from_str(text) {
            // Names unknown fields, unless that would take much memory.
            let value = text.len() <= LARGEST_POD;
            let value = value.then(|| serde_json::from_str(text).ok()).flatten();
            return self.pods(document, value.as_ref());
        }
        if let Some(line) = self.yaml(DuplicateKeyPolicy::Error) {
            // As in the kubelet, the last of equal keys counts.
            *self = Self::new(self.bytes, self.origin, self.node);
            self.yaml(DuplicateKeyPolicy::LastWins);
            self.problem(ProblemKind::Warning, Some(line), None, "a key is repeated; the last one counts");
        }
    }

    /// Reads all documents. Stops at a repeated key, if the policy says so, and returns its line.
    fn yaml(&mut self, duplicates: DuplicateKeyPolicy) -> Option<u64> {
        let mut reader = self.bytes;
        let mut documents = 0;
        for document in
            serde_saphyr::read_with_options::<_, Value>(&mut reader, options(self.bytes, duplicates))
        {
            if documents == MOST_DOCUMENTS {
                let message = format!("has more than {MOST_DOCUMENTS} documents; the others are not read");
                let kind = ProblemKind::TooLarge;
                let origin = self.origin.name();
                // However many problems there are.
                self.decoded.problems.push(Problem::new(kind, origin, None, None, message));
                break;
            }
            self.document = documents;
            match document {
                Ok(document) => self.value(&document),
                Err(error) if matches!(error.without_snippet(), E::DuplicateMappingKey { .. }) => {
                    return Some(error.location().map_or(1, |location| location.line()));
                }
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
        None
    }

    /// Converts the YAML into JSON first, as the kubelet does. An unquoted `1` is then a number, not a string. This also
    /// keeps the program small: decoding pods directly from YAML takes several megabytes of machine code.
    fn value(&mut self, document: &Value) {
        if !document.is_object() {
            return self.refuse(ProblemKind::Syntax, "", "expected a mapping");
        }
        let json = document.to_string();
        self.length += json.len();
        if self.length > self.most_json() {
            let most = self.most_json();
            let message = format!("larger than the limit of {most} bytes as JSON, with every alias replaced");
            return self.problem(ProblemKind::TooLarge, None, None, &message);
        }
        match crate::text::decode(&json) {
            Ok(decoded) => self.pods(decoded, Some(document)),
            Err((field, message)) => self.refuse(ProblemKind::Syntax, &field, &message),
        }
    }

    /// Limit of all documents together. Without aliases, JSON takes less than four times as many bytes as YAML.
    fn most_json(&self) -> usize {
        2 * most_text(self.bytes.len())
    }

    /// The pods of a document. `value`: its content, to find unknown fields.
    fn pods(&mut self, document: Document<'_>, value: Option<&Value>) {
        let kind = document.kind.as_deref().unwrap_or_default();
        let list = matches!(kind, "PodList" | "List") && self.origin.source() == Source::Http;
        let version = document.api_version.as_deref().unwrap_or_default();
        let wanted_kind = if list { kind } else { "Pod" };
        for (field, found, wanted) in [("kind", kind, wanted_kind), ("apiVersion", version, "v1")] {
            let message = match found {
                found if found == wanted => continue,
                "" => format!("must be set, to {wanted}"),
                other => format!("must be {wanted}, not {}", crate::text::shorten(other)),
            };
            return self.refuse(ProblemKind::Syntax, field, &message);
        }
        if !list {
            return self.pod(document, value, "");
        }
        let items = document.items.unwrap_or_default();
        // Of the first one beyond the limit, `pod` says so.
        for (index, item) in items.into_iter().take(MOST_PODS + 1).enumerate() {
            let base = format!("items[{index}]");
            match crate::text::decode::<Document<'_>>(item.get()) {
                // Items may omit what the list's kind implies.
                Ok(item) if item.kind.as_deref().is_some_and(|kind| kind != "Pod") => {
                    self.refuse(ProblemKind::Syntax, &join(&base, "kind"), "must be Pod");
                }
                Ok(item) => self.pod(item, value.map(|value| &value["items"][index]), &base),
                Err((field, message)) => self.refuse(ProblemKind::Syntax, &join(&base, &field), &message),
            }
        }
    }

    fn pod(&mut self, document: Document<'_>, value: Option<&Value>, base: &str) {
        let Document { metadata, spec, status, .. } = document;
        let mut pod = Pod { metadata: metadata.unwrap_or_default(), spec, status };
        // Cannot fail: the pod's maps have string keys.
        let json = serde_json::to_vec(&pod).unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.read += 1;
        if self.read > MOST_PODS || json.len() > LARGEST_POD {
            let name = crate::text::shorten(name);
            let message = if json.len() > LARGEST_POD {
                format!("the pod {name} has {} bytes as JSON, and may have {LARGEST_POD}", json.len())
            } else {
                format!("the pod {name} is not read, because a manifest may have {MOST_PODS} pods")
            };
            return self.refuse(ProblemKind::TooLarge, base, &message);
        }
        let known: Value = serde_json::from_slice(&json).unwrap_or_default();
        if let Some(value) = value.filter(|_| self.decoded.problems.len() < MOST_PROBLEMS) {
            for part in ["metadata", "spec"] {
                unknown(&value[part], &known[part], &Field::Path(part), &mut |field| {
                    let field = join(base, &field.to_string());
                    self.refuse(ProblemKind::Warning, &field, "is unknown and ignored");
                });
            }
        }
        let mut objections = validate::find(&pod, &known["spec"], self.node);
        objections.extend(api_objects::find(&known["spec"]));
        for Objection { kind, field, message } in &objections {
            self.refuse(*kind, &join(base, field), message);
        }
        if objections.is_empty() {
            defaults::apply(&mut pod, &json, &self.origin, self.node);
            self.decoded.pods.push(pod);
        }
    }

    fn undecodable(&mut self, error: &E) {
        let mut cause = error.without_snippet();
        while let E::AliasError { error, .. } = cause {
            cause = error;
        }
        let (kind, message) = match cause {
            E::Budget { breach: Breach::Depth { .. }, .. } => {
                (ProblemKind::Syntax, format!("has more than {DEEPEST} levels of lists and mappings"))
            }
            E::Budget { breach: Breach::ScalarBytes { .. } | Breach::RecordedAnchorBytes { .. }, .. } => {
                let most = most_text(self.bytes.len());
                let message = format!("larger than the limit of {most} bytes, with every alias replaced");
                (ProblemKind::TooLarge, message)
            }
            E::AliasReplayLimitExceeded { .. } => {
                let most = most_replaced(self.bytes);
                let message = format!("the aliases of a document stand for more than {most} values");
                (ProblemKind::TooLarge, message)
            }
            cause => (ProblemKind::Syntax, crate::text::yaml_problem(cause)),
        };
        self.problem(kind, error.location().map(|location| location.line()), None, &message);
    }

    fn refuse(&mut self, kind: ProblemKind, field: &str, message: &str) {
        // Only the YAML parser knows lines. Fields are unique within a document.
        let message = match self.document {
            0 => message.to_owned(),
            document => format!("{message} (document {})", document + 1),
        };
        let field = (!field.is_empty()).then(|| field.to_owned());
        self.problem(kind, None, field, &message);
    }

    /// Of the problems beyond [`MOST_PROBLEMS`], one says that there are more. It is of the kind of the first of them that
    /// is not a mere warning, if there is one.
    fn problem(&mut self, kind: ProblemKind, line: Option<u64>, field: Option<String>, message: &str) {
        // A key may be as long as the manifest.
        let field = field.map(|field| crate::text::shorten_to(&field, 256));
        let origin = self.origin.name();
        let problems = &mut self.decoded.problems;
        if let Some(more) = problems.get_mut(MOST_PROBLEMS) {
            if more.kind == ProblemKind::Warning {
                more.kind = kind;
            }
        } else if problems.len() == MOST_PROBLEMS {
            problems.push(Problem::new(kind, origin, None, None, "and more problems"));
        } else {
            problems.push(Problem::new(kind, origin, line, field, message));
        }
    }
}

/// Calls `found` with each field of `value` that `known`, the decoded part of it, does not have.
fn unknown(value: &Value, known: &Value, field: &Field<'_>, found: &mut dyn FnMut(&Field<'_>)) {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => {
            for (key, value) in value.iter().filter(|(_, value)| !value.is_null()) {
                // A dot or a slash shows that it is an entry of a map, not a field.
                let is_entry = key.contains(['.', '/']);
                let field = if is_entry { Field::Entry(field, key) } else { Field::Name(field, key) };
                match known.get(key) {
                    Some(known) => unknown(value, known, &field, found),
                    None => found(&field),
                }
            }
        }
        (Value::Array(value), Value::Array(known)) => {
            for (index, (value, known)) in value.iter().zip(known).enumerate() {
                unknown(value, known, &Field::Item(field, index), found);
            }
        }
        _ => {}
    }
}
