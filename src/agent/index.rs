//! The one writer thread: drains what is waiting, publishes once, frees what readers have let go of.
//!
//! This room knows the channel and the writer. It must not know what a source reads or who asks.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;

use super::board::Board;
use crate::sources::{Source, SourceUpdate};
use crate::{Operation, Writer};

/// How many reports may wait. A source that is faster than the writer waits: its own list is the better queue.
const WAITING: usize = 64;

/// How long the writer stays idle before it frees replaced snapshots that a reader had kept it from freeing.
const RECLAIM_PAUSE: Duration = Duration::from_millis(200);

/// What a source has to say.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) source: Source,
    pub(super) update: SourceUpdate<Pod>,
}

/// The writer thread. Dropping it leaves the thread to itself; [`stop`](Self::stop) ends it.
#[derive(Debug)]
pub(super) struct Index {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl Index {
    /// Starts the thread; the sender is how it hears of pods.
    pub(super) fn start(writer: Writer<Pod>, board: Arc<Board>) -> io::Result<(Self, Sender<Report>)> {
        let (reports, received) = bounded(WAITING);
        let (stop, stopped) = bounded(1);
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("index".to_owned()).spawn(move || {
            // Dropped, and thereby told, however the thread ends.
            let _end = end;
            write(writer, &received, &stopped, &board);
        })?;
        Ok((Self { stop, thread, ended }, reports))
    }

    /// Waits until the thread has ended, which without [`stop`](Self::stop) only a bug can bring about.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Ends the thread after the batch it is at, and waits for that.
    pub(super) fn stop(self) {
        // A thread that has ended needs no telling.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn write(mut writer: Writer<Pod>, reports: &Receiver<Report>, stop: &Receiver<()>, board: &Board) {
    loop {
        let idle = if writer.retired_snapshots() > 0 { after(RECLAIM_PAUSE) } else { never() };
        select! {
            recv(reports) -> report => match report {
                Ok(report) => publish(&mut writer, std::iter::once(report).chain(reports.try_iter()).take(WAITING), board),
                Err(_) => return,
            },
            recv(stop) -> _ => return,
            recv(idle) -> _ => { writer.reclaim(); }
        }
    }
}

/// Applies the reports in one publication, and only then tells the board.
fn publish(writer: &mut Writer<Pod>, reports: impl Iterator<Item = Report>, board: &Board) {
    let mut batch = Vec::new();
    let mut sources = Vec::new();
    for Report { source, update } in reports {
        if let SourceUpdate::Set(set) = update {
            batch.push(Operation::Set(set));
        }
        sources.push(source);
    }
    let operations = batch.len();
    let applied = writer.apply(batch);
    for refused in &applied.refused {
        let (pod, field) = (refused.error.full_name(), refused.error.field());
        tracing::warn!(pod, field, "{}", refused.error);
    }
    if applied.published {
        let pods = writer.snapshot().pods().len();
        tracing::debug!(generation = applied.generation, operations, pods, "published");
    }
    board.indexed(sources);
}
