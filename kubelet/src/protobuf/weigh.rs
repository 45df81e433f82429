//! What an object in protobuf takes in memory once it is decoded, and which of its fields are left out if that is too much: by
//! the measures of [`memory`](crate::memory), which does the same for JSON.

use super::found::Found;
use super::schema::{Field, Kind, Message, Shape};
use super::wire::{Fields, Value, WireError};
use crate::memory::{self, KEPT_ANNOTATIONS, allocation, element, entries, items};

/// Of how many values an object of this many bytes may consist. While a message is decoded, each of its values has a place in
/// the list of the message's fields, six times as many bytes as this, which is free again as soon as the message is decoded. So
/// for an object of 512 KiB there is place for 32,768 values: more than any object of a server has.
pub(super) const fn most_values(limit: usize) -> usize {
    limit / FOUND
}

const FOUND: usize = size_of::<Found<'_>>() / 2;

/// What a byte of JSON may take: an empty object with its name has 8 bytes, and the node of a tree.
const JSON: usize = 80;

/// The longest annotation that stays of annotations that are left out.
const LONGEST_KEPT: usize = 256;

/// What a value takes beside its place in its list or mapping, from above. If it is a message: without its fields.
pub(super) fn memory_of_value(field: &Field, value: Value<'_>) -> usize {
    let bytes = value.bytes().unwrap_or_default();
    match (field.shape, field.kind) {
        (Shape::Map, _) => {
            let texts = Fields(bytes).filter_map(|text| text.ok()?.1.bytes().ok());
            texts.map(|text| allocation(text.len())).sum()
        }
        (_, Kind::Text | Kind::Quantity | Kind::IntOrString) => allocation(bytes.len()),
        (_, Kind::Json) => JSON * bytes.len(),
        (_, Kind::Message(_) | Kind::Time | Kind::Bool | Kind::Int32 | Kind::Int64) => 0,
    }
}

/// What the list or mapping of all values of a field takes beside their content.
pub(super) fn memory_of_places<'a>(field: &Field, values: impl Iterator<Item = Value<'a>>) -> usize {
    let mut places = Places::default();
    values.for_each(|value| places.add(field, value));
    places.memory(field)
}

/// How many places of a list or a mapping the values of a field take.
#[derive(Default, Debug)]
struct Places(usize);

impl Places {
    fn add(&mut self, field: &Field, value: Value<'_>) {
        self.0 += match field.kind {
            // Each byte may be a number.
            Kind::Bool | Kind::Int32 | Kind::Int64 => value.bytes().map_or(1, <[u8]>::len),
            _ => 1,
        };
    }

    fn memory(&self, field: &Field) -> usize {
        let size = match field.kind {
            Kind::Message(_) => element(field.name),
            Kind::Bool | Kind::Int32 | Kind::Int64 => size_of::<i64>(),
            _ => size_of::<String>(),
        };
        match field.shape {
            // How many numbers there are is known after the last, so their list grows by doubling, from room for four.
            Shape::List if matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64) => {
                items(self.0.next_power_of_two().max(4), size)
            }
            Shape::List => items(self.0, size),
            Shape::Map => entries(self.0),
            Shape::Value | Shape::Kept | Shape::Inlined => 0,
        }
    }
}

/// What bytes that are no text take in addition. Each may be replaced by three.
pub(super) fn memory_of_bad_text(bytes: &[u8]) -> usize {
    6 * bytes.len()
}

/// The same of a value that is a text or should be one.
fn memory_of_replacements(value: Value<'_>) -> usize {
    let bytes = value.bytes().unwrap_or_default();
    if std::str::from_utf8(bytes).is_ok() { 0 } else { memory_of_bad_text(bytes) }
}

/// Whether a value stays although its field is left out: it says what kind of pod it is, or which object controls it.
pub(super) fn stays(field: &Field, value: Value<'_>) -> bool {
    let Ok(bytes) = value.bytes() else { return false };
    match field.name {
        "annotations" if bytes.len() <= LONGEST_KEPT => {
            let key = Fields(bytes).find_map(|field| field.ok().filter(|(number, _)| *number == 1));
            let key = key.and_then(|(_, key)| key.bytes().ok()).unwrap_or_default();
            KEPT_ANNOTATIONS.iter().any(|kept| kept.as_bytes() == key)
        }
        "ownerReferences" if bytes.len() <= 4096 => {
            let Kind::Message(owner) = field.kind else { return false };
            let controls = |(number, value): (u32, Value<'_>)| {
                value == Value::Varint(1)
                    && owner.field(number).is_some_and(|field| field.name == "controller")
            };
            Fields(bytes).filter_map(Result::ok).any(controls)
        }
        _ => false,
    }
}

