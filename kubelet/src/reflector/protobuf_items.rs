//! Splits the answer to a list in protobuf into its objects while it arrives, as `items` does for JSON.
//!
//! Such an answer is an envelope: the letters `k8s`, a zero byte, and a `runtime.Unknown`, whose second field is the list. The
//! first field of the list is its metadata, each second field an object.

use super::encoded::unreadable;
use super::failure::Failure;
use super::split::{Each, LARGEST, Split, too_large};
use crate::protobuf::wire::{Fields, WireError};

const MAGIC: &[u8] = b"k8s\0";

/// The part of a list that has arrived.
#[derive(Default)]
pub(super) struct ProtobufItems {
    /// What is not read yet.
    rest: Vec<u8>,
    place: Place,
    version: String,
}

/// What comes next.
#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Magic,
    /// A field of the envelope.
    Envelope,
    /// A field of the list, of which this many bytes are left.
    List { left: u64 },
    /// The list is complete.
    End,
}

impl Split for ProtobufItems {
    fn take(&mut self, bytes: &[u8], each: Each<'_>) -> Result<(), Failure> {
        self.rest.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some(length) = self.step(taken, each)? {
            taken += length;
        }
        self.rest.drain(..taken);
        Ok(())
    }

    /// Every object was passed on by `take`: the list says how long it is.
    fn end(&mut self, _each: Each<'_>) -> Result<u64, Failure> {
        match self.place {
            // As 0, one that is not a number lets the watch send all objects.
            Place::End => Ok(self.version.parse().unwrap_or_default()),
            _ => Err(unreadable("a list that ends early")),
        }
    }
}

impl ProtobufItems {
    /// Takes what comes next, if all of it has arrived. Returns its length.
    fn step(&mut self, taken: usize, each: Each<'_>) -> Result<Option<usize>, Failure> {
        let rest = &self.rest[taken..];
        match self.place {
            Place::Magic => {
                let arrived = &rest[..rest.len().min(MAGIC.len())];
                if !MAGIC.starts_with(arrived) {
                    return Err(unreadable("a list"));
                }
                if arrived.len() < MAGIC.len() {
                    return Ok(None);
                }
                self.place = Place::Envelope;
                Ok(Some(MAGIC.len()))
            }
            Place::Envelope => {
                let Some(head) = head(rest)? else { return Ok(None) };
                if head.number == 2 {
                    self.place = Place::List { left: head.content };
                    return Ok(Some(head.length));
                }
                // What the list is. A server sends `v1` and `PodList`.
                whole(rest, head)
            }
            Place::List { left: 0 } => {
                self.place = Place::End;
                Ok(Some(0))
            }
            Place::List { left } => {
                let Some(head) = head(rest)? else { return Ok(None) };
                let Some(length) = whole(rest, head)? else { return Ok(None) };
                let left = left.checked_sub(length as u64).ok_or_else(|| unreadable("a list"))?;
                let content = &rest[head.length..length];
                match head.number {
                    1 => self.version = version(content).map_err(|_| unreadable("a list"))?,
                    2 => each(content)?,
                    _ => {}
                }
                self.place = Place::List { left };
                Ok(Some(length))
            }
            Place::End => Ok((!rest.is_empty()).then_some(rest.len())),
        }
    }
}

/// The start of a field of bytes.
#[derive(Clone, Copy)]
struct Head {
    number: u32,
    /// Of the start itself.
    length: usize,
    /// Of what follows.
    content: u64,
}

/// `None`: not all of it has arrived.
fn head(bytes: &[u8]) -> Result<Option<Head>, Failure> {
    let mut rest = Fields(bytes);
    let mut varint = || match rest.varint() {
        Ok(value) => Ok(Some((value, bytes.len() - rest.0.len()))),
        Err(WireError::Truncated) => Ok(None),
        Err(_) => Err(unreadable("a list")),
    };
    let Some((tag, _)) = varint()? else { return Ok(None) };
    let Some((content, length)) = varint()? else { return Ok(None) };
    // Neither a list nor its envelope has a field of another kind.
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0 && tag & 7 == 2);
    let number = number.ok_or_else(|| unreadable("a list"))?;
    Ok(Some(Head { number, length, content }))
}

/// The length of the whole field, if it has arrived.
fn whole(bytes: &[u8], head: Head) -> Result<Option<usize>, Failure> {
    let content = usize::try_from(head.content).ok().filter(|content| *content <= LARGEST);
    let length = head.length + content.ok_or_else(too_large)?;
    Ok((length <= bytes.len()).then_some(length))
}

