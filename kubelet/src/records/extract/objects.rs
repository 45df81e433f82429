//! Rules that extract labels and annotations, of any object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{API_SERVER_SOURCE, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION};
use regex::{Regex, RegexBuilder};

use super::config::RuleBlock;
use super::fields::Fields;
use super::{Conventions, RulesError};
use crate::records::LAST_APPLIED;
use crate::records::attributes::{Attribute, Layer, Shared, Value};
use crate::text::shorten;

/// Maximum size in bytes of a compiled expression.
const LARGEST_REGEX: usize = 1 << 20;
/// Maximum number of attributes from the labels of an object, and from its annotations: the API server accepts a pod with
/// 110,000 labels.
const MOST: usize = 256;
/// The annotations that name their attributes.
const OTEL: &str = "resource.opentelemetry.io/";

/// The object that a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in super::super) enum FromKind {
    Pod,
    Namespace,
    Node,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
}

impl FromKind {
    /// As written in rules.
    const NAMES: [(&'static str, Self); 9] = [
        ("pod", Self::Pod),
        ("namespace", Self::Namespace),
        ("node", Self::Node),
        ("deployment", Self::Deployment),
        ("replicaset", Self::ReplicaSet),
        ("statefulset", Self::StatefulSet),
        ("daemonset", Self::DaemonSet),
        ("job", Self::Job),
        ("cronjob", Self::CronJob),
    ];
    /// In the order in which the processor adds them.
    pub(in super::super) const OWNERS: [Self; 6] =
        [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet, Self::Job, Self::CronJob];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The kind of an owner by its kind on the API server.
    pub(in super::super) fn of_owner(kind: &str) -> Option<Self> {
        Self::OWNERS.into_iter().find(|owner| owner.name().eq_ignore_ascii_case(kind))
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Labels,
    Annotations,
}

#[derive(Debug)]
struct Rule {
    from: FromKind,
    part: Part,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    One { key: String, name: String },
    Matching { regex: Regex, name: MatchedName },
}

#[derive(Debug)]
enum MatchedName {
    /// With references to groups of the expression.
    Template(String),
    /// The default name of the key.
    OfKey,
}

/// All rules about labels and annotations.
#[derive(Debug, Default)]
pub(in super::super) struct ObjectRules {
    rules: Vec<Rule>,
    conventions: Conventions,
    /// Names that only containers, and rules about pods, may give.
    reserved: BTreeSet<String>,
}

/// The UID of an object, and the name that an attribute gives it.
#[derive(Clone, Copy)]
pub(in super::super) struct UidAttribute<'a> {
    pub(in super::super) name: &'static str,
    pub(in super::super) uid: &'a str,
}

impl ObjectRules {
    pub(super) fn new(
        labels: Vec<RuleBlock>,
        annotations: Vec<RuleBlock>,
        otel_annotations: bool,
        conventions: Conventions,
        fields: &Fields,
    ) -> Result<Self, RulesError> {
        let mut rules = Vec::new();
        for (part, name, blocks) in
            [(Part::Labels, "labels", labels), (Part::Annotations, "annotations", annotations)]
        {
            for (number, block) in blocks.into_iter().enumerate() {
                let place = format!("extract.{name}[{number}]");
                rules.push(Rule::new(block, part, conventions, &place)?);
            }
        }
        if otel_annotations {
            let keys = Keys::Matching {
                regex: compile(&format!("{}(.+)", regex::escape(OTEL)), "extract.otel_annotations")?,
                name: MatchedName::Template("$1".to_owned()),
            };
            rules.push(Rule { from: FromKind::Pod, part: Part::Annotations, keys });
        }
        let names =
            ["container.id", "container.image.name", "container.image.repo_digests", "container.image.tag"];
        let more = ["container.image.tags", "k8s.container.name", "service.instance.id", "service.version"];
        let reserved = names.iter().chain(&more).filter(|name| fields.is_of_container(name));
        Ok(Self { rules, conventions, reserved: reserved.map(|name| (*name).to_owned()).collect() })
    }

    pub(super) fn has(&self, from: FromKind) -> bool {
        self.rules.iter().any(|rule| rule.from == from)
    }

    pub(in super::super) fn has_owners(&self) -> bool {
        FromKind::OWNERS.into_iter().any(|owner| self.has(owner))
    }

    /// Extracts the labels of an object.
    pub(in super::super) fn labels(
        &self,
        from: FromKind,
        object: &ObjectMeta,
        put: &mut impl FnMut(&str, &str),
    ) {
        self.part(from, Part::Labels, object, put);
    }

    /// Extracts the annotations of an object.
    pub(in super::super) fn annotations(
        &self,
        from: FromKind,
        object: &ObjectMeta,
        put: &mut impl FnMut(&str, &str),
    ) {
        self.part(from, Part::Annotations, object, put);
    }

    fn part(&self, from: FromKind, part: Part, object: &ObjectMeta, put: &mut impl FnMut(&str, &str)) {
        let entries = match part {
            Part::Labels => object.labels.as_ref(),
            Part::Annotations => object.annotations.as_ref(),
        };
        let Some(entries) = entries else { return };
        let mut left = MOST;
        let mut put = |name: &str, value: &str| {
            if left > 0 {
                left -= 1;
                put(name, value);
            }
        };
        for rule in self.rules.iter().filter(|rule| rule.from == from && rule.part == part) {
            rule.extract(entries, self.conventions, &mut put);
        }
    }

