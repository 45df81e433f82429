//! Maps fields to lines and lines to fields.
//!
//! Pods are decoded directly into their types, without line numbers. Only if there is a problem is the
//! manifest read again, into a tree with positions.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::field::{Field, Step};

/// Limit of values in all documents together; each 64 bytes of a key count as one more. Problems in documents beyond it
/// have no line: many documents full of aliases could otherwise fill the memory.
const MOST_NODES: usize = 500_000;

/// Limit of documents in a manifest: together with the limits of one document, it bounds the time for all.
pub(super) const MOST_DOCUMENTS: usize = 1024;

pub(super) struct Locator {
    documents: Vec<Option<Spanned<Tree>>>,
}

enum Tree {
    Scalar,
    Sequence(Vec<Spanned<Tree>>),
    Mapping(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl Tree {
    fn nodes(&self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Sequence(items) => 1 + items.iter().map(|item| item.value.nodes()).sum::<usize>(),
            Self::Mapping(entries) => {
                1 + entries
                    .iter()
                    .map(|(key, value)| 1 + key.value.len() / 64 + value.value.nodes())
                    .sum::<usize>()
            }
        }
    }
}

impl Locator {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut reader = bytes;
        // A document that cannot be read still counts, so that the others keep their positions.
        let read = serde_saphyr::read_with_options(&mut reader, options(bytes)).take(MOST_DOCUMENTS);
        let mut nodes = 0;
        let documents = read.map(Result::ok).take_while(|document: &Option<Spanned<Tree>>| {
            nodes += document.as_ref().map_or(0, |root| root.value.nodes());
            nodes <= MOST_NODES
        });
        let documents = documents.collect();
        Self { documents }
    }

    /// The line of a field, or of its innermost existing parent.
    pub(super) fn line_of(&self, document: usize, field: &Field) -> Option<u64> {
        let root = self.documents.get(document)?.as_ref()?;
        let (mut line, mut tree) = (root.referenced.line(), &root.value);
        for step in field.steps() {
            let found = match (tree, step) {
                (Tree::Mapping(entries), Step::Name(name) | Step::Key(name)) => entries
                    .iter()
                    // The last of equal keys counts.
                    .rfind(|(key, _)| key.value == *name)
                    .map(|(key, value)| (key.referenced.line(), &value.value)),
                (Tree::Sequence(items), Step::Index(index)) => {
                    items.get(*index).map(|item| (item.referenced.line(), &item.value))
                }
                _ => None,
            };
            match found {
                Some(found) => (line, tree) = found,
                None => break,
            }
        }
        Some(line)
    }

    /// The field whose value starts at a position.
    pub(super) fn field_at(&self, line: u64, column: u64) -> Option<String> {
        self.documents
            .iter()
            .flatten()
            .find_map(|root| find(root, &Field::default(), (line, column)))
            .map(|field| field.to_string())
            .filter(|field| !field.is_empty())
    }
}

fn find(node: &Spanned<Tree>, field: &Field, place: (u64, u64)) -> Option<Field> {
    // From the inside out: a mapping and its first key start at the same position.
    let inner = match &node.value {
        Tree::Scalar => None,
        Tree::Sequence(items) => {
            items.iter().enumerate().find_map(|(index, item)| find(item, &field.index(index), place))
        }
        Tree::Mapping(entries) => entries.iter().find_map(|(key, value)| {
            let step = field.name(&key.value);
            let here = (key.referenced.line(), key.referenced.column()) == place;
            find(value, &step, place).or_else(|| here.then_some(step))
        }),
    };
    let here = (node.referenced.line(), node.referenced.column()) == place;
    inner.or_else(|| here.then(|| field.clone()))
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_i128<E>(self, _: i128) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_u128<E>(self, _: u128) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_bytes<E>(self, _: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }
    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut tree = Vec::new();
        while let Some(item) = items.next_element()? {
            tree.push(item);
        }
        Ok(Tree::Sequence(tree))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut tree = Vec::new();
        while let Some(key) = entries.next_key()? {
            tree.push((key, entries.next_value()?));
        }
        Ok(Tree::Mapping(tree))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<Tree, A::Error> {
        data.variant::<IgnoredAny>()?;
        Ok(Tree::Scalar)
    }
}

/// Limit of a document's text in bytes, with every alias replaced, in a manifest of `length` bytes. Without aliases, the
/// text is shorter than twice the manifest: the escape sequence `\L` stands for three bytes.
pub(super) fn most_text(length: usize) -> usize {
    (2 * length).max(4 << 20)
}

/// Limit of the YAML events that replace a document's aliases: 400,000 for all documents together, but 10,000 for each.
/// Without it, a manifest of many small documents could take minutes. go-yaml becomes strict from 400,000 events on.
pub(super) fn most_replaced(bytes: &[u8]) -> usize {
    // A document after the first one begins after such a line. Text may contain more of them.
    let is_marker = |line: &&[u8]| line.starts_with(b"---") || line.starts_with(b"...");
    let documents = 1 + bytes.split(|byte| matches!(byte, b'\n' | b'\r')).filter(is_marker).count();
    (400_000 / documents).max(10_000)
}

/// YAML as Go's `sigs.k8s.io/yaml` reads it. The other limits are serde-saphyr's own.
pub(super) fn options(manifest: &[u8]) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_total_scalar_bytes: most_text(manifest.len()),
            max_recorded_anchor_bytes: most_text(manifest.len()),
            // Some programs write one anchor for what a hundred pods share.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: most_replaced(manifest),
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_documents_are_located_than_decoded() {
        assert_eq!(Locator::new("[]\n---\n".repeat(3_000).as_bytes()).documents.len(), MOST_DOCUMENTS);
    }

    #[test]
    fn long_keys_that_aliases_repeat_do_not_fill_the_memory() {
        let document = format!(
            "a: &key {}\nb: &list [{}]\nc: [{}]\n---\n",
            "x".repeat(4_096),
            "{*key : 1}, ".repeat(49),
            "*list, ".repeat(18)
        );
        let locator = Locator::new(document.repeat(50).as_bytes());
        let located = locator.documents.iter().flatten().count();
        assert!((1..10).contains(&located), "{located} documents of 4 MB");
    }
}
