//! What the file source logs.
//!
//! Other tests of this program reach the same call sites without a subscriber, and tracing remembers of a call site whether
//! anybody listens. So one listens for the whole process.

use crate::log;
use crate::sources_support;

use std::fs;
use std::time::Duration;

use log::Log;
use pod_index_kubelet::sources::{NodeName, Nudge, file};
use sources_support::{Directory, manifest, next, until_status};

#[tokio::test]
async fn each_problem_is_logged_once_with_its_line_and_field() {
    let _everything = Log::of_the_process();
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    let _guard = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let directory = Directory::new();
    directory.write("bad.yaml", manifest("Bad"));
    let mut source = file::follow_with(
        directory.path(),
        NodeName::new("n1"),
        Duration::from_millis(10),
        |_| {},
        Nudge::default(),
    );
    assert_eq!(next(&mut source).await.len(), 0);
    until_status(&mut source, |status| status.checks > 5).await;
    fs::remove_file(directory.at("bad.yaml")).expect("removed");
    until_status(&mut source, |status| status.problems.is_empty()).await;
    let log = log.text();
    let lines: Vec<_> = log.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].starts_with("WARN \"Bad-n1\": must consist of"), "{}", lines[0]);
    assert!(lines[0].contains("field=\"metadata.name\""), "{}", lines[0]);
    assert!(lines[1].starts_with("INFO problem solved"), "{}", lines[1]);
}
