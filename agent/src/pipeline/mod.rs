//! The way of a pod from its sources to the index, and what follows the index: mirror pods, checkpoints, counts.

pub(crate) mod api_clients;
pub(crate) mod api_requests;
pub(crate) mod build;
pub(crate) mod checkpoints;
pub(crate) mod events;
mod listening;
pub(crate) mod mirror_manager;
mod mirror_metrics;
pub(crate) mod mirrors;
mod own_node;
pub(crate) mod readiness;
pub(crate) mod records;
pub(crate) mod removed;
mod source_metrics;
pub(crate) mod sources;
mod suspension;
pub(crate) mod writer;
