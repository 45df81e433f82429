//! What belongs to the current pods and is in no table.

use crate::id::{FullName, PodUid};
use crate::table::OrdMap;

/// Data that is not in the tables. The map is nearly always empty.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct History {
    /// Removed pods to which a mirror still translates, with their full names.
    pub(crate) tombstones: OrdMap<PodUid, FullName>,
    /// Number of ignored keys of all pods.
    pub(crate) ignored_keys: usize,
}
