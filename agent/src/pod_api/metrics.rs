//! Metrics of watches.

use super::{Figures, PodApi};
use crate::metrics::{Scrape, number};

pub(crate) fn show(api: &PodApi, to: &mut Scrape<'_>) {
    let Figures { watches, events, bytes, sent, encoded, coalesced, too_old, refused } = api.figures();
    to.gauge("watches", "Open watches.", number(watches));
    let help = "Stored events, from which a watch can start or resume.";
    to.gauge("watch_history_events", help, number(events));
    let help = "Estimated memory of the replaced objects in the stored events, in bytes.";
    to.gauge("watch_history_bytes", help, number(bytes));
    to.counter("watch_events_sent", "Events sent to watches.", sent);
    let help = "Objects encoded for watches. Watches of the same form share the bytes.";
    to.counter("watch_events_encoded", help, encoded);
    let help = "Publications whose changes reached watches together with a later one's.";
    to.counter("watch_publications_coalesced", help, coalesced);
    let drops = [([("reason", "history")], too_old), ([("reason", "limit")], refused)];
    to.counters("watch_drops", "Watches ended or refused by the agent, by reason.", drops);
}
