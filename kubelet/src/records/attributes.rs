//! Attributes, ready to attach, and the sharing of equal ones.
//!
//! This module knows names and values. It does not know where they come from.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// A name and a value to attach to an event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attribute {
    /// Such as `k8s.pod.name`.
    pub name: Arc<str>,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Most values.
    Text(Arc<str>),
    /// Such as `container.image.repo_digests`.
    Texts(Arc<[Arc<str>]>),
}

impl Value {
    /// The text, unless the value is a list.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Texts(_) => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::Texts(texts) => f.pad(&texts.join(",")),
        }
    }
}

/// As `name=value`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// Attributes that belong together and change together. Equal ones of several records are one object in memory.
pub(super) type Layer = Arc<[Attribute]>;

/// Makes equal layers and equal names one object in memory.
#[derive(Debug, Default)]
pub(super) struct Shared {
    layers: HashSet<Layer>,
    names: HashSet<Arc<str>>,
    /// The number at which those that nobody uses any more are removed.
    purge_at: usize,
    /// The texts of those that are left of the last removal, in bytes, and of those that came since.
    left: usize,
    come: usize,
}

/// Up to this number, what is unused stays, unless it has more bytes than the second one. A stranger may write long texts.
const SMALL: usize = 256;
const SMALL_BYTES: usize = 1 << 20;

impl Shared {
    /// `None` for no attributes.
    pub(super) fn layer(&mut self, attributes: Vec<Attribute>) -> Option<Layer> {
        if attributes.is_empty() {
            return None;
        }
        if let Some(known) = self.layers.get(&*attributes) {
            return Some(Arc::clone(known));
        }
        self.purge();
        let layer: Layer = attributes.into();
        self.come += bytes_of(&layer);
        self.layers.insert(Arc::clone(&layer));
        Some(layer)
    }

    /// A layer that no other record has.
    pub(super) fn alone(attributes: Vec<Attribute>) -> Option<Layer> {
        (!attributes.is_empty()).then(|| attributes.into())
    }

    pub(super) fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.come += name.len();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Removes what only this set uses, once it has doubled: a constant time for each insertion.
    fn purge(&mut self) {
        let are_few = self.layers.len() + self.names.len() < self.purge_at.max(SMALL);
        if are_few && self.come < self.left.max(SMALL_BYTES) {
            return;
        }
        self.layers.retain(|layer| Arc::strong_count(layer) > 1);
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.purge_at = 2 * (self.layers.len() + self.names.len());
        self.left = self.bytes();
        self.come = 0;
    }

    /// The texts of all, in bytes.
    fn bytes(&self) -> usize {
        let of_layers: usize = self.layers.iter().map(bytes_of).sum();
        let of_names: usize = self.names.iter().map(|name| name.len()).sum();
        of_layers + of_names
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.layers.len() + self.names.len()
    }
}

/// The values of a layer, in bytes.
fn bytes_of(layer: &Layer) -> usize {
    let of_value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Texts(texts) => texts.iter().map(|text| text.len()).sum(),
    };
    layer.iter().map(|attribute| of_value(&attribute.value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_layers_are_one_and_unused_ones_go() {
        let mut shared = Shared::default();
        let layer = |shared: &mut Shared, number: usize| {
            let name = shared.name(&format!("n{number}"));
            shared.layer(vec![Attribute { name, value: "v".into() }]).unwrap()
        };
        let kept = layer(&mut shared, 0);
        assert!(Arc::ptr_eq(&kept, &layer(&mut shared, 0)));
        for number in 1..10_000 {
            layer(&mut shared, number);
        }
        assert!(shared.len() <= 2 * SMALL, "{}", shared.len());
        assert!(Arc::ptr_eq(&kept, &layer(&mut shared, 0)));
    }

    /// Pods with long texts come and go, a hundred at a time.
    #[test]
    fn long_texts_that_nobody_uses_go_although_they_are_few() {
        let mut shared = Shared::default();
        for number in 0..200 {
            let long = format!("{number}{}", "x".repeat(100_000));
            let name = shared.name(&long);
            shared.layer(vec![Attribute { name, value: (&*long).into() }]).unwrap();
            assert!(shared.bytes() <= 2 * SMALL_BYTES, "{} bytes after {number}", shared.bytes());
        }
        assert!(shared.len() > 2, "those that came last stay for others");
    }
}
