//! The skeleton of an agent: a source, the writer's thread, a thread that looks up pods, metrics, and an orderly end.
//!
//! `cargo run -p pod-index-kubelet --example agent -- node-1 examples/manifests` reads events from standard input, here
//! one identity a line: a UID, `namespace/name`, a container ID, an IP, the path of a log. It prints their pods. Without
//! the directory, it follows the API server that kubectl uses.

use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::Identity;
use pod_index::{Options, PodMeta, Reader, Writer};
use pod_index_kubelet::sources::api_server::{ApiServer, connect};
use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate, file};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

#[derive(Default)]
struct Metrics {
    found: AtomicU64,
    unknown: AtomicU64,
    retired: AtomicUsize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let node = NodeName::new(&args.next().ok_or("usage: agent NODE [DIRECTORY]")?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("metrics: http://{}/", listener.local_addr()?);
    let events = BufReader::new(io::stdin());
    if let Some(directory) = args.next() {
        run(Source::File, file::follow(directory, node), listener, events, io::stdout()).await
    } else {
        let pods = ApiServer::new(connect(None).await?).node(&node).pods();
        run(Source::Api, pods, listener, events, io::stdout()).await
    }
}

/// Runs until the events end, or until Ctrl-C.
async fn run(
    source: Source,
    mut updates: impl Stream<Item = SourceUpdate<Pod>> + Unpin,
    listener: TcpListener,
    events: impl BufRead + Send + 'static,
    out: impl Write + Send + 'static,
) -> Result<(), Box<dyn std::error::Error>> {
    // Events may arrive after their pod was removed. The index bounds the number of removed pods, not their bytes: with 34 kB
    // a pod, 500 take 17 MB.
    let options = Options::new().keep_removed(Duration::from_secs(60), 500);
    let (writer, reader) = pod_index::with_options(options);
    let metrics = Arc::new(Metrics::default());
    let (news, received) = mpsc::channel(64);
    let ((ready, is_ready), (done, is_done)) = (oneshot::channel(), oneshot::channel());
    let counted = Arc::clone(&metrics);
    let writing = thread::spawn(move || write(writer, source, received, ready, &counted));
    // There can be many of these. It ends with its events or with the process.
    let pods = reader.clone();
    let counted = Arc::clone(&metrics);
    thread::spawn(move || {
        let _ = is_ready.blocking_recv();
        let _ = done.send(look_up(&pods, events, out, &counted));
    });

    let follow = async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let update = tokio::select! {
                Some(update) = updates.next() => Some(update),
                _ = second.tick() => None, // lets the writer free memory
            };
            if news.send(update).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let ended = tokio::select! {
        ended = follow => ended,
        ended = serve(listener, &reader, &metrics) => ended,
        ended = is_done => ended?,
        ended = tokio::signal::ctrl_c() => ended,
    };
    // The channel was dropped with `follow`, so the writer ends.
    writing.join().map_err(|_| "the writer has panicked")?;
    Ok(ended?)
}

/// The writer's thread: everything that waits becomes one publication.
fn write(
    mut writer: Writer<Pod>,
    source: Source,
    mut news: mpsc::Receiver<Option<SourceUpdate<Pod>>>,
    ready: oneshot::Sender<()>,
    metrics: &Metrics,
) {
    let mut merge = Merge::new([source]);
    let mut ready = Some(ready);
    let mut batch = Vec::new();
    while news.blocking_recv_many(&mut batch, 64) > 0 {
        let mut operations = Vec::new();
        for update in batch.drain(..).flatten() {
            let merged = merge.update(source, update);
            merged.problems.iter().for_each(|problem| eprintln!("{problem}"));
            operations.extend(merged.into_operations());
        }
        for refused in writer.apply(operations).refused {
            eprintln!("{}", refused.error);
        }
        writer.reclaim();
        metrics.retired.store(writer.retired_snapshots(), Relaxed);
        if merge.all_sources_seen()
            && let Some(ready) = ready.take()
        {
            let _ = ready.send(());
        }
    }
}

fn look_up(
    reader: &Reader<Pod>,
    events: impl BufRead,
    mut out: impl Write,
    metrics: &Metrics,
) -> io::Result<()> {
    let mut pods = reader.cached();
    for event in events.lines() {
        let event = event?;
        let found = Identity::parse(&event).ok().and_then(|identity| identity.resolve(pods.load()));
        let count = if found.is_some() { &metrics.found } else { &metrics.unknown };
        count.fetch_add(1, Relaxed);
        match found {
            Some(found) => writeln!(out, "{event}: {}/{}", found.pod.namespace(), found.pod.name())?,
            None => writeln!(out, "{event}: unknown")?,
        }
    }
    Ok(())
}

/// For Prometheus. In an agent of your own, use an HTTP server.
async fn serve(listener: TcpListener, reader: &Reader<Pod>, metrics: &Metrics) -> io::Result<()> {
    loop {
        let (mut connection, _) = listener.accept().await?;
        let found = metrics.found.load(Relaxed);
        let unknown = metrics.unknown.load(Relaxed);
        let pods = reader.load().pods().len();
        let retired = metrics.retired.load(Relaxed);
        let text = format!("pods {pods}\nretired_snapshots {retired}\nfound {found}\nunknown {unknown}\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let exchange = async {
            if connection.read(&mut [0; 4096]).await? > 0 {
                connection.write_all(answer.as_bytes()).await?;
            }
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), exchange).await;
    }
}

#[cfg(test)]
#[tokio::test]
async fn it_looks_up_events_and_counts_them() {
    use std::io::{Read, pipe};
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#;
    let directory = std::env::temp_dir().join(format!("pod-index-agent-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("web.json"), pod).unwrap();
    let ((events, mut event), (out, to)) = (pipe().unwrap(), pipe().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let user = tokio::task::spawn_blocking(move || {
        writeln!(event, "default/web-node-1\n10.0.0.7").unwrap();
        let lines: Vec<_> = BufReader::new(out).lines().take(2).map(Result::unwrap).collect();
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut metrics = String::new();
        connection.read_to_string(&mut metrics).unwrap();
        (lines, metrics) // drops `event`, so the events end
    });
    let files = file::follow(&directory, NodeName::new("node-1"));
    run(Source::File, files, listener, BufReader::new(events), to).await.unwrap();
    let (lines, metrics) = user.await.unwrap();
    assert_eq!(lines, ["default/web-node-1: default/web-node-1", "10.0.0.7: unknown"]);
    assert!(metrics.ends_with("pods 1\nretired_snapshots 0\nfound 1\nunknown 1\n"), "{metrics}");
    std::fs::remove_dir_all(&directory).unwrap();
}
