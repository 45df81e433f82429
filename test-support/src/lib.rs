//! What the tests of several packages share.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "not published")]

pub mod api_server;
pub mod canary;
pub mod proxy;

/// Says that a test cannot show here what it is for. It goes past libtest's capture, and `.ci/run` counts the test as
/// skipped: libtest itself knows no such thing, and would count it as passed. Once a test.
pub fn skipped(what: &str, why: impl std::fmt::Display) {
    use std::io::Write as _;
    let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}: {why}");
}
