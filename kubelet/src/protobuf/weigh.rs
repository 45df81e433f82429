//! What an object in protobuf takes in memory once it is decoded, and which of its fields are left out if that is too much: by
//! the measures of [`memory`](crate::memory), which does the same for JSON.

use super::found::Found;
use super::schema::{Field, Kind, Message, Shape};
use super::wire::{Fields, Value, WireError};
use crate::memory::{ENTRY, GROWTH, IDENTITY, KEPT_ANNOTATIONS, LEAST_ALLOCATION, element, text};

/// What a value takes of the limit while its message is decoded. Its place in the list of the message's fields takes six times
/// as much, but is free again as soon as the message is decoded. So within 512 KiB there is place for 32,768 values.
const FOUND: usize = size_of::<Found<'_>>() / 2;

/// What a byte of JSON may take: an empty object with its name has 8 bytes, and the node of a tree.
const JSON: usize = 80;

/// The longest annotation that stays of annotations that are left out.
const LONGEST_KEPT: usize = 256;

/// The memory of a value, from above. If it is a message: without its fields.
pub(super) fn memory_of_value(field: &Field, value: Value<'_>) -> usize {
    let length = value.bytes().map_or(0, <[u8]>::len);
    let memory = match (field.shape, field.kind) {
        (Shape::Map, _) => ENTRY + 2 * LEAST_ALLOCATION + length,
        (Shape::List, Kind::Message(_)) => GROWTH * element(field.name),
        // Each byte may be a number.
        (Shape::List, Kind::Bool | Kind::Int32 | Kind::Int64) => GROWTH * size_of::<i64>() * length.max(1),
        (Shape::List, _) => GROWTH * size_of::<String>() + text(length),
        (_, Kind::Text | Kind::Time | Kind::Quantity | Kind::IntOrString) => text(length),
        (_, Kind::Json) => JSON * length,
        (_, Kind::Message(_) | Kind::Bool | Kind::Int32 | Kind::Int64) => 0,
    };
    FOUND + memory
}

/// What bytes that are no text take in addition. Each may be replaced by three.
pub(super) fn memory_of_bad_text(bytes: &[u8]) -> usize {
    6 * bytes.len()
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
    pub(super) memory: usize,
}

impl Weighed {
    /// It stays, whatever it takes.
    pub(super) fn is_identity(&self) -> bool {
        self.section.name == "metadata" && IDENTITY.contains(&self.field.name)
    }

    /// Which client wrote which field of the API server's object. No source keeps it.
    pub(super) fn is_managed_fields(&self) -> bool {
        self.section.name == "metadata" && self.field.name == "managedFields"
    }

    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section.name, self.field.name)
    }
}

/// The fields of an object, with the memory that they would take.
///
/// # Complexity
/// Linear in the bytes. The depth is that of the table.
pub(super) fn fields(object: &'static Message, bytes: &[u8]) -> Result<Vec<Weighed>, WireError> {
    let mut fields: Vec<Weighed> = Vec::new();
    for part in Fields(bytes) {
        let (number, value) = part?;
        let Some(section) = object.field(number) else { continue };
        let Kind::Message(message) = section.kind else { continue };
        for value in Fields(value.bytes()?) {
            let (number, value) = value?;
            let Some(field) = message.field(number) else { continue };
            let memory = memory_with_content(field, value)?;
            match fields.iter_mut().find(|weighed| std::ptr::eq(weighed.field, field)) {
                Some(weighed) => weighed.memory += memory,
                None => fields.push(Weighed { section, field, memory }),
            }
        }
    }
    Ok(fields)
}

/// The memory of a value with all that is in it.
fn memory_with_content(field: &Field, value: Value<'_>) -> Result<usize, WireError> {
    let mut memory = memory_of_value(field, value);
    match field.kind {
        Kind::Message(message) if field.shape != Shape::Map => {
            for value in Fields(value.bytes()?) {
                let (number, value) = value?;
                if let Some(field) = message.field(number) {
                    memory += memory_with_content(field, value)?;
                }
            }
        }
        Kind::Text | Kind::Quantity | Kind::IntOrString => {
            if let Ok(bytes) = value.bytes()
                && std::str::from_utf8(bytes).is_err()
            {
                memory += memory_of_bad_text(bytes);
            }
        }
        _ => {}
    }
    Ok(memory)
}
