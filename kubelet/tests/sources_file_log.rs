//! What the file source logs.
//!
//! A process of its own: tracing decides once per call site whether it is enabled, and another test might
//! reach the call site before there is a subscriber.
#![cfg(target_os = "linux")]

mod sources_support;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pod_index_kubelet::sources::{NodeName, Nudge, file};
use sources_support::{Directory, manifest, next, until};

/// The log lines, as `LEVEL message`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("pod_index")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if matches!(field.name(), "message" | "line" | "field") {
                    self.0 = format!("{} {}={value:?}", self.0, field.name());
                }
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().expect("a log").push(fields.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn each_problem_is_logged_once_with_its_line_and_field() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let directory = Directory::new();
    directory.write("bad.yaml", manifest("Bad"));
    let mut source = file::follow_with(
        directory.path(),
        NodeName::new("n1"),
        Duration::from_millis(10),
        |_| {},
        Nudge::default(),
    );
    let status = source.status();
    assert_eq!(next(&mut source).await.len(), 0);
    until(&mut source, status.clone(), |status| status.checks > 5).await;
    fs::remove_file(directory.at("bad.yaml")).expect("removed");
    until(&mut source, status, |status| status.problems.is_empty()).await;
    let lines = log.0.lock().expect("a log").clone();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].starts_with("WARN message=\"Bad-n1\": must consist of"), "{}", lines[0]);
    assert!(lines[0].ends_with("field=\"metadata.name\""), "{}", lines[0]);
    assert_eq!(lines[1], "INFO message=problem solved");
}
