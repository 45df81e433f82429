//! Fields of messages that have no table: those of the Pods API around its pods. For the agent, which serves it.

use std::borrow::Cow;

use super::wire::{self, Fields};

/// Appends a field of bytes, a string or a message.
pub fn put(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    wire::put_bytes(message, number, bytes);
}

/// Appends a field with a number.
pub fn put_number(message: &mut Vec<u8>, number: u32, value: u64) {
    wire::put_number(message, number, value);
}

/// The last string with this field number. `None` if there is none, or the message cannot be read.
#[must_use]
pub fn text(message: &[u8], wanted: u32) -> Option<Cow<'_, str>> {
    let fields: Vec<_> = Fields(message).collect::<Result<_, _>>().ok()?;
    let (_, value) = fields.into_iter().rev().find(|(number, _)| *number == wanted)?;
    value.bytes().ok().map(String::from_utf8_lossy)
}
