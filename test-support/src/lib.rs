//! Shared by the tests of several packages.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "not published")]

pub mod api_server;
pub mod canary;
pub mod certificate;
pub mod deployment;
pub mod dice;
pub mod files;
pub mod http_server;
pub mod kubelet;
#[cfg(unix)]
pub mod pods_api;
pub mod port;
pub mod proxy;

/// Reports, once per test, that a test cannot run on this machine. The message bypasses libtest's capture,
/// and `.ci/run` counts the test as skipped; libtest has no such state and would count it as passed.
pub fn skipped(what: &str, why: impl std::fmt::Display) {
    use std::io::Write as _;
    let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}: {why}");
}
