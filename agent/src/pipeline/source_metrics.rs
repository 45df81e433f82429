//! Source metrics: the content of `/sources` as numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::{counters, gauge, gauges, number};
use crate::pipeline::readiness::Readiness;
use pod_index_kubelet::sources::SourceStatus;

#[derive(Debug)]
pub(crate) struct Sources(pub(crate) Arc<Readiness>);

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sources = self.0.sources();
        let encoder = &mut encoder;
        let ready = i64::from(self.0.is_ready());
        gauge(encoder, "ready", "Whether the pods of every source are in the index.", ready)?;
        gauges(
            encoder,
            "source_seen",
            "Whether the source's pods are in the index.",
            each(&sources, |status| i64::from(status.seen)),
        )?;
        let pods = each(&sources, |status| number(status.pods));
        gauges(encoder, "source_pods", "Pods that the source names.", pods)?;
        counters(
            encoder,
            "source_checks",
            "Checks of the source's files, URL or server.",
            each(&sources, |status| status.checks),
        )?;
        counters(
            encoder,
            "source_failed_checks",
            "Checks that failed completely: no such path, no response.",
            each(&sources, |status| status.failed_checks),
        )?;
        let updates = each(&sources, |status| status.updates);
        counters(encoder, "source_updates", "Updates of the source's pods.", updates)?;
        counters(
            encoder,
            "source_relists",
            "Times that the source had to list all pods of the API server again.",
            each(&sources, |status| status.relists),
        )?;
        gauges(
            encoder,
            "source_last_check_timestamp_seconds",
            "Time of the last check, successful or not; 0 before the first.",
            each(&sources, |status| {
                let since = status.last_check.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                since.map_or(0.0, |since| since.as_secs_f64())
            }),
        )?;
        gauges(
            encoder,
            "source_silence_seconds",
            "Time since the source last responded with a read, a response, an event or a bookmark; absent before the first.",
            sources.iter().filter_map(|status| {
                Some(([("source", status.source.as_str())], status.silence()?.as_secs_f64()))
            }),
        )?;
        gauges(
            encoder,
            "source_problems",
            "Problems of the source, by kind; kinds without problems are absent.",
            sources.iter().flat_map(|status| {
                let mut kinds = BTreeMap::<_, i64>::new();
                status.problems.iter().for_each(|problem| *kinds.entry(problem.kind()).or_default() += 1);
                let source = status.source.as_str();
                kinds
                    .into_iter()
                    .map(move |(kind, count)| ([("source", source), ("kind", kind.as_str())], count))
            }),
        )
    }
}

fn each<V>(
    sources: &[SourceStatus],
    value: impl Fn(&SourceStatus) -> V,
) -> impl Iterator<Item = ([(&'static str, &'static str); 1], V)> {
    sources.iter().map(move |status| ([("source", status.source.as_str())], value(status)))
}
