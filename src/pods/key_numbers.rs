//! How many keys of each kind there are, of whatever is counted.

/// A number for each kind of key that pods claim. Each kind has a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyNumbers {
    pub(crate) names: usize,
    pub(crate) container_ids: usize,
    pub(crate) ips: usize,
    pub(crate) custom_keys: usize,
}

impl KeyNumbers {
    pub(crate) const fn sum(self) -> usize {
        let Self { names, container_ids, ips, custom_keys } = self;
        names + container_ids + ips + custom_keys
    }
}
