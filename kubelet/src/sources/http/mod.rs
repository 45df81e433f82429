//! Pods from a URL.
//!
//! # Rules
//! * The URL is requested every 20 seconds with the configured headers. An answer may take at most 10
//!   seconds, including the body. Only `200 OK` is accepted.
//! * The body is a Pod or a list of pods, as YAML or JSON; the content type does not matter. It has at most
//!   10 MiB.
//! * A body equal to the last one is not decoded again.
//! * After any failure (no answer, a bad answer, one bad pod in a list) the last good pods stay.
//! * An empty body is an error too. But if the source has never reported any pods, it then reports an empty
//!   set and counts as seen, as in the kubelet.
//! * Unlike in the kubelet, a redirect is not followed: any header may be a credential, and Go's client sends most of
//!   them everywhere. The problem names the target.
//! * Unlike the kubelet, it refuses URLs that hold a password, which would appear in logs and in the status.
//!   Proxy variables of the environment are ignored.

mod config;
mod fetch;
mod files;
mod kubelet;
mod read;
mod requests;
#[cfg(feature = "http")]
mod source;

pub use config::HttpConfig;
pub(super) use read::{DecodedBody, follow_url};
#[cfg(feature = "http")]
pub use source::follow;
