//! A mirror pod in the tables, and the translation of its UID.

use std::sync::Arc;

use crate::id::PodUid;
use crate::table::Value;

/// A mirror pod, and its UID's translation.
pub(crate) struct Mirror<V> {
    pub(crate) pod: V,
    pub(crate) target: Translation,
}

/// The translation of a mirror's UID.
#[derive(Clone, PartialEq)]
pub(crate) enum Translation {
    /// To itself: it never coexisted with a pod of its full name.
    Identity,
    /// To the translation of the mirror that holds its full name.
    ViaHolder,
    /// To the pod that holds its full name, or held it last.
    Pod(PodUid),
}

impl Translation {
    /// The UID of the pod, if there is one.
    #[inline]
    pub(crate) fn uid(&self) -> Option<&PodUid> {
        if let Self::Pod(uid) = self { Some(uid) } else { None }
    }
}

impl<V: Value> Value for Mirror<V> {
    type Item = V::Item;

    #[inline]
    fn item(&self) -> &Arc<V::Item> {
        self.pod.item()
    }

    fn into_parts(self) -> (Arc<V::Item>, Option<Arc<str>>) {
        let text = if let Translation::Pod(uid) = self.target { uid.into_text() } else { None };
        (self.pod.into_parts().0, text)
    }
}
