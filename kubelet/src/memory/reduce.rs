//! Leaves out the largest fields of an object that would take too much memory.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::estimate::{OBJECT, at_most, weigh};
use super::{LEFT_OUT, Reduced};
use crate::text::shorten;

/// The fields of `metadata` that always stay.
const IDENTITY: [&str; 7] =
    ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"];

/// Whether the field `section.name` of an object always stays, because it says which object this is. The rule for JSON and for
/// protobuf.
pub(crate) fn is_identity(section: &str, name: &str) -> bool {
    section == "metadata" && IDENTITY.contains(&name)
}

/// The annotations that always stay: they say what kind of pod it is, and whether it is checkpointed.
pub(crate) const KEPT_ANNOTATIONS: [&str; 5] = [
    "kubernetes.io/config.hash",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.seen",
    "kubernetes.io/config.source",
    "node.kubernetes.io/bootstrap-checkpoint",
];

/// A field of an object, such as `metadata.labels`.
struct Field<'a> {
    /// `metadata`, `spec`, `status`, or another field of the whole object.
    section: &'a str,
    /// `None`: the section is no mapping.
    name: Option<String>,
    json: &'a RawValue,
    memory: usize,
}

impl Field<'_> {
    fn is_identity(&self) -> bool {
        match &self.name {
            None => ["apiVersion", "kind"].contains(&self.section),
            Some(name) => is_identity(self.section, name),
        }
    }

    fn path(&self) -> String {
        match &self.name {
            None => shorten(self.section),
            Some(name) => shorten(&format!("{}.{name}", self.section)),
        }
    }

    /// What stays of a field that is left out.
    fn rest(&self) -> Option<Box<RawValue>> {
        match (self.section, self.name.as_deref()) {
            ("metadata", Some("annotations")) => to_raw_value(&kept_annotations(self.json)).ok(),
            ("metadata", Some("ownerReferences")) => to_raw_value(&[controller(self.json)?]).ok(),
            _ => None,
        }
    }
}

/// What is left of an object that takes more than this limit, and what it lacks. `None`: it takes less, or is no object.
pub(super) fn reduce(limit: usize, json: &[u8]) -> Option<Rest> {
    if at_most(json) <= limit {
        return None;
    }
    let object: BTreeMap<String, &RawValue> = serde_json::from_slice(json).ok()?;
    let mut fields: Vec<_> = object.iter().flat_map(|(section, value)| fields(section, value)).collect();
    // No source keeps it.
    fields.retain(|field| (field.section, field.name.as_deref()) != ("metadata", Some("managedFields")));
    // Those that take most come first.
    fields.sort_by_key(|field| std::cmp::Reverse(field.memory));
    let whole = OBJECT + fields.iter().map(|field| field.memory).sum::<usize>();
    let mut left = whole;
    let mut left_out = Vec::new();
    let mut rest = Sections::default();
    for field in fields {
        if left <= limit || field.is_identity() {
            let json = field.json.to_owned();
            rest.insert(field, json);
            continue;
        }
        left -= field.memory;
        left_out.push(field.path());
        if let Some(json) = field.rest() {
            rest.insert(field, json);
        }
    }
    let reduced = Reduced::of(whole, limit, &left_out);
    if reduced.is_some() {
        rest.mark(&left_out)?;
    }
    Some(Rest { json: serde_json::to_vec(&rest).ok()?, reduced })
}

/// What is left of an object.
pub(super) struct Rest {
    pub(super) json: Vec<u8>,
    /// `None`: it lacks nothing.
    pub(super) reduced: Option<Reduced>,
}

/// The object that is being put together from the fields that stay.
#[derive(Default, serde::Serialize)]
struct Sections<'a>(BTreeMap<&'a str, Section>);

impl<'a> Sections<'a> {
    /// Adds a field with this value.
    fn insert(&mut self, field: Field<'a>, json: Box<RawValue>) {
        let Some(name) = field.name else {
            self.0.insert(field.section, Section::Whole(json));
            return;
        };
        let section = self.0.entry(field.section).or_insert_with(|| Section::Fields(BTreeMap::new()));
        if let Section::Fields(fields) = section {
            fields.insert(name, json);
        }
    }

    /// Adds the annotation that names what was left out. An object without metadata has none.
    fn mark(&mut self, left_out: &[String]) -> Option<()> {
        let Some(Section::Fields(metadata)) = self.0.get_mut("metadata") else { return Some(()) };
        let annotations = metadata.get("annotations").map_or("{}", |json| json.get());
        let mut annotations: BTreeMap<String, String> = serde_json::from_str(annotations).unwrap_or_default();
        annotations.insert(LEFT_OUT.to_owned(), left_out.join(","));
        metadata.insert("annotations".to_owned(), to_raw_value(&annotations).ok()?);
        Some(())
    }
}

/// What stays of a field of the whole object.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Section {
    Whole(Box<RawValue>),
    Fields(BTreeMap<String, Box<RawValue>>),
}

/// The fields of a section.
fn fields<'a>(section: &'a str, value: &'a RawValue) -> Vec<Field<'a>> {
    match serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get()) {
        Ok(fields) => fields
            .into_iter()
            .map(|(name, json)| {
                let memory = weigh(&name, json);
                Field { section, name: Some(name), json, memory }
            })
            .collect(),
        Err(_) => vec![Field { section, name: None, json: value, memory: weigh(section, value) }],
    }
}

/// The annotations that say what kind of pod it is.
fn kept_annotations(json: &RawValue) -> BTreeMap<String, String> {
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(json.get()).unwrap_or_default();
    let kept = all.into_iter().filter(|(name, _)| KEPT_ANNOTATIONS.contains(&&**name));
    kept.filter_map(|(name, value)| Some((name, shorten(&serde_json::from_str::<String>(value.get()).ok()?))))
        .collect()
}

/// The owner that controls the object.
fn controller(json: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Owner {
        controller: Option<bool>,
    }
    let owners: Vec<&RawValue> = serde_json::from_str(json.get()).ok()?;
    let controls = |owner: &&RawValue| {
        serde_json::from_str::<Owner>(owner.get()).is_ok_and(|owner| owner.controller == Some(true))
    };
    owners.into_iter().find(controls).filter(|owner| owner.get().len() <= 4096)
}
