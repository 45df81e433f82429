//! Parsers for what events carry: cgroup paths, log paths, container IDs and other pod keys.
//!
//! Events name their pods in many forms. [`Identity::parse`] accepts all of them. If you know the form, use
//! its parser: [`Cgroup`], [`PodLog`], [`ContainerLog`], [`ContainerId`].
//!
//! All parsers are pure: they read no file and query no index. They allocate only for a UID of an unusual spelling in the
//! path of a cgroup. Results borrow from the text.
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

pub use cgroup::Cgroup;
pub use container_id::ContainerId;
pub use error::ParseIdentityError;
pub use log_path::{ContainerLog, PodLog};

use crate::id::{self, NameParts, UidRef};

/// Longer texts are refused unread. `/proc/PID/cgroup` is shorter.
const LONGEST: usize = 64 * 1024;
/// The largest process ID of Linux (`PID_MAX_LIMIT`).
const LARGEST_PID: u32 = 1 << 22;
/// The longest UID in bytes: as long as the longest name of an object.
const LONGEST_UID: usize = 253;

/// Any text that may identify a pod.
///
/// # Consistency
/// Some texts have several meanings. White space around the text is ignored, and the first match of this list
/// counts:
///
/// 1. lines of `/proc/PID/cgroup`;
/// 2. the path of a log file, or the path or name of a link to one;
/// 3. the path of a pod's directory, or of anything in it: of its logs, `…/NAMESPACE_NAME_UID`, or of the kubelet,
///    `…/pods/UID`;
/// 4. any other absolute path: the path of a cgroup;
/// 5. a container ID: alone, after `runtime://`, or in the name of a systemd scope;
/// 6. the name of a pod's systemd slice, alone or as `SLICE:RUNTIME:ID`;
/// 7. `NAMESPACE/NAME`;
/// 8. an IP address; an IPv4 address mapped to IPv6 counts as IPv4;
/// 9. a process ID: decimal digits, from 1 to 4,194,304, no leading zero;
/// 10. a full name, `NAME_NAMESPACE`;
/// 11. a UID: a UUID with hyphens, or 32 hex digits. [`parse_lenient`](Self::parse_lenient) also takes anything else of
///     at most 253 bytes without slashes and white space, because a manifest may set any UID.
///
/// # Examples
/// ```
/// use pod_index::identity::Identity;
///
/// assert!(matches!(Identity::parse("::ffff:10.0.0.7"), Ok(Identity::Ip(ip)) if ip.is_ipv4()));
/// assert!(matches!(Identity::parse("4711"), Ok(Identity::Pid(4711))));
/// assert!(matches!(Identity::parse("shop/web-0"), Ok(Identity::Name { namespace: "shop", name: "web-0" })));
/// // A prefix of a container ID is not a container ID.
/// assert!(Identity::parse("3e5f0b1c3e5f").is_err());
/// assert!(matches!(Identity::parse_lenient("web-0"), Ok(Identity::Uid(_))));
/// assert!(Identity::parse("/system.slice/sshd.service").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Identity<'a> {
    /// A UID of a pod or a mirror pod.
    Uid(UidRef<'a>),
    /// A container's ID.
    ContainerId(ContainerId),
    /// The cgroup of a pod or of a container.
    Cgroup(Cgroup),
    /// A container's log file.
    PodLog(PodLog<'a>),
    /// A link to a container's log file.
    ContainerLog(ContainerLog<'a>),
    /// A directory of a pod, or a path in it.
    PodDirectory {
        /// The pod's UID as the node knows it.
        pod_uid: UidRef<'a>,
        /// The container whose directory this is.
        container: Option<&'a str>,
    },
    /// A pod's IP address.
    Ip(IpAddr),
    /// A process ID in the host's PID namespace.
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
    /// Parses `text`. Only a UUID with hyphens or 32 hex digits is a UID.
    ///
    /// It believes what the text says. A cgroup may have any prefix, and whoever has a cgroup of his own can name those
    /// below it like a pod's; `process::Roots` of `pod-index-kubelet` knows where a kubelet puts its pods.
    ///
    /// # Complexity
    /// O(length); no allocation, unless a cgroup has a UID of an unusual spelling.
    ///
    /// # Errors
    /// If it is empty, longer than 64 KiB, or contains NUL; if it is a path that names neither a pod nor a
    /// container; if nothing in the list above matches.
    pub fn parse(text: &'a str) -> Result<Self, ParseIdentityError> {
        Self::parse_lenient(text).and_then(|identity| match identity {
            Self::Uid(uid) if !uid.is_usual_in_any_case() => Err(ParseIdentityError::Unknown),
            identity => Ok(identity),
        })
    }

    /// Like [`parse`](Self::parse), but takes any other word for a UID: a manifest may set any.
    ///
    /// # Complexity
    /// O(length); no allocation, unless a cgroup has a UID of an unusual spelling.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse), for fewer texts.
    pub fn parse_lenient(text: &'a str) -> Result<Self, ParseIdentityError> {
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
        if let Some((pod_uid, container)) = log_path::directory(text) {
            return Ok(Self::PodDirectory { pod_uid: pod_uid.into(), container });
        }
        if text.starts_with('/') {
            return Cgroup::from_path(text).map(Self::Cgroup).ok_or(ParseIdentityError::NoPod);
        }
        Self::short(text).ok_or(ParseIdentityError::Unknown)
    }

    /// Forms that are not paths.
    ///
    /// A form that is added comes before the full name, which takes any text with one `_`, and before the UID, which takes all that
    /// is left. May it contain a slash? Then it comes before `NAMESPACE/NAME`, too, beyond which no text with a slash gets.
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
        let full_name = id::split(text).and_then(|NameParts { namespace, name }| Self::name(namespace, name));
        if full_name.is_some() {
            return full_name;
        }
        (text.len() <= LONGEST_UID).then(|| Self::Uid(text.into()))
    }

    /// A pod's name, unless it contains a character that no name in Kubernetes does.
    fn name(namespace: &'a str, name: &'a str) -> Option<Self> {
        let is_part = |part: &str| !part.is_empty() && !part.contains(['/', '_', ':']) && is_printed(part);
        (is_part(namespace) && is_part(name)).then_some(Self::Name { namespace, name })
    }
}

/// Whether there is neither white space nor a control character.
fn is_printed(text: &str) -> bool {
    !text.contains(|char: char| char.is_whitespace() || char.is_control())
}

fn pid(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let pid = text.parse().ok()?;
    (is_number && (1..=LARGEST_PID).contains(&pid)).then_some(pid)
}