/// The version in a list's metadata.
fn version(metadata: &[u8]) -> Result<String, WireError> {
    let mut version = String::new();
    for field in Fields(metadata) {
        if let (2, value) = field? {
            version = String::from_utf8_lossy(value.bytes()?).into_owned();
        }
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::super::failure::FailureKind;
    use super::*;
    use crate::protobuf::message::put;

    fn list(items: &[&[u8]]) -> Vec<u8> {
        let mut metadata = Vec::new();
        let mut list = Vec::new();
        let mut envelope = MAGIC.to_vec();
        put(&mut metadata, 1, b"");
        put(&mut metadata, 2, b"7");
        put(&mut list, 1, &metadata);
        for item in items {
            put(&mut list, 2, item);
        }
        put(&mut envelope, 1, b"\x0a\x02v1\x12\x07PodList");
        put(&mut envelope, 2, &list);
        put(&mut envelope, 3, b"");
        put(&mut envelope, 4, b"");
        envelope
    }

    fn split(bytes: &[u8], size: usize) -> Result<(Vec<Vec<u8>>, u64), Failure> {
        let mut items = ProtobufItems::default();
        let mut found = Vec::new();
        let mut each = |item: &[u8]| {
            found.push(item.to_vec());
            Ok(())
        };
        for part in bytes.chunks(size) {
            items.take(part, &mut each)?;
        }
        let version = items.end(&mut each)?;
        Ok((found, version))
    }

    #[test]
    fn a_list_is_split_into_its_items_wherever_its_bytes_are_split() {
        let long = vec![0x12; 5000];
        for items in [&[][..], &[&b""[..]], &[b"a", &long, b"k8s\0"]] {
            let bytes = list(items);
            for size in [1, 2, 7, 64, bytes.len()] {
                let (found, version) = split(&bytes, size).unwrap();
                assert!(version == 7 && found == items, "{size}: {} items", items.len());
            }
        }
    }

    #[test]
    fn what_is_no_list_or_ends_early_is_a_failure_that_quotes_nothing() {
        let whole = list(&[b"hunter2"]);
        let mut too_long = whole.clone();
        // The list says that it is shorter than its last object.
        let at = whole.windows(2).position(|pair| pair[0] == 0x12 && usize::from(pair[1]) > 9).unwrap();
        too_long[at + 1] -= 1;
        let cut: Vec<_> = (0..whole.len() - 5).map(|length| whole[..length].to_vec()).collect();
        for bytes in
            [b"<html>hunter2</html>".to_vec(), b"k8s\0\x08\x07".to_vec(), too_long].iter().chain(&cut)
        {
            let failure = split(bytes, 3).expect_err(&format!("{bytes:?}"));
            assert_eq!(failure.kind, FailureKind::NoProtobuf);
            assert!(!failure.message.contains("hunter"), "{}", failure.message);
        }
    }

    /// What is skipped as a field of bytes may be something else, and what follows it then means anything.
    #[test]
    fn a_list_begins_with_the_magic_and_has_only_fields_of_bytes_that_have_a_number() {
        let whole = list(&[b"a"]);
        let (magic, fields) = whole.split_at(MAGIC.len());
        // An integer; bytes of the field 0.
        for (magic, field) in [(&b"k8s\x01"[..], &b""[..]), (magic, b"\x08\x00"), (magic, b"\x02\x00")] {
            assert!(split(&[magic, field, fields].concat(), 64).is_err(), "{magic:?} {field:?}");
        }
        assert!(split(&[magic, b"\x2a\x00", fields].concat(), 64).is_ok(), "a field that nobody knows");
    }

    #[test]
    fn a_list_is_whole_without_another_byte_after_it() {
        let whole = list(&[b"a"]);
        // Without the two empty fields at its end.
        let (found, version) = split(&whole[..whole.len() - 4], 64).unwrap();
        assert_eq!((found, version), (vec![b"a".to_vec()], 7));
    }

    #[test]
    fn an_object_beyond_the_limit_ends_the_list() {
        for (length, is_whole) in [(LARGEST, true), (LARGEST + 1, false)] {
            let bytes = list(&[&vec![0; length]]);
            for size in [100_000, bytes.len()] {
                assert_eq!(split(&bytes, size).is_ok(), is_whole, "{length} in parts of {size}");
            }
        }
    }
}