/// A field of an object, such as `metadata.labels`.
#[derive(Debug)]
pub(super) struct Weighed {
    section: &'static Field,
    pub(super) field: &'static Field,
    /// What its values take, without their places in their list or mapping.
    content: Content,
    places: Places,
}

impl Weighed {
    /// It stays, whatever it takes.
    pub(super) fn is_identity(&self) -> bool {
        memory::is_identity(self.section.name, self.field.name)
    }

    /// Which client wrote which field of the API server's object. No source keeps it.
    pub(super) fn is_managed_fields(&self) -> bool {
        self.section.name == "metadata" && self.field.name == "managedFields"
    }

    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section.name, self.field.name)
    }

    /// What it takes of the limit: memory, or the part of the most values that it has.
    pub(super) fn memory(&self) -> usize {
        let memory = self.content.memory + self.places.memory(self.field);
        memory.max(self.content.values * FOUND)
    }
}

/// What values take.
#[derive(Clone, Copy, Default, Debug)]
struct Content {
    memory: usize,
    /// How many there are, with those that are in them.
    values: usize,
}

impl Content {
    fn add(&mut self, other: Self) {
        self.memory += other.memory;
        self.values += other.values;
    }
}

/// What an object takes of the limit that consists of these fields.
pub(super) fn memory_of_object(fields: &[Weighed]) -> usize {
    memory::OBJECT + fields.iter().map(Weighed::memory).sum::<usize>()
}

/// The fields of an object, with the memory that they would take.
///
/// # Complexity
/// Linear in the bytes, times the number of fields that a message has at most. The depth is that of the table.
pub(super) fn fields(object: &'static Message, bytes: &[u8]) -> Result<Vec<Weighed>, WireError> {
    let mut fields: Vec<Weighed> = Vec::new();
    for part in Fields(bytes) {
        let (number, value) = part?;
        let Some(section) = object.field(number) else { continue };
        let Kind::Message(message) = section.kind else { continue };
        for value in Fields(value.bytes()?) {
            let (number, value) = value?;
            let Some(field) = message.field(number) else { continue };
            let content = content(field, value)?;
            let at = fields.iter().position(|weighed| std::ptr::eq(weighed.field, field));
            let at = at.unwrap_or_else(|| {
                fields.push(Weighed {
                    section,
                    field,
                    content: Content::default(),
                    places: Places::default(),
                });
                fields.len() - 1
            });
            fields[at].content.add(content);
            fields[at].places.add(field, value);
        }
    }
    Ok(fields)
}

/// What a value takes, with all that is in it.
fn content(field: &Field, value: Value<'_>) -> Result<Content, WireError> {
    let mut all = Content { memory: memory_of_value(field, value), values: 1 };
    match field.kind {
        Kind::Message(message) if field.shape != Shape::Map => {
            let mut places: Vec<(&Field, Places)> = Vec::new();
            for value in Fields(value.bytes()?) {
                let (number, value) = value?;
                let Some(field) = message.field(number) else { continue };
                all.add(content(field, value)?);
                let at = places.iter().position(|(of, _)| std::ptr::eq(*of, field));
                let at = at.unwrap_or_else(|| {
                    places.push((field, Places::default()));
                    places.len() - 1
                });
                places[at].1.add(field, value);
            }
            all.memory += places.iter().map(|(field, places)| places.memory(field)).sum::<usize>();
        }
        // The bytes of an entry are no text themselves: its key and its value are.
        Kind::Text | Kind::Quantity | Kind::IntOrString if field.shape == Shape::Map => {
            // One that cannot be read is no error yet: it is none if the field is left out.
            let texts = Fields(value.bytes().unwrap_or_default()).map_while(Result::ok);
            all.memory += texts.map(|(_, text)| memory_of_replacements(text)).sum::<usize>();
        }
        Kind::Text | Kind::Quantity | Kind::IntOrString => all.memory += memory_of_replacements(value),
        _ => {}
    }
    Ok(all)
}
