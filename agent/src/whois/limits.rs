//! The limits of `/whois`. `docs/reference.md` lists them.

use std::time::Duration;

/// Maximum number of queries in a GET.
pub(crate) const QUERIES: usize = 100;
/// Maximum size of a POST's body, in bytes.
pub(crate) const BODY: usize = 1 << 20;
/// Timeout for the body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a place for the body.
pub(crate) const PLACE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of the answers to one request, in bytes. The queries after that get an error, so that a client can hold the
/// whole response in memory.
pub(crate) const ANSWERS: usize = 64 << 20;
/// After this many bytes, the answer about a workload has no further pods.
pub(crate) const PODS: usize = 128 << 10;
/// Maximum number of bodies in memory. Further requests with a body wait until one is dropped.
pub(crate) const BODIES: usize = 16;
/// Answers repeat at most this many bytes of a query. Paths of cgroups and logs are shorter.
pub(crate) const ECHO: usize = 4096;
