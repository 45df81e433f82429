//! From the types that JSON is made of through serde into protobuf.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::schema::{Field, Kind, Message, Shape};
use super::wire::{put_bytes, put_number};

/// Encodes a value whose fields are those of `message`. Fields that the message does not have, and values that their fields
/// cannot have, are left out.
pub(super) fn encode(message: &'static Message, value: &impl Serialize) -> Vec<u8> {
    match value.serialize(Encoder { kind: Kind::Message(message) }) {
        Ok(Encoded::Bytes(bytes)) => bytes,
        _ => Vec::new(),
    }
}

/// A value in protobuf, without the number of its field.
#[derive(Debug)]
enum Encoded {
    Absent,
    Number(u64),
    /// A string, bytes or a message.
    Bytes(Vec<u8>),
    List(Vec<Self>),
    Map(Vec<MapEntry>),
}

/// An entry of a map, which is a message of two fields.
#[derive(Debug)]
struct MapEntry {
    key: Encoded,
    value: Encoded,
}

impl Encoded {
    fn is_zero(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Number(number) => *number == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(_) | Self::Map(_) => false,
        }
    }

    fn write(self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Absent => {}
            Self::Number(value) => put_number(out, number, value),
            Self::Bytes(bytes) => put_bytes(out, number, &bytes),
            Self::List(values) => values.into_iter().for_each(|value| value.write(number, out)),
            Self::Map(entries) => {
                for MapEntry { key, value } in entries {
                    let mut entry = Vec::new();
                    key.write(1, &mut entry);
                    value.write(2, &mut entry);
                    put_bytes(out, number, &entry);
                }
            }
        }
    }
}

/// A value is not of the kind that its field has.
#[derive(Debug)]
struct Mismatch;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is not of the field's kind")
    }
}

impl std::error::Error for Mismatch {}

impl ser::Error for Mismatch {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self
    }
}

/// Encodes a value of this kind, or a list or mapping of such values.
#[derive(Clone, Copy)]
struct Encoder {
    kind: Kind,
}

/// A value of JSON that no field of Kubernetes' protobuf has.
macro_rules! mismatches {
    ($($method:ident($kind:ty);)*) => {
        $(fn $method(self, _value: $kind) -> Result<Encoded, Mismatch> {
            Err(Mismatch)
        })*
    };
}

impl Serializer for Encoder {
    type Ok = Encoded;
    type Error = Mismatch;
    type SerializeSeq = ListEncoder;
    type SerializeTuple = Impossible<Encoded, Mismatch>;
    type SerializeTupleStruct = Impossible<Encoded, Mismatch>;
    type SerializeTupleVariant = Impossible<Encoded, Mismatch>;
    type SerializeMap = MapEncoder;
    type SerializeStruct = MessageEncoder;
    type SerializeStructVariant = Impossible<Encoded, Mismatch>;

    fn serialize_bool(self, value: bool) -> Result<Encoded, Mismatch> {
        Ok(Encoded::Number(u64::from(value)))
    }

    fn serialize_i32(self, value: i32) -> Result<Encoded, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<Encoded, Mismatch> {
        let value = value.cast_unsigned();
        if !matches!(self.kind, Kind::IntOrString) {
            return Ok(Encoded::Number(value));
        }
        let mut message = Vec::new();
        put_number(&mut message, 1, 0);
        put_number(&mut message, 2, value);
        Ok(Encoded::Bytes(message))
    }

    fn serialize_str(self, value: &str) -> Result<Encoded, Mismatch> {
        let mut message = Vec::new();
        match self.kind {
            Kind::Text => message.extend_from_slice(value.as_bytes()),
            Kind::Quantity => put_bytes(&mut message, 1, value.as_bytes()),
            Kind::IntOrString => {
                put_number(&mut message, 1, 1);
                put_bytes(&mut message, 3, value.as_bytes());
            }
            Kind::Time => {
                let time: Timestamp = value.parse().map_err(|_| Mismatch)?;
                put_number(&mut message, 1, time.as_second().cast_unsigned());
                put_number(&mut message, 2, 0);
            }
            Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Message(_) | Kind::Json => return Err(Mismatch),
        }
        Ok(Encoded::Bytes(message))
    }

