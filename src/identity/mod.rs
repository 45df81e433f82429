//! What an event carries, as a key: pure parsers of cgroup paths, log paths and container IDs.
//!
//! An agent's event names its pod by whatever was at hand. [`Identity::parse`] understands any of it; where you know what
//! you have, use the parser of that form: [`Cgroup`], [`PodLog`], [`ContainerLog`], [`ContainerId`].
//!
//! Nothing here reads a file, asks an index or allocates. What is parsed borrows from the text.
//!
//! # Examples
//! ```
//! use pod_index::identity::Identity;
//!
//! let Ok(Identity::PodLog(log)) = Identity::parse("/var/log/pods/shop_web-0_u-1/nginx/0.log") else { panic!() };
//! assert_eq!((log.namespace, log.name, log.pod_uid), ("shop", "web-0", "u-1"));
//! ```

mod cgroup;
mod container_id;
mod error;
mod log_path;

use std::net::IpAddr;

pub use cgroup::{Cgroup, CgroupUid};
pub use container_id::ContainerId;
pub use error::ParseIdentityError;
pub use log_path::{ContainerLog, PodLog};

use crate::id::{self, UidRef};

/// What is longer is refused unread. The lines of `/proc/PID/cgroup` together are shorter.
const LONGEST: usize = 64 * 1024;
/// The largest process ID of Linux (`PID_MAX_LIMIT`).
const LARGEST_PID: u32 = 1 << 22;
/// No UID is longer: an object's name has at most so many bytes.
const LONGEST_UID: usize = 253;

/// Whatever may tell which pod this is.
///
/// # Consistency
/// Some texts could be several things. The first of these counts; white space around the text does not:
///
/// 1. lines of `/proc/PID/cgroup`;
/// 2. the path of a log file, then the path of a link to one, or its name alone;
/// 3. any other absolute path: a cgroup's;
/// 4. a container ID, alone, behind `runtime://`, or as the name of a systemd scope;
/// 5. the name of a pod's systemd slice, alone or as `SLICE:RUNTIME:ID`;
/// 6. `NAMESPACE/NAME`;
/// 7. an IP address; an IPv4 address that is mapped to IPv6 is IPv4;
/// 8. a process ID: decimal digits, from 1 to 4,194,304, no leading zero;
/// 9. a full name, `NAME_NAMESPACE`;
/// 10. a UID: anything else without a slash and without white space, of at most 253 bytes, because a manifest may set any.
///
/// # Examples
/// ```
/// use pod_index::identity::Identity;
///
/// assert!(matches!(Identity::parse("::ffff:10.0.0.7"), Ok(Identity::Ip(ip)) if ip.is_ipv4()));
/// assert!(matches!(Identity::parse("4711"), Ok(Identity::Pid(4711))));
/// assert!(matches!(Identity::parse("shop/web-0"), Ok(Identity::Name { namespace: "shop", name: "web-0" })));
/// // The first digits of a container ID are no container ID, and no pod has such a UID.
/// assert!(matches!(Identity::parse("3e5f0b1c3e5f"), Ok(Identity::Uid(_))));
/// assert!(Identity::parse("/system.slice/sshd.service").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Identity<'a> {
    /// The UID of a pod or of a mirror pod.
    Uid(UidRef<'a>),
    /// A container's ID.
    ContainerId(ContainerId),
    /// The cgroup of a pod or of a container.
    Cgroup(Cgroup<'a>),
    /// A container's log file.
    PodLog(PodLog<'a>),
    /// A link to a container's log file.
    ContainerLog(ContainerLog<'a>),
    /// A pod's IP address.
    Ip(IpAddr),
    /// A process ID, as the host counts.
    Pid(u32),
    /// A pod's name.
    Name {
        /// Its namespace.
        namespace: &'a str,
        /// Its name in the namespace.
        name: &'a str,
    },
}

impl<'a> Identity<'a> {
    /// What `text` is.
    ///
    /// # Complexity
    /// O(length); no allocation.
    ///
    /// # Errors
    /// If it is empty, longer than 64 KiB, or holds NUL; if it is a path that names no pod and no container; if it is nothing
    /// that is listed above.
    pub fn parse(text: &'a str) -> Result<Self, ParseIdentityError> {
        if text.len() > LONGEST {
            return Err(ParseIdentityError::TooLong);
        }
        if text.contains('\0') {
            return Err(ParseIdentityError::Nul);
        }
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(ParseIdentityError::Empty);
        }
        if text.lines().next().and_then(cgroup::path_of_line).is_some() {
            let cgroup = Cgroup::from_proc(text.as_bytes());
            return cgroup.map(Self::Cgroup).ok_or(ParseIdentityError::NoPod);
        }
        let log = PodLog::from_path(text).map(Self::PodLog);
        let log = log.or_else(|| ContainerLog::from_path(text).map(Self::ContainerLog));
        if let Some(log) = log {
            return Ok(log);
        }
        if text.starts_with('/') {
            return Cgroup::from_path(text).map(Self::Cgroup).ok_or(ParseIdentityError::NoPod);
        }
        Self::short(text).ok_or(ParseIdentityError::Unknown)
    }

    /// What is no path.
    fn short(text: &'a str) -> Option<Self> {
        if let Some(id) = ContainerId::parse(text) {
            return Some(Self::ContainerId(id));
        }
        if let Some((namespace, name)) = text.split_once('/') {
            return Self::name(namespace, name);
        }
        if let Some(cgroup) = Cgroup::from_path(text) {
            return Some(Self::Cgroup(cgroup));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(Self::Ip(ip.to_canonical()));
        }
        if let Some(pid) = pid(text) {
            return Some(Self::Pid(pid));
        }
        if !is_printed(text) {
            return None;
        }
        if let Some(found) = id::split(text).and_then(|(name, namespace)| Self::name(namespace, name)) {
            return Some(found);
        }
        (text.len() <= LONGEST_UID).then(|| Self::Uid(text.into()))
    }

    /// A pod's name, unless it holds what no name in Kubernetes does.
    fn name(namespace: &'a str, name: &'a str) -> Option<Self> {
        let is_part = |part: &str| !part.is_empty() && !part.contains(['/', '_', ':']) && is_printed(part);
        (is_part(namespace) && is_part(name)).then_some(Self::Name { namespace, name })
    }
}

/// Whether there is neither white space nor any character that controls a terminal.
fn is_printed(text: &str) -> bool {
    !text.contains(|char: char| char.is_whitespace() || char.is_control())
}

fn pid(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let pid = text.parse().ok()?;
    (is_number && (1..=LARGEST_PID).contains(&pid)).then_some(pid)
}

impl<'a> TryFrom<&'a str> for Identity<'a> {
    type Error = ParseIdentityError;

    fn try_from(text: &'a str) -> Result<Self, ParseIdentityError> {
        Self::parse(text)
    }
}
