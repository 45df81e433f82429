//! What the agent prints on standard output: with `--once` its whole answer, otherwise the pods once, on a terminal.

use std::future::pending;
use std::io::{self, IsTerminal};
use std::thread;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, Reader, Snapshot};
use pod_index_kubelet::records::Record;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::systemd;
use crate::api::table;
use crate::cli::format;
use crate::config::Settings;
use crate::config::args::Output;
use crate::config::failure::Failure;
use crate::pipeline::readiness::Readiness;
use crate::tasks::cannot_start;

/// Prints the pods once all sources are read. `url`: of the server. Without one, as with `--once`, that is all.
pub(super) async fn when_ready(
    settings: &Settings,
    reader: &Reader<Record>,
    readiness: &Readiness,
    url: Option<&str>,
) -> Result<(), Failure> {
    match url {
        Some(url) => {
            while_serving(settings, reader, readiness, url).await?;
            pending().await
        }
        None => once(settings, reader, readiness).await,
    }
}

/// Prints the pods, and says whether every manifest was usable.
async fn once(settings: &Settings, reader: &Reader<Record>, readiness: &Readiness) -> Result<(), Failure> {
    let mut seen = readiness.seen();
    let limit = settings.once_timeout;
    if timeout(limit, seen.wait_for(|ready| *ready)).await.is_err() {
        let missing = readiness.missing().join("; ");
        return Err(Failure::Unable(format!("not all sources were read within {limit:?}: {missing}")));
    }
    let output = settings.output;
    let reader = reader.clone();
    printing(move || show(output, &reader, format::print)).await?;
    verdict(readiness)
}

/// Tells systemd and the log that the pods of every source are known, and prints them for somebody at a terminal.
async fn while_serving(
    settings: &Settings,
    reader: &Reader<Record>,
    readiness: &Readiness,
    url: &str,
) -> Result<(), Failure> {
    // Fails only if the sender is gone, but `readiness` holds it.
    let _ = readiness.seen().wait_for(|ready| *ready).await;
    let pods = reader.load().pods().len();
    tracing::info!(pods, "ready: the pods of every source are in the index");
    systemd::notify(&format!("STATUS=ready, started with {pods} pods"));
    // Elsewhere standard output may share a stream with the log.
    if !io::stdout().is_terminal() {
        return Ok(());
    }
    let output = settings.output;
    let reader = reader.clone();
    let serving = format!("\nServing {url}/pods until Ctrl-C.\n");
    printing(move || {
        show(output, &reader, format::print)?;
        if output == Output::Table { format::print(&serving) } else { Ok(()) }
    })
    .await
}

/// Prints in a thread of its own. A terminal that was stopped by Ctrl-S, or a pipe that nobody reads, then keeps that thread
/// and not the agent.
async fn printing(print: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let (done, printed) = oneshot::channel();
    let work = move || drop(done.send(print()));
    thread::Builder::new()
        .name("print".to_owned())
        .spawn(work)
        .map_err(|error| cannot_start("the thread that prints", error))?;
    // Fails if the thread has panicked.
    printed.await.unwrap_or_else(|error| Err(Failure::unable("cannot print the pods", error)))
}

/// Prints the pods in the index. It may take as long as a terminal stays stopped, so no snapshot is held meanwhile, which would
/// keep replaced pods in memory.
fn show(
    output: Output,
    reader: &Reader<Record>,
    print: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let text = text(output, &reader.load())?;
    print(&text)
}

/// What to print of the pods.
fn text(output: Output, snapshot: &Snapshot<Record>) -> Result<String, Failure> {
    if output == Output::Table {
        return Ok(summary(snapshot));
    }
    let mut items: Vec<Pod> = snapshot.pods().map(|record| Pod::clone(record)).collect();
    items
        .sort_unstable_by(|a, b| (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid())));
    format::text(output, &List { items, ..List::default() }, |_| String::new())
}

/// The table and a summary line.
fn summary(snapshot: &Snapshot<Record>) -> String {
    let pods = snapshot.pods();
    let all = pods.clone().chain(snapshot.mirror_pods()).map(|record| &***record);
    let mirrored = snapshot.static_pods_with_mirrors().filter(|one| one.mirror.is_some()).count();
    format!(
        "{}\n{} pods, {} of them static, {mirrored} of those with a mirror pod; generation {}\n",
        table::pods(all),
        pods.len(),
        snapshot.static_pods().count(),
        snapshot.generation(),
    )
}

/// The result of `--once`: whether every manifest was usable.
fn verdict(readiness: &Readiness) -> Result<(), Failure> {
    let sources = readiness.sources();
    let unusable =
        sources.iter().flat_map(|status| &status.problems).filter(|problem| problem.kind.is_grave()).count();
    match unusable {
        0 => Ok(()),
        1 => Err(Failure::No(Some("1 problem; see above".to_owned()))),
        many => Err(Failure::No(Some(format!("{many} problems; see above")))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pipeline::records::alone;

    fn pod(name: &str) -> Arc<Record> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u1".to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("shop".to_owned());
        alone(pod)
    }

    #[test]
    fn no_snapshot_is_held_while_the_terminal_has_stopped() {
        let (mut writer, reader) = pod_index::new();
        writer.upsert_pod(pod("before")).unwrap();
        for output in [Output::Table, Output::Json, Output::Yaml] {
            let printed = show(output, &reader, |text| {
                assert!(text.contains("before"), "{text}");
                // The terminal has stopped here.
                writer.upsert_pod(pod("before")).unwrap();
                assert_eq!(writer.reclaim(), 0);
                Ok(())
            });
            printed.unwrap();
        }
    }
}
