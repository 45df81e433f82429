//! How many keys of each kind there are, of whatever is counted.

use crate::pod::ClaimedKeyRef;

/// A number for each kind of key that pods claim. Each kind has a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyNumbers {
    pub(crate) names: usize,
    pub(crate) container_ids: usize,
    pub(crate) ips: usize,
    pub(crate) custom_keys: usize,
}

impl KeyNumbers {
    /// The number for keys of this kind.
    pub(crate) fn number_of(key: ClaimedKeyRef<'_>) -> fn(&mut Self) -> &mut usize {
        match key {
            ClaimedKeyRef::ContainerId(_) => |numbers| &mut numbers.container_ids,
            ClaimedKeyRef::Ip(_) => |numbers| &mut numbers.ips,
            ClaimedKeyRef::Custom(..) => |numbers| &mut numbers.custom_keys,
            ClaimedKeyRef::Name { .. } => |numbers| &mut numbers.names,
        }
    }

    pub(crate) const fn sum(self) -> usize {
        let Self { names, container_ids, ips, custom_keys } = self;
        names + container_ids + ips + custom_keys
    }
}
