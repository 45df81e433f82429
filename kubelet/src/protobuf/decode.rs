//! From protobuf through serde into the types that JSON is decoded into.
//!
//! A message is read twice: once to find its fields, and once by the visitor of the type, which gets them as from a JSON
//! object. So nothing is copied but the values themselves.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};

use k8s_openapi::jiff::Timestamp;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::found::Found;
use super::schema::{Field, Kind, Message, Shape};
use super::weigh::{memory_of_bad_text, memory_of_places, memory_of_value, most_values, stays};
use super::wire::{Fields, Value, WireError};
use crate::memory::OBJECT;

/// Why an object cannot be decoded. Quotes nothing of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Error {
    /// It would take more memory than it may.
    TooLarge,
    Wire(WireError),
    /// A type's own message is left out, since it may quote the value.
    Value,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("takes too much memory"),
            Self::Wire(error) => write!(f, "cannot be decoded: {error}"),
            Self::Value => f.write_str("cannot be decoded: is not a valid value"),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self::Value
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// What applies to an object as a whole.
#[derive(Debug)]
pub(super) struct Decoding {
    /// How much more memory it may take, in bytes.
    left: Cell<usize>,
    /// Of how many more values it may consist.
    values_left: Cell<usize>,
    /// The fields of its sections that are left out.
    left_out: Vec<&'static Field>,
    /// The steps to the value that could not be decoded, the innermost first. An error passes the decoders of all values
    /// around it, and each adds its step, so that what can be decoded pays nothing.
    failed_at: RefCell<Vec<Step>>,
}

/// A step from a value to one in it.
#[derive(Debug)]
enum Step {
    Field(&'static str),
    Item(usize),
    Key(String),
}

impl Decoding {
    pub(super) fn new(limit: usize, left_out: Vec<&'static Field>) -> Self {
        let left = Cell::new(limit.saturating_sub(OBJECT));
        let values_left = Cell::new(most_values(limit));
        Self { left, values_left, left_out, failed_at: RefCell::default() }
    }

    /// The field that could not be decoded, such as `spec.containers[0].image`. Empty if it was the whole object.
    pub(super) fn field(&self) -> String {
        let mut field = String::new();
        for step in self.failed_at.borrow().iter().rev() {
            let dot = if field.is_empty() { "" } else { "." };
            // Cannot fail, as it is written to a string.
            _ = match step {
                Step::Field(name) => write!(field, "{dot}{name}"),
                Step::Item(index) => write!(field, "[{index}]"),
                Step::Key(key) => write!(field, "{dot}{key}"),
            };
        }
        field
    }

    /// Adds the step to the value that has this error.
    #[cold]
    fn failed(&self, error: Error, step: Step) -> Error {
        self.failed_at.borrow_mut().push(step);
        error
    }

    /// The object, to be decoded.
    pub(super) fn object<'a>(&'a self, message: &'static Message, bytes: &'a [u8]) -> Object<'a> {
        Object { decoding: self, message, bytes }
    }

    /// Counts this memory.
    fn count(&self, memory: usize) -> Result<(), Error> {
        self.left.set(self.left.get().checked_sub(memory).ok_or(Error::TooLarge)?);
        Ok(())
    }

    /// Counts a value.
    fn count_value(&self) -> Result<(), Error> {
        self.values_left.set(self.values_left.get().checked_sub(1).ok_or(Error::TooLarge)?);
        Ok(())
    }

    /// Whether this value of a section is left out.
    fn leaves_out(&self, field: &'static Field, value: Value<'_>) -> bool {
        self.left_out.iter().any(|left_out| std::ptr::eq(*left_out, field)) && !stays(field, value)
    }
}

/// The outermost message. Its messages are the sections of the object: `metadata`, `spec`, `status`.
#[derive(Debug)]
pub(super) struct Object<'a> {
    decoding: &'a Decoding,
    message: &'static Message,
    bytes: &'a [u8],
}

impl<'de> Deserializer<'de> for Object<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut parts = std::iter::once(Value::Bytes(self.bytes));
        let fields = FieldsOf::read(self.decoding, self.message, &mut parts, false)?;
        visitor.visit_map(FieldsOf { is_outermost: true, ..fields })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields of a message, as a mapping.
struct FieldsOf<'a> {
    decoding: &'a Decoding,
    /// All values of a field are neighbours, in their order.
    found: Vec<Found<'a>>,
    /// The first value that is not visited yet.
    next: usize,
    is_outermost: bool,
}

