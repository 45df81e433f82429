//! TLS on the agent's port, and for those who ask it: rustls, with ring, whatever else is in the tree.
//!
//! | who | presents | trusts |
//! |---|---|---|
//! | the agent | `--tls-cert-file`, `--tls-private-key-file` | anybody; with `--client-ca-file`, whom these authorities vouch for |
//! | `pod-index get` | `--client-certificate`, `--client-key`, if given | `--certificate-authority` |
//!
//! The agent reads its files anew when they change, which it looks for every ten seconds, and on SIGHUP. New connections
//! meet the new ones; those that are open go on. Files that are no good, or do not belong together, change nothing.
//!
//! This module knows files and handshakes. It must not know what is asked or answered.

pub(super) mod client;
mod pem;
mod server;

pub(super) use self::server::{Tls, TlsFiles, speaks_tls, turn_away};
