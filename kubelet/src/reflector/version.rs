//! The resource versions of objects.

use std::collections::HashMap;

use pod_index::PodUid;

/// A resource version. `None` if it is not a number, which no API server sends. It may then be another one each time.
pub(super) type Version = Option<u64>;

/// The resource versions of all objects.
pub(super) type Versions = HashMap<PodUid, Version>;

/// Whether a version is older than another one, if both are numbers.
pub(super) fn is_older(version: Version, other: Version) -> bool {
    version.zip(other).is_some_and(|(version, other)| version < other)
}