impl<'a> FieldsOf<'a> {
    /// Finds the fields. If a message occurs several times where it may occur once, its parts make one message, as protobuf
    /// demands.
    ///
    /// `parts` is no type parameter: its type depends on that of the caller's visitor, and the sort below was in the released
    /// binary 153 times, once for each type of Kubernetes.
    fn read(
        decoding: &'a Decoding,
        message: &'static Message,
        parts: &mut dyn Iterator<Item = Value<'a>>,
        is_section: bool,
    ) -> Result<Self, Error> {
        let mut found = Vec::new();
        for part in parts {
            collect(decoding, message, part.bytes()?, is_section, &mut found)?;
        }
        // Stable: the order of values of one field stays. They come in this order already, unless written by another program.
        found.sort_by_key(|found| std::ptr::from_ref(found.field).addr());
        for values in found.chunk_by(|one, next| std::ptr::eq(one.field, next.field)) {
            let places = memory_of_places(values[0].field, values.iter().map(|found| found.value));
            decoding.count(places)?;
        }
        Ok(Self { decoding, found, next: 0, is_outermost: false })
    }

    /// How many values the next field has.
    fn values(&self) -> usize {
        let Some(first) = self.found.get(self.next) else { return 0 };
        let rest = &self.found[self.next..];
        rest.iter().take_while(|found| std::ptr::eq(found.field, first.field)).count()
    }
}

/// Appends the known fields of a message that JSON has, and those of the messages that are inlined in it.
fn collect<'a>(
    decoding: &Decoding,
    message: &'static Message,
    bytes: &'a [u8],
    is_section: bool,
    found: &mut Vec<Found<'a>>,
) -> Result<(), Error> {
    for field in Fields(bytes) {
        let (number, value) = field?;
        let Some(field) = message.field(number) else { continue };
        if is_section && decoding.leaves_out(field, value) {
            continue;
        }
        if let (Shape::Inlined, Kind::Message(inlined)) = (field.shape, field.kind) {
            collect(decoding, inlined, value.bytes()?, is_section, found)?;
            continue;
        }
        if is_omitted(field, value) {
            continue;
        }
        decoding.count_value()?;
        decoding.count(memory_of_value(field, value))?;
        found.push(Found { field, value });
    }
    Ok(())
}

/// Whether JSON lacks this value.
fn is_omitted(field: &Field, value: Value<'_>) -> bool {
    let is_zero = matches!(value, Value::Varint(0) | Value::Bytes(&[]));
    match (field.shape, field.kind) {
        // A message that is a value in Go is always there, empty or not.
        (Shape::Value, Kind::Message(_)) => false,
        (Shape::Value, _) | (_, Kind::Time) => is_zero,
        _ => false,
    }
}

impl<'de> MapAccess<'de> for FieldsOf<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(found) = self.found.get(self.next) else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(found.field.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let end = self.next + self.values();
        let found = self.found.get(self.next..end).unwrap_or_default();
        self.next = end;
        if found.is_empty() {
            return Err(Error::Value);
        }
        let name = found[0].field.name;
        seed.deserialize(FieldValue { decoding: self.decoding, found, is_section: self.is_outermost })
            .map_err(|error| self.decoding.failed(error, Step::Field(name)))
    }
}

/// All values of a field: one, a list or a mapping.
struct FieldValue<'a, 'f> {
    decoding: &'a Decoding,
    /// Not empty.
    found: &'f [Found<'a>],
    is_section: bool,
}

impl<'de> Deserializer<'de> for FieldValue<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { decoding, found, is_section } = self;
        let Some(last) = found.last() else { return Err(Error::Value) };
        match last.field.shape {
            Shape::List => visitor.visit_seq(Elements { decoding, found, packed: Fields(&[]), index: 0 }),
            Shape::Map => visitor.visit_map(Entries { decoding, found, entry: None }),
            Shape::Value | Shape::Kept | Shape::Inlined => match last.field.kind {
                Kind::Message(message) => {
                    let mut parts = found.iter().map(|found| found.value);
                    visitor.visit_map(FieldsOf::read(decoding, message, &mut parts, is_section)?)
                }
                kind => One { decoding, kind, value: last.value }.deserialize_any(visitor),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct enum identifier
    }
}

/// The values of a list.
struct Elements<'a, 'f> {
    decoding: &'a Decoding,
    found: &'f [Found<'a>],
    /// The numbers that are left of a value that holds several.
    packed: Fields<'a>,
    /// Of the next value.
    index: usize,
}

impl<'a> Elements<'a, '_> {
    fn visit<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
        kind: Kind,
        value: Value<'a>,
    ) -> Result<Option<T::Value>, Error> {
        let index = self.index;
        self.index += 1;
        seed.deserialize(One { decoding: self.decoding, kind, value })
            .map(Some)
            .map_err(|error| self.decoding.failed(error, Step::Item(index)))
    }
}

