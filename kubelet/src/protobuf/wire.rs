//! Protobuf's encoding of fields: tags, variable-length integers, lengths. It knows no schema.

use std::fmt;

/// Why bytes are no protobuf message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireError {
    /// The bytes end within a field.
    Truncated,
    /// An integer has more than 64 bits.
    Overlong,
    /// A field has the number 0, or one that is too large.
    Number,
    /// A field is encoded in an unknown way, or in another way than its kind.
    WireType,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the bytes end within a field",
            Self::Overlong => "an integer has more than 64 bits",
            Self::Number => "the number of a field is out of range",
            Self::WireType => "the encoding is not that of its kind",
        })
    }
}

impl std::error::Error for WireError {}

/// The value of a field, as far as it is known without a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'a> {
    Varint(u64),
    /// A fixed number of bytes. No field of Kubernetes has such a value.
    Fixed,
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn varint(self) -> Result<u64, WireError> {
        if let Self::Varint(value) = self { Ok(value) } else { Err(WireError::WireType) }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], WireError> {
        if let Self::Bytes(value) = self { Ok(value) } else { Err(WireError::WireType) }
    }
}

/// The fields of a message, in the order of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), WireError> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or(WireError::Number)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| WireError::Truncated)?)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(WireError::WireType),
        };
        Ok((number, value))
    }

    /// The integer at the start of what is left.
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(WireError::Truncated)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overlong);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Overlong)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written() {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 1, u64::MAX);
        put_bytes(&mut bytes, 536_870_911, b"text");
        bytes.extend_from_slice(&[0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4]);
        let fields: Result<Vec<_>, _> = Fields(&bytes).collect();
        let wanted = [
            (1, Value::Varint(u64::MAX)),
            (536_870_911, Value::Bytes(b"text")),
            (3, Value::Fixed),
            (4, Value::Fixed),
        ];
        assert_eq!(fields.unwrap(), wanted);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for (bytes, wanted) in [
            (&[0x08][..], WireError::Truncated),
            (&[0x08, 0x80], WireError::Truncated),
            (&[0x0a, 2, 0], WireError::Truncated),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], WireError::Truncated),
            (&[0x09, 0], WireError::Truncated),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], WireError::Overlong),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], WireError::Overlong),
            (&[0x00, 0], WireError::Number),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0], WireError::Number),
            (&[0x0b], WireError::WireType),
            (&[0x0f], WireError::WireType),
        ] {
            let fields: Result<Vec<_>, _> = Fields(bytes).collect();
            assert_eq!(fields, Err(wanted), "{bytes:x?}");
        }
    }
}