    /// The attributes of an object other than a pod, with this one of its UID.
    pub(in super::super) fn layer(
        &self,
        from: FromKind,
        object: &ObjectMeta,
        of_uid: Option<UidAttribute<'_>>,
        shared: &mut Shared,
    ) -> Option<Layer> {
        let mut found = BTreeMap::new();
        let mut put = |name: &str, value: &str| {
            if !self.reserved.contains(name) {
                found.insert(shared.name(name), Value::from(value));
            }
        };
        self.labels(from, object, &mut put);
        self.annotations(from, object, &mut put);
        if let Some(UidAttribute { name, uid }) = of_uid {
            put(name, uid);
        }
        shared.layer(found.into_iter().map(|(name, value)| Attribute { name, value }).collect())
    }
}

impl Rule {
    fn new(block: RuleBlock, part: Part, conventions: Conventions, place: &str) -> Result<Self, RulesError> {
        let RuleBlock { tag_name, key, key_regex, from } = block;
        let from = match &*from {
            "" => FromKind::Pod,
            from => {
                FromKind::NAMES.iter().find(|(name, _)| *name == from).map(|(_, kind)| *kind).ok_or_else(
                    || {
                        let names = FromKind::NAMES.map(|(name, _)| name).join(", ");
                        let message = format!("{:?} is not supported; give one of {names}", shorten(from));
                        RulesError::new(format!("{place}.from"), message)
                    },
                )?
            }
        };
        // The collector's file has `$$` for `$`, which its loader replaces.
        let tag_name = tag_name.replace("$$", "$");
        let keys = match (key.is_empty(), key_regex.is_empty()) {
            (false, false) => return Err(RulesError::new(place, "give either key or key_regex, not both")),
            (true, true) => return Err(RulesError::new(place, "key or key_regex is missing")),
            (false, true) if key == LAST_APPLIED => {
                let message = format!("{LAST_APPLIED} is never extracted: it may hold passwords");
                return Err(RulesError::new(format!("{place}.key"), message));
            }
            (false, true) => {
                let name =
                    if tag_name.is_empty() { default_name(from, part, conventions, &key) } else { tag_name };
                Keys::One { key, name }
            }
            (true, false) => {
                let regex = compile(&key_regex, &format!("{place}.key_regex"))?;
                // As the processor does: without a group, the tag's name has no meaning.
                let has_group = regex.captures_len() > 1 && !tag_name.is_empty();
                let name = if has_group { MatchedName::Template(tag_name) } else { MatchedName::OfKey };
                Keys::Matching { regex, name }
            }
        };
        Ok(Self { from, part, keys })
    }

    fn extract(
        &self,
        entries: &BTreeMap<String, String>,
        conventions: Conventions,
        put: &mut impl FnMut(&str, &str),
    ) {
        match &self.keys {
            Keys::One { key, name } => {
                if let Some(value) = entries.get(key) {
                    put(name, value);
                }
            }
            Keys::Matching { regex, name } => {
                for (key, value) in
                    entries.iter().filter(|(key, value)| !value.is_empty() && !is_hidden(key, entries))
                {
                    match name {
                        MatchedName::Template(template) => {
                            let Some(groups) = regex.captures(key) else { continue };
                            let mut name = String::new();
                            groups.expand(template, &mut name);
                            if !name.is_empty() {
                                put(&name, value);
                            }
                        }
                        MatchedName::OfKey if regex.is_match(key) => {
                            put(&default_name(self.from, self.part, conventions, key), value);
                        }
                        MatchedName::OfKey => {}
                    }
                }
            }
        }
    }
}

/// Whether a key is never extracted: it may hold passwords, or a source or the merge has set it.
fn is_hidden(key: &str, entries: &BTreeMap<String, String>) -> bool {
    let is_of_api_server =
        || entries.get(CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source == API_SERVER_SOURCE);
    match key {
        LAST_APPLIED => true,
        // Static pods and their mirrors have these on the API server as well.
        CONFIG_SOURCE_ANNOTATION | CONFIG_SEEN_ANNOTATION => is_of_api_server(),
        key => key.starts_with("pod-index/"),
    }
}

/// An expression that has to match the whole key.
fn compile(regex: &str, place: &str) -> Result<Regex, RulesError> {
    let compiled = RegexBuilder::new(&format!("^(?:{regex})$")).size_limit(LARGEST_REGEX).build();
    compiled.map_err(|error| {
        // The last line says what is wrong; those above quote the expression.
        let text = error.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        RulesError::new(place, format!("is not a supported expression: {why}"))
    })
}

/// The processor's default. The plural is historical, and only of the first three kinds.
fn default_name(from: FromKind, part: Part, conventions: Conventions, key: &str) -> String {
    let is_plural = conventions == Conventions::V0
        && matches!(from, FromKind::Pod | FromKind::Namespace | FromKind::Node);
    let part = match (part, is_plural) {
        (Part::Labels, true) => "labels",
        (Part::Labels, false) => "label",
        (Part::Annotations, true) => "annotations",
        (Part::Annotations, false) => "annotation",
    };
    format!("k8s.{}.{part}.{key}", from.name())
}

/// The layer without the names that an earlier one has.
pub(in super::super) fn without(
    layer: Option<Layer>,
    earlier: &[&Option<Layer>],
    shared: &mut Shared,
) -> Option<Layer> {
    // Names are shared, so the same name is the same object.
    let is_taken = |attribute: &Attribute| {
        let mut names = earlier.iter().filter_map(|layer| layer.as_ref()).flat_map(|layer| layer.iter());
        names.any(|other| Arc::ptr_eq(&other.name, &attribute.name))
    };
    let layer = layer?;
    if !layer.iter().any(is_taken) {
        return Some(layer);
    }
    shared.layer(layer.iter().filter(|attribute| !is_taken(attribute)).cloned().collect())
}
