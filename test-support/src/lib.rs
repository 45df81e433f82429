//! What the tests of several packages share.
#![allow(missing_docs, reason = "not published")]

pub mod api_server;
pub mod canary;
pub mod proxy;
