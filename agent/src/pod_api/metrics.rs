//! Metrics of watches.

use std::sync::atomic::{AtomicU64, Ordering};

use super::PodApi;
use super::watch_limits::WatchLimits;
use crate::metrics::Scrape;

pub(crate) fn show(api: &PodApi, to: &mut Scrape<'_>) {
    let sizes: Vec<_> = api.served.iter().map(|served| served.history.sizes()).collect();
    let WatchLimits { events_sent, encoded, too_old, refused, .. } = &*api.watch_limits;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    to.gauge("watches", "Open watches.", api.watch_limits.open());
    let help = "Stored events, from which a watch can start or resume.";
    to.gauge("watch_history_events", help, sizes.iter().map(|sizes| sizes.events).sum::<usize>());
    let help = "Estimated memory of the replaced objects in the stored events, in bytes.";
    to.gauge("watch_history_bytes", help, sizes.iter().map(|sizes| sizes.bytes).sum::<usize>());
    to.counter("watch_events_sent", "Events sent to watches.", count(events_sent));
    let help = "Objects encoded for watches. Watches of the same form share the bytes.";
    to.counter("watch_events_encoded", help, count(encoded));
    let drops = [([("reason", "history")], count(too_old)), ([("reason", "limit")], count(refused))];
    to.counters("watch_drops", "Watches ended or refused by the agent, by reason.", drops);
}
