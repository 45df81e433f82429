//! Metrics of watches.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::{counter, counters, gauge, number};
use crate::pod_api::PodApi;

/// The watches of the pod API.
#[derive(Debug)]
pub(crate) struct Watches(pub(crate) PodApi);

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = self.0.figures();
        gauge(&mut encoder, "watches", "Open watches.", number(figures.watches))?;
        gauge(
            &mut encoder,
            "watch_history_events",
            "Stored events, from which a watch can start or resume.",
            number(figures.events),
        )?;
        gauge(
            &mut encoder,
            "watch_history_bytes",
            "Estimated memory of the replaced objects in the stored events, in bytes.",
            number(figures.bytes),
        )?;
        counter(&mut encoder, "watch_events_sent", "Events sent to watches.", figures.sent)?;
        counter(
            &mut encoder,
            "watch_events_encoded",
            "Objects encoded for watches. Watches of the same form share the bytes.",
            figures.encoded,
        )?;
        counter(
            &mut encoder,
            "watch_publications_coalesced",
            "Publications whose changes reached watches together with a later one's.",
            figures.coalesced,
        )?;
        counters(
            &mut encoder,
            "watch_drops",
            "Watches ended or refused by the agent, by reason.",
            [([("reason", "history")], figures.too_old), ([("reason", "limit")], figures.refused)],
        )
    }
}
