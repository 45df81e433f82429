//! Pods from a URL.
//!
//! This module knows HTTP, TLS and redirects. It must not know what else feeds the index.
//!
//! # Rules
//! * The URL is asked every 20 seconds, with the configured headers; an answer takes at most 10 seconds, redirects and
//!   body included. Only `200 OK` counts.
//! * The body is a Pod or a list of pods, as YAML or as JSON; what the server calls it does not matter. It has at most
//!   10 MiB.
//! * Bytes that are those of the last answer are not looked at again.
//! * Whatever fails (no answer, a bad one, one bad pod in a list) changes nothing: the last good pods stay.
//! * An empty body is an error too. But a source that has never said anything then says "no pods": as in the kubelet,
//!   it counts as seen.
//! * Up to ten redirects are followed, as by Go's client, to `http` and `https` only, and never from `https` to `http`. The
//!   configured headers are sent to the host of the configured URL and to no other, sub-domains included. Go's client, and with
//!   it the kubelet, follows such redirects and sends most headers everywhere.
//! * Unlike the kubelet, it refuses URLs that hold a password: it would end up in logs and in the status. Proxy
//!   variables of the environment are not read.

mod config;
mod fetch;
mod poll;
mod redirect;
mod source;

pub use config::HttpConfig;
pub(super) use poll::Asking;
pub use source::HttpSource;
