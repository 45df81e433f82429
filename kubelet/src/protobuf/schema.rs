//! What a table of fields consists of. The tables themselves are generated; see `pod_table`.

/// A message: its fields, by ascending number.
#[derive(Debug)]
pub(super) struct Message(pub(super) &'static [Field]);

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    /// Its number in protobuf.
    pub(super) number: u32,
    /// Its name in JSON. Empty for an inlined message.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// The kind of its value, or of each of its values.
    pub(super) kind: Kind,
}

/// How often a field occurs in a message, and what JSON makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// At most once. Go writes zero (`0`, `false`, `""`) to protobuf and omits it from JSON.
    Value,
    /// At most once. If it is there, JSON has it as well, zero included: a pointer in Go, or a field without `omitempty`.
    Kept,
    /// Any number of times.
    List,
    /// Any number of pairs of a string and a value.
    Map,
    /// A message whose fields are, in JSON, fields of the message that contains it.
    Inlined,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Message(&'static Message),
    /// Seconds since 1970 in protobuf, RFC 3339 in JSON. An empty one is `null`.
    Time,
    /// A message around a string in protobuf, that string in JSON.
    Quantity,
    /// A message that says which it is in protobuf, the number or the string in JSON.
    IntOrString,
    /// A message around bytes that are JSON.
    Json,
}

impl Message {
    /// The field of this number.
    ///
    /// O(log fields).
    pub(super) fn field(&self, number: u32) -> Option<&'static Field> {
        let at = self.0.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.0[at])
    }
}

pub(super) const fn value(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, shape: Shape::Value, kind }
}

pub(super) const fn kept(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, shape: Shape::Kept, kind }
}

pub(super) const fn list(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, shape: Shape::List, kind }
}

pub(super) const fn map(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, shape: Shape::Map, kind }
}

pub(super) const fn inlined(number: u32, kind: Kind) -> Field {
    Field { number, name: "", shape: Shape::Inlined, kind }
}
