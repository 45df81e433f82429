//! The limit of open files. Each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for what is neither a connection nor a watch.
const OTHERS: u64 = 48;

/// How many connections there may be, and how many watches, so that neither takes the other's descriptors.
pub(crate) fn half() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(OTHERS) / 2).unwrap_or(usize::MAX)
}

/// Raises the soft limit to the hard one. Programs that use `select(2)` need the low default, the agent does not.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}
