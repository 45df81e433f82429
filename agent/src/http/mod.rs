//! The HTTP server: connections, TLS, access, routes and the page. It must not know where pods come from.

pub(crate) mod access;
pub(crate) mod build;
pub(crate) mod listeners;
pub(crate) mod serve;
pub(crate) mod tls;
