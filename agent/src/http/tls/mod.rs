//! TLS for the agent's port and its clients: rustls with ring, even if other providers are in the tree.
//!
//! | side | presents | trusts |
//! |---|---|---|
//! | the agent | `--tls-cert-file`, `--tls-private-key-file` | any client; with `--client-ca-file`, clients with a certificate from these authorities |
//! | `pod-index get` | `--client-certificate`, `--client-key`, if given | `--certificate-authority` |
//!
//! The agent checks its files every ten seconds, and reloads changed ones. New connections use the new
//! files; open connections keep the old ones. Invalid or mismatched files change nothing.
//!
//! This module knows files and handshakes. It must not know requests or responses.

pub(crate) mod pem;
mod server;

pub(crate) use self::server::Tls;