impl<'de> SeqAccess<'de> for Elements<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        loop {
            if !self.packed.0.is_empty() {
                let value = Value::Varint(self.packed.varint()?);
                return self.visit(seed, Kind::Int64, value);
            }
            let Some((found, rest)) = self.found.split_first() else { return Ok(None) };
            self.found = rest;
            let kind = found.field.kind;
            match (kind, found.value) {
                (Kind::Int32 | Kind::Int64 | Kind::Bool, Value::Bytes(packed)) => {
                    self.packed = Fields(packed);
                }
                (_, value) => return self.visit(seed, kind, value),
            }
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.found.len())
    }
}

/// The entries of a mapping.
struct Entries<'a, 'f> {
    decoding: &'a Decoding,
    found: &'f [Found<'a>],
    /// The one whose value is next.
    entry: Option<Entry<'a>>,
}

struct Entry<'a> {
    key: &'a [u8],
    value: One<'a>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((found, rest)) = self.found.split_first() else { return Ok(None) };
        self.found = rest;
        let mut key = &[][..];
        let mut value = Value::Bytes(&[]);
        for field in Fields(found.value.bytes()?) {
            match field? {
                (1, it) => key = it.bytes()?,
                (2, it) => value = it,
                _ => {}
            }
        }
        let value = One { decoding: self.decoding, kind: found.field.kind, value };
        self.entry = Some(Entry { key, value });
        match text_of(self.decoding, key)? {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            Cow::Owned(key) => seed.deserialize(key.into_deserializer()),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Entry { key, value } = self.entry.take().ok_or(Error::Value)?;
        seed.deserialize(value).map_err(|error| {
            let key = String::from_utf8_lossy(key).into_owned();
            self.decoding.failed(error, Step::Key(key))
        })
    }
}

/// One value.
struct One<'a> {
    decoding: &'a Decoding,
    kind: Kind,
    value: Value<'a>,
}

impl<'de> Deserializer<'de> for One<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { decoding, kind, value } = self;
        match kind {
            Kind::Text => visit_text(decoding, value.bytes()?, visitor),
            Kind::Bool => visitor.visit_bool(value.varint()? != 0),
            // Cut like by Go: a negative number takes 64 bits.
            #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
            Kind::Int32 => visitor.visit_i32(value.varint()?.cast_signed() as i32),
            Kind::Int64 => visitor.visit_i64(value.varint()?.cast_signed()),
            Kind::Message(message) => {
                let mut parts = std::iter::once(value);
                visitor.visit_map(FieldsOf::read(decoding, message, &mut parts, false)?)
            }
            Kind::Time => {
                let seconds = number(value.bytes()?, 1)?;
                let time = Timestamp::from_second(seconds).map_err(|_| Error::Value)?;
                visitor.visit_string(time.to_string())
            }
            Kind::Quantity => visit_text(decoding, text(value.bytes()?, 1)?, visitor),
            Kind::IntOrString => {
                let bytes = value.bytes()?;
                match number(bytes, 1)? {
                    #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
                    0 => visitor.visit_i32(number(bytes, 2)? as i32),
                    _ => visit_text(decoding, text(bytes, 3)?, visitor),
                }
            }
            Kind::Json => {
                let mut json = serde_json::Deserializer::from_slice(text(value.bytes()?, 1)?);
                json.deserialize_any(visitor).map_err(|_| Error::Value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct enum identifier
    }
}

/// A string. Go replaces what is not UTF-8 when it writes JSON.
fn text_of<'de>(decoding: &Decoding, bytes: &'de [u8]) -> Result<Cow<'de, str>, Error> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Cow::Borrowed(text));
    }
    decoding.count(memory_of_bad_text(bytes))?;
    Ok(String::from_utf8_lossy(bytes))
}

fn visit_text<'de, V: Visitor<'de>>(
    decoding: &Decoding,
    bytes: &'de [u8],
    visitor: V,
) -> Result<V::Value, Error> {
    match text_of(decoding, bytes)? {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

/// The last number with this field number in a message, or 0.
fn number(message: &[u8], wanted: u32) -> Result<i64, Error> {
    let mut last = 0;
    for field in Fields(message) {
        let (number, value) = field?;
        if number == wanted {
            last = value.varint()?.cast_signed();
        }
    }
    Ok(last)
}

/// The last string with this field number in a message, or an empty one.
fn text(message: &[u8], wanted: u32) -> Result<&[u8], Error> {
    let mut last = &[][..];
    for field in Fields(message) {
        let (number, value) = field?;
        if number == wanted {
            last = value.bytes()?;
        }
    }
    Ok(last)
}