    fn serialize_none(self) -> Result<Encoded, Mismatch> {
        Ok(Encoded::Absent)
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<Encoded, Mismatch> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Encoded, Mismatch> {
        Ok(Encoded::Absent)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Encoded, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
    ) -> Result<Encoded, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Encoded, Mismatch> {
        if !matches!(self.kind, Kind::Json) {
            return value.serialize(self);
        }
        let json = serde_json::to_vec(value).map_err(|_| Mismatch)?;
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &json);
        Ok(Encoded::Bytes(message))
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<Encoded, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<ListEncoder, Mismatch> {
        Ok(ListEncoder { encoder: self, values: Vec::with_capacity(length.unwrap_or_default()) })
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleStruct, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant, Mismatch> {
        Err(Mismatch)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<MapEncoder, Mismatch> {
        Ok(MapEncoder { encoder: self, entries: Vec::with_capacity(length.unwrap_or_default()) })
    }

    fn serialize_struct(self, _name: &'static str, length: usize) -> Result<MessageEncoder, Mismatch> {
        let Kind::Message(message) = self.kind else { return Err(Mismatch) };
        Ok(MessageEncoder { message, fields: Vec::with_capacity(length) })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, Mismatch> {
        Err(Mismatch)
    }

    mismatches! {
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_bytes(&[u8]);
    }
}

struct ListEncoder {
    encoder: Encoder,
    values: Vec<Encoded>,
}

impl SerializeSeq for ListEncoder {
    type Ok = Encoded;
    type Error = Mismatch;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Mismatch> {
        self.values.push(value.serialize(self.encoder)?);
        Ok(())
    }

    fn end(self) -> Result<Encoded, Mismatch> {
        Ok(Encoded::List(self.values))
    }
}

struct MapEncoder {
    encoder: Encoder,
    entries: Vec<MapEntry>,
}

impl SerializeMap for MapEncoder {
    type Ok = Encoded;
    type Error = Mismatch;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Mismatch> {
        let key = key.serialize(Encoder { kind: Kind::Text })?;
        self.entries.push(MapEntry { key, value: Encoded::Absent });
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Mismatch> {
        let entry = self.entries.last_mut().ok_or(Mismatch)?;
        entry.value = value.serialize(self.encoder)?;
        Ok(())
    }

    fn end(self) -> Result<Encoded, Mismatch> {
        Ok(Encoded::Map(self.entries))
    }
}

/// A field of a message, or of a message that is inlined in it.
struct EncodedField {
    /// The number of the inlined message, or the field's own.
    number: u32,
    /// The field's number in the inlined message.
    number_inside: Option<u32>,
    value: Encoded,
}

struct MessageEncoder {
    message: &'static Message,
    fields: Vec<EncodedField>,
}

impl MessageEncoder {
    /// The field with this name in JSON, and the number of the inlined message that has it.
    fn find(&self, name: &str) -> Option<(&'static Field, Option<u32>)> {
        let own = self.message.0.iter().find(|field| field.name == name && field.shape != Shape::Inlined);
        let inlined = || {
            self.message.0.iter().find_map(|outer| match (outer.shape, outer.kind) {
                (Shape::Inlined, Kind::Message(message)) => {
                    let field = message.0.iter().find(|field| field.name == name)?;
                    Some((field, Some(outer.number)))
                }
                _ => None,
            })
        };
        own.map(|field| (field, None)).or_else(inlined)
    }
}

impl SerializeStruct for MessageEncoder {
    type Ok = Encoded;
    type Error = Mismatch;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Mismatch> {
        let Some((field, inlined)) = self.find(name) else { return Ok(()) };
        // A time that no calendar has, such as in the year 10000, is left out, and nothing else with it.
        let Ok(value) = value.serialize(Encoder { kind: field.kind }) else { return Ok(()) };
        let is_message = matches!(field.kind, Kind::Message(_));
        if !(field.shape == Shape::Value && !is_message && value.is_zero()) {
            let number_inside = inlined.map(|_| field.number);
            self.fields.push(EncodedField { number: inlined.unwrap_or(field.number), number_inside, value });
        }
        Ok(())
    }

    fn end(mut self) -> Result<Encoded, Mismatch> {
        self.fields.sort_by_key(|field| (field.number, field.number_inside));
        let mut bytes = Vec::new();
        let mut fields = self.fields.into_iter().peekable();
        while let Some(EncodedField { number, number_inside, value }) = fields.next() {
            let Some(inside) = number_inside else {
                value.write(number, &mut bytes);
                continue;
            };
            let mut message = Vec::new();
            value.write(inside, &mut message);
            while let Some(field) = fields.next_if(|field| field.number == number) {
                field.value.write(field.number_inside.unwrap_or_default(), &mut message);
            }
            put_bytes(&mut bytes, number, &message);
        }
        Ok(Encoded::Bytes(bytes))
    }
}
