//! Bodies of responses that are computed in parts.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::stream;

use super::client::Share;

/// A body made of parts, each computed in a turn of its client. Empty parts are not sent.
pub(crate) fn in_turns(client: &Arc<Share>, parts: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Body {
    let client = Arc::clone(client);
    Body::from_stream(stream::unfold(Some((client, parts)), async |left| {
        let (client, mut parts) = left?;
        loop {
            let done = client.work(move || (parts.next(), parts)).await;
            let (part, rest) = done?;
            parts = rest;
            match part {
                Some(part) if part.is_empty() => {}
                part => {
                    return part.map(|part| (Ok::<_, Infallible>(Bytes::from(part)), Some((client, parts))));
                }
            }
        }
    }))
}
