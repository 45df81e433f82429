//! Source metrics: the content of `/sources` as numbers.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use pod_index_kubelet::sources::{Source, SourceStatus};

use super::readiness::Readiness;
use crate::metrics::{Scrape, number};

/// `period_of`: how often a source is checked; zero if it is only followed.
pub(crate) fn show(readiness: &Readiness, period_of: impl Fn(Source) -> Duration, to: &mut Scrape<'_>) {
    let sources = readiness.sources();
    let ready = i64::from(readiness.is_ready());
    to.gauge("ready", "Whether the pods of every source are in the index.", ready);
    let pods = each(&sources, |status| number(status.pods));
    to.gauges("source_pods", "Pods that the source names.", pods);
    let checks = each(&sources, |status| status.checks);
    to.counters("source_checks", "Checks of the source's files, URL or server.", checks);
    let failed = each(&sources, |status| status.failed_checks);
    let help = "Checks that failed completely: no such path, no response.";
    to.counters("source_failed_checks", help, failed);
    let servers: Vec<_> = sources.iter().filter(|status| status.source == Source::Api).cloned().collect();
    let relists = each(&servers, |status| status.relists);
    let help = "Times that the source had to list all pods of the API server again.";
    to.counters("source_relists", help, relists);
    let last = each(&sources, |status| {
        let since = status.last_check.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since.map_or(0.0, |since| since.as_secs_f64())
    });
    let help = "Time of the last check, successful or not; 0 before the first.";
    to.gauges("source_last_check_timestamp_seconds", help, last);
    let periods = each(&sources, |status| period_of(status.source).as_secs_f64());
    let help = "How often the source is checked; 0 if it is only followed.";
    to.gauges("source_check_period_seconds", help, periods);
    let silence = sources
        .iter()
        .filter_map(|status| Some(([("source", status.source.as_str())], status.silence()?.as_secs_f64())));
    let help = "Time since the source last responded with a read, a response, an event or a bookmark; absent before the first.";
    to.gauges("source_silence_seconds", help, silence);
    let failing = each(&sources, |status| status.failing().map_or(0.0, |failing| failing.as_secs_f64()));
    let help =
        "Time since which every check of the source has failed completely; 0 if the last one succeeded.";
    to.gauges("source_failing_seconds", help, failing);
    let problems = sources.iter().flat_map(|status| {
        let mut kinds = BTreeMap::<_, i64>::new();
        status.problems.iter().for_each(|problem| *kinds.entry(problem.kind).or_default() += 1);
        let source = status.source.as_str();
        kinds.into_iter().map(move |(kind, count)| ([("source", source), ("kind", kind.as_str())], count))
    });
    let help = "Problems of the source, by kind; kinds without problems are absent.";
    to.gauges("source_problems", help, problems);
}

fn each<V>(
    sources: &[SourceStatus],
    value: impl Fn(&SourceStatus) -> V,
) -> impl Iterator<Item = ([(&'static str, &'static str); 1], V)> {
    sources.iter().map(move |status| ([("source", status.source.as_str())], value(status)))
}
