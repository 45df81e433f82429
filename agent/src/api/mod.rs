//! The types and texts of the agent's HTTP interface, for the server and the commands. It must not know either.

pub(crate) mod client;
#[cfg(test)]
pub(crate) mod documented;
mod encoder;
pub(crate) mod gzip;
pub(crate) mod headers;
pub(crate) mod in_turns;
pub(crate) mod large;
pub(crate) mod mirrors;
pub(crate) mod open_count;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod seen;
pub(crate) mod selectors;
pub(crate) mod table;
pub(crate) mod types;
pub(crate) mod view;
