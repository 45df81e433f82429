//! Responses that are computed in parts.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use axum::body::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, Stream};

use super::client::ClientLimits;

/// The parts of a response body, each computed in a turn of its client. Empty parts are not sent.
pub(crate) fn in_turns(
    limits: &Arc<ClientLimits>,
    parts: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let parts = stream::unfold((Arc::clone(limits), parts), async |(limits, mut parts)| {
        let part = limits.in_turn(|| parts.next()).await??;
        Some((part, (limits, parts)))
    });
    parts.filter(|part| ready(!part.is_empty())).map(|part| Ok(part.into()))
}
