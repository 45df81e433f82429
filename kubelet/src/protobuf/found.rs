//! The fields of a message, as they are found in its bytes.

use super::schema::Field;
use super::wire::Value;

/// A value of a field, and the field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) field: &'static Field,
    pub(super) value: Value<'a>,
}
