//! What the writer does with reports, step by step, and as a thread.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::records;
use super::super::removed::REMOVED_ANNOTATION;
use super::*;
use crate::config::tests::settings_of;
use crate::vitals::{Part, Vitals};
use pod_index::{Coverage, Found, Options, PodMeta, Reader};
use pod_index_kubelet::checkpoint::RESTORED_ANNOTATION;
use pod_index_kubelet::sources::http::HttpConfig;
use pod_index_kubelet::sources::{NodeName, Nudge, SourceStatus, kubelet};
use serde_json::json;

/// Far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the writer of an agent on the node `n` works with, and what others see of it.
struct Built {
    setup: Setup,
    seen: Seen,
}

/// What others see of a writer.
struct Seen {
    reader: Reader<Record>,
    /// Each source was read completely just now.
    statuses: Vec<watch::Sender<SourceStatus>>,
    readiness: Arc<Readiness>,
    /// What makes the first source read at once.
    nudge: Nudge,
    metrics: Metrics,
    vitals: Vitals,
}

impl Built {
    fn of(sources: &[Source], options: Options) -> Self {
        let (writer, reader) = pod_index::with_options(options);
        let followed = kubelet::follow(HttpConfig::of_kubelet("https://localhost:1").unwrap()).unwrap();
        let statuses: Vec<_> = sources
            .iter()
            .map(|source| {
                let mut status = followed.status().borrow().clone();
                status.source = *source;
                status.last_complete_read = Some(Instant::now());
                watch::Sender::new(status)
            })
            .collect();
        let nudge = Nudge::default();
        let nudges = iter::once(Arc::clone(&nudge)).chain(iter::repeat_with(Nudge::default));
        let lines = statuses.iter().map(watch::Sender::subscribe).zip(nudges);
        let readiness = Arc::new(Readiness::new(lines, false));
        let metrics = Metrics::new(&reader);
        let vitals = Vitals::new(Instant::now());
        let (_feed, joining) = records::build(&settings_of(&[])).unwrap();
        let setup = Setup {
            writer,
            joining,
            merge: Merge::new(sources.iter().copied()).derive_static_pods(NodeName::new("n")),
            readiness: Arc::clone(&readiness),
            heartbeat: vitals.heartbeat(Part::Index),
            kept_removed: KeptRemoved::new(Duration::ZERO, 0),
        };
        Self { setup, seen: Seen { reader, statuses, readiness, nudge, metrics, vitals } }
    }
}

/// An index that keeps removed pods and times.
fn keeping() -> Options {
    Options::new().keep_removed(Duration::from_secs(60), 100).keep_times(true)
}

/// The work of the writer thread, step by step, of an agent with this source, after a run that knew these pods.
fn work_after(restored: Vec<Arc<Pod>>, source: Source) -> (Work, watch::Receiver<bool>) {
    let Built { setup, mut seen } = Built::of(&[source], keeping());
    let restored = Unclaimed::new(Restored { pods: restored, ..Restored::default() }, [source]);
    let (node_is_needed, needs_own_node) = watch::channel(false);
    let counts = Writing::register(seen.metrics.ours());
    (Work::new(setup, Some(restored), counts, node_is_needed), needs_own_node)
}

impl Work {
    /// The source reports all its pods. `sound`: there are no others.
    fn report(&mut self, source: Source, pods: &[Arc<Pod>], sound: bool) {
        let update = Some(SourceUpdate::Set(pods.to_vec()));
        self.publish(Merged::default(), iter::once(Report { source, update, sound, read: None }));
    }

    /// The UIDs of the pods in the index, in order.
    fn uids(&self) -> Vec<String> {
        let mut uids: Vec<_> =
            self.writer.current().pods().map(|pod| PodMeta::uid(&**pod).to_owned()).collect();
        uids.sort();
        uids
    }

    /// Looks at the sources two and four seconds from now. Returns the moment of the next look.
    fn look_twice(&mut self) -> Moment {
        let instant = Instant::now();
        let wall = SystemTime::now();
        let [one, two, next] =
            [2, 4, 6].map(Duration::from_secs).map(|passed| Moment::new(instant + passed, wall + passed));
        self.listen(one, &never());
        self.listen(two, &never());
        next
    }

    /// What is known of the past.
    fn known(&self) -> Option<Coverage> {
        self.writer.current().at(SystemTime::now()).known()
    }
}

/// The writer thread.
struct Running {
    seen: Seen,
    reports: Sender<Report>,
    commands: Sender<Command>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(sources: &[Source]) -> Self {
        Self::with(sources, Options::new())
    }

    fn with(sources: &[Source], options: Options) -> Self {
        let Built { setup, mut seen } = Built::of(sources, options);
        let thread = WriterThread::build(setup, None, sources, &mut seen.metrics);
        let WriterThread { work, reports, commands, .. } = thread;
        let thread = thread::spawn(work);
        Self { seen, reports, commands, thread }
    }

    /// Reports the pods of a source, and waits for the first of them.
    fn publish(&self, source: Source, pods: &[Arc<Pod>]) {
        let update = Some(SourceUpdate::Set(pods.to_vec()));
        self.reports.send(Report { source, update, sound: true, read: None }).unwrap();
        let first = PodUid::from(pods[0].metadata.uid.as_deref().unwrap());
        self.seen.reader.wait_for(&first, Instant::now() + PATIENCE).unwrap();
    }

    /// Waits until the metrics have this line.
    #[track_caller]
    fn until_measured(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.metrics.text().lines().any(|measured| measured == line) {
            assert!(Instant::now() < deadline, "no {line} in {}", self.seen.metrics.text());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(self) {
        self.commands.send(Command::Stop).unwrap();
        self.thread.join().unwrap();
    }
}

fn pod(uid: &str, name: &str) -> Arc<Pod> {
    let metadata = json!({ "uid": uid, "name": name, "namespace": "shop" });
    let spec = json!({ "nodeName": "n", "containers": [] });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
}

/// A pod of the last run, from a checkpoint.
fn restored(uid: &str, name: &str) -> Arc<Pod> {
    marked(uid, name, &[RESTORED_ANNOTATION])
}

fn marked(uid: &str, name: &str, annotations: &[&str]) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(pod(uid, name));
    let annotations = annotations.iter().map(|name| ((*name).to_owned(), "true".to_owned()));
    pod.metadata.annotations = Some(annotations.collect());
    Arc::new(pod)
}

/// After a restart, a client must not find fewer pods than before it, nor a pod that is gone.
#[test]
fn restored_pods_are_there_at_once_and_stay_until_their_source_has_named_all_pods() {
    let (mut work, _) = work_after(vec![restored("1", "web"), restored("2", "db")], Source::Kubelet);
    assert_eq!(work.uids(), ["1", "2"]);
    assert!(!work.readiness.is_ready());
    work.report(Source::Kubelet, &[pod("3", "cache")], false);
    assert!(work.readiness.is_ready());
    assert_eq!(work.uids(), ["1", "2", "3"], "the source may lack pods");
    work.report(Source::Kubelet, &[pod("1", "web"), pod("3", "cache")], true);
    assert_eq!(work.uids(), ["1", "3"]);
}

/// Whoever can create a pod must not make it look like one of the last run, or like a removed one.
#[test]
fn marks_that_only_the_agent_sets_are_taken_from_the_pods_of_sources() {
    let (mut work, _) = work_after(Vec::new(), Source::Kubelet);
    let forged = marked("1", "web", &[RESTORED_ANNOTATION, REMOVED_ANNOTATION, "own"]);
    work.report(Source::Kubelet, &[forged], true);
    let snapshot = work.writer.current();
    let annotations = snapshot.pod_by_uid("1").unwrap().pod().metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["own"]);
}

/// Otherwise a look-up at a time says that nobody had an IP whose pod the agent has not heard of.
#[test]
fn the_past_is_known_once_all_pods_were_told_and_no_report_waits() {
    let (mut work, _) = work_after(vec![restored("1", "web")], Source::Kubelet);
    let _ = work.look_twice();
    assert_eq!(work.known(), None, "the source has not reported");

    let (mut work, _) = work_after(vec![restored("1", "web")], Source::Kubelet);
    work.report(Source::Kubelet, &[pod("2", "db")], false);
    let _ = work.look_twice();
    assert_eq!(work.known(), None, "nobody knows whether the restored pod exists");

    let (mut work, _) = work_after(vec![restored("1", "web")], Source::Kubelet);
    work.report(Source::Kubelet, &[pod("1", "web")], true);
    let next = work.look_twice();
    let first = work.known().unwrap();
    let (reports, received) = bounded(1);
    reports.send(Report { source: Source::Kubelet, update: None, sound: true, read: None }).unwrap();
    work.listen(next, &received);
    assert_eq!(work.known(), Some(first), "a report waits");
    received.recv().unwrap();
    work.listen(next, &received);
    let second = work.known().unwrap();
    assert!(second.since == first.since && second.until > first.until, "{first:?} {second:?}");
}

/// Whoever may create and delete pods must not fill the agent's memory with removed ones.
#[test]
fn a_removed_pod_that_is_too_large_is_kept_in_outline() {
    let Built { setup, mut seen } = Built::of(&[Source::Kubelet], keeping());
    let setup = Setup { kept_removed: KeptRemoved::new(Duration::from_secs(60), 100), ..setup };
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    let large = |uid: &str, bytes: usize| {
        let mut pod = Arc::unwrap_or_clone(pod(uid, uid));
        pod.metadata.annotations = Some([("filler".to_owned(), "x".repeat(bytes))].into());
        Arc::new(pod)
    };
    work.report(Source::Kubelet, &[large("1", 10), large("2", 20 << 20)], true);
    work.report(Source::Kubelet, &[], true);
    let snapshot = seen.reader.load();
    let has_filler = |found: Found<'_, Record>| {
        (PodMeta::uid(&**found.pod).to_owned(), found.pod.annotation("filler").is_some())
    };
    let removed: BTreeMap<_, _> = snapshot.removed().iter().map(has_filler).collect();
    assert_eq!(removed, BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), false)]));
}

/// A report that a pod was removed may follow so soon that the index never had the pod in a snapshot.
#[test]
fn a_pod_that_is_added_and_removed_in_one_publication_counts_as_well() {
    let Built { setup, mut seen } = Built::of(&[Source::Kubelet], keeping());
    let setup = Setup { kept_removed: KeptRemoved::new(Duration::from_secs(60), 100), ..setup };
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    work.report(Source::Kubelet, &[], true);
    let report = |update| Report { source: Source::Kubelet, update: Some(update), sound: true, read: None };
    let mut large = Arc::unwrap_or_clone(pod("1", "web"));
    large.metadata.annotations = Some([("filler".to_owned(), "x".repeat(20 << 20))].into());
    let added = report(SourceUpdate::Upsert(vec![large.into()]));
    let removed = report(SourceUpdate::Remove(vec!["1".into()]));
    work.publish(Merged::default(), [added, removed].into_iter());
    let snapshot = seen.reader.load();
    let removed: Vec<_> = snapshot.removed().iter().collect();
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].pod.annotation("filler"), None, "it is kept whole");
}

/// The kubelet reads its files soon after a mirror pod came. If none of them describes a pod of that name, a kubelet did not
/// create the mirror pod.
#[test]
fn a_read_without_a_change_ends_the_static_pod_of_a_forged_mirror_pod() {
    let Built { setup, mut seen } = Built::of(&[Source::Api, Source::File], Options::new());
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    work.report(Source::File, &[], true);
    work.report(Source::Api, &[mirror(true)], true);
    assert_eq!(work.uids(), ["s"]);
    let read = Report { source: Source::File, update: None, sound: true, read: Some(Instant::now()) };
    work.publish(Merged::default(), iter::once(read));
    assert_eq!(work.uids(), [""; 0]);
}

#[test]
fn a_change_of_what_pods_are_joined_with_is_published() {
    let (mut work, _) = work_after(Vec::new(), Source::Kubelet);
    work.report(Source::Kubelet, &[pod("1", "web")], true);
    let before = work.writer.current().generation();
    let namespace = json!({ "name": "shop", "uid": "n", "labels": { "team": "a" } });
    let namespace: ObjectMeta = serde_json::from_value(namespace).unwrap();
    work.join_again(iter::once(Change::Namespaces(SourceUpdate::Set(vec![namespace.into()]))));
    assert!(work.writer.current().generation() > before);
}

/// A mirror pod as a kubelet creates it, or without the owner that each of these has.
fn mirror(is_owned: bool) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(pod("m", "web"));
    let annotations = [("hash", "s"), ("mirror", "s"), ("seen", "seen"), ("source", "file")];
    let annotations =
        annotations.map(|(name, value)| (format!("kubernetes.io/config.{name}"), value.to_owned()));
    pod.metadata.annotations = Some(annotations.into());
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node", "controller": true });
    pod.metadata.owner_references = is_owned.then(|| vec![serde_json::from_value(owner).expect("an owner")]);
    Arc::new(pod)
}

#[test]
fn a_mirror_pod_that_is_not_a_kubelets_is_a_problem_as_long_as_it_is_there() {
    let (mut work, _) = work_after(Vec::new(), Source::Api);
    let problems = |work: &Work| work.readiness.sources()[0].problems.len();
    work.report(Source::Api, &[mirror(false)], true);
    assert_eq!((work.uids(), problems(&work)), (Vec::new(), 1));
    work.report(Source::Api, &[], true);
    assert_eq!(problems(&work), 0);
}

/// Each request for it is one to the API server.
#[test]
fn the_own_node_is_asked_for_once_when_a_mirror_pod_comes() {
    let (mut work, mut needs_own_node) = work_after(Vec::new(), Source::Api);
    work.report(Source::Api, &[], true);
    assert!(!needs_own_node.has_changed().unwrap());
    work.report(Source::Api, &[mirror(true)], true);
    assert_eq!(work.uids(), ["s"], "a static pod is derived from it");
    assert!(needs_own_node.has_changed().unwrap() && *needs_own_node.borrow_and_update());
    work.report(Source::Api, &[mirror(true), pod("1", "db")], true);
    assert!(!needs_own_node.has_changed().unwrap());
    let created = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let node = OwnNode { uid: "other".to_owned(), created, asked: Instant::now() };
    let checked = work.merge.own_node(Some(node));
    work.publish(checked, iter::empty());
    assert!(needs_own_node.has_changed().unwrap() && !*needs_own_node.borrow());
    assert_eq!(work.uids(), ["1"], "another node object owns it");
}

#[test]
fn waiting_reports_and_their_maximum_are_measured() {
    let Built { setup, mut seen } = Built::of(&[Source::Kubelet], Options::new());
    let thread = WriterThread::build(setup, None, &[Source::Kubelet], &mut seen.metrics);
    for _ in 0..2 {
        let report = Report { source: Source::Kubelet, update: None, sound: true, read: None };
        thread.reports.send(report).unwrap();
    }
    let text = seen.metrics.text();
    for line in ["pod_index_channel_depth 2", &format!("pod_index_channel_capacity {WAITING}")] {
        assert!(text.lines().any(|measured| measured == line), "no {line} in {text}");
    }
}

#[test]
fn the_thread_looks_at_the_sources_without_being_told() {
    let running = Running::with(&[Source::Kubelet], keeping());
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    let deadline = Instant::now() + PATIENCE;
    while running.seen.reader.load().at(SystemTime::now()).known().is_none() {
        assert!(Instant::now() < deadline, "nothing is known of the past");
        running.seen.statuses[0].send_modify(|status| status.last_complete_read = Some(Instant::now()));
        thread::sleep(Duration::from_millis(10));
    }
    running.stop();
}

#[test]
fn the_writer_gives_heartbeats() {
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    let tomorrow = Instant::now() + Duration::from_secs(24 * 60 * 60);
    assert_eq!(running.seen.vitals.stopped(tomorrow).len(), 1, "it would be missed");
    running.stop();
}

#[test]
fn a_pod_that_the_index_would_refuse_is_counted_and_a_problem_of_its_source() {
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("1", "web"), pod("", "no-uid"), pod("2", ""), pod("3", "a_b")]);
    assert_eq!(running.seen.reader.load().pods().len(), 1);
    assert_eq!(running.seen.readiness.sources()[0].problems.len(), 3);
    running.until_measured("pod_index_refused_pods_total 3");
    running.stop();
}

#[test]
fn operations_and_batches_are_counted() {
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("1", "web"), pod("2", "db")]);
    running.until_measured("pod_index_operations_total 2");
    running.until_measured("pod_index_write_duration_seconds_count 1");
    running.publish(Source::Kubelet, &[pod("3", "cache")]);
    // One is added, two are removed.
    running.until_measured("pod_index_operations_total 5");
    running.until_measured("pod_index_write_duration_seconds_count 2");
    running.stop();
}

/// Otherwise the pods of the last change before a quiet night stay in memory until the morning.
#[test]
fn a_snapshot_that_a_reader_held_is_freed_without_another_write() {
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    let held = running.seen.reader.snapshot();
    let removed = Arc::downgrade(held.pod_by_uid("1").unwrap());
    running.publish(Source::Kubelet, &[pod("2", "db")]);
    running.until_measured("pod_index_retired_snapshots 1");
    assert!(removed.upgrade().is_some(), "a reader holds it");
    drop(held);
    running.until_measured("pod_index_retired_snapshots 0");
    assert!(removed.upgrade().is_none());
    running.stop();
}

/// A source may be read several times a second, and find nothing new.
#[test]
fn reports_that_change_nothing_do_not_keep_a_snapshot_from_being_freed() {
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    let held = running.seen.reader.snapshot();
    running.publish(Source::Kubelet, &[pod("2", "db")]);
    running.until_measured("pod_index_retired_snapshots 1");
    drop(held);
    let deadline = Instant::now() + PATIENCE;
    while running.seen.metrics.text().lines().any(|line| line == "pod_index_retired_snapshots 1") {
        assert!(Instant::now() < deadline, "it is not freed");
        let unchanged = Report { source: Source::Kubelet, update: None, sound: true, read: None };
        running.reports.send(unchanged).unwrap();
        thread::sleep(RECLAIM_PAUSE / 10);
    }
    running.stop();
}

/// A client that asks for all pods waits for the list of each source.
#[test]
fn a_source_counts_as_read_once_it_has_listed_its_pods() {
    let Built { setup, mut seen } = Built::of(&[Source::Api], keeping());
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    let update = Some(SourceUpdate::Upsert(vec![pod("1", "web")]));
    let report = Report { source: Source::Api, update, sound: false, read: None };
    work.publish(Merged::default(), iter::once(report));
    assert!(!seen.readiness.is_ready(), "one pod is no list");
    work.report(Source::Api, &[pod("1", "web")], true);
    assert!(seen.readiness.is_ready());
}

#[test]
fn a_step_of_the_clock_is_counted_once() {
    let Built { setup, mut seen } = Built::of(&[Source::Kubelet], keeping());
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    let instant = Instant::now();
    let wall = SystemTime::now();
    let second = Duration::from_secs(1);
    work.writer.advance(Moment::new(instant, wall));
    work.writer.advance(Moment::new(instant + second, wall + 3600 * second));
    // Answers about the time before then say why nothing is known of it.
    assert!(!seen.readiness.began_with_the_clock(Time::from(wall)));
    work.count();
    assert!(seen.readiness.began_with_the_clock(Time::from(wall)));
    work.count();
    let text = seen.metrics.text();
    assert!(text.lines().any(|line| line == "pod_index_clock_steps_total 1"), "{text}");
}

/// As on a machine whose clock is set right soon after it has started. What is known begins with the first news of the sources
/// after the step, which is later than the step.
#[test]
fn what_is_known_after_a_step_forward_began_with_the_clock() {
    let Built { setup, mut seen } = Built::of(&[Source::Kubelet], keeping());
    let counts = Writing::register(seen.metrics.ours());
    let mut work = Work::new(setup, None, counts, watch::channel(false).0);
    let seconds = Duration::from_secs;
    let instant = Instant::now();
    let wall = SystemTime::now();
    // So nothing is known until a few looks after the step.
    let read = instant.checked_sub(seconds(5));
    seen.statuses[0].send_modify(|status| status.last_complete_read = read);
    work.report(Source::Kubelet, &[pod("1", "web")], true);
    // Looks until something is known, and says since when.
    let mut known_after = |passed: u64, step: u64| {
        let mut moments = (0..60).map(|look| {
            let passed = seconds(passed + 2 * look);
            Moment::new(instant + passed, wall + passed + seconds(step))
        });
        let known = moments.find_map(|moment| {
            work.listen(moment, &never());
            work.count();
            work.known()
        });
        known.expect("the source tells everything").since
    };
    let before = known_after(2, 0);
    assert!(!seen.readiness.began_with_the_clock(before));
    let after = known_after(200, 3_600);
    assert!(after > Time::from(wall + seconds(200 + 3_600)), "later than the step");
    assert!(seen.readiness.began_with_the_clock(after), "{after:?}");
}

/// Versions that come and go hide it in the number of retired snapshots.
#[test]
fn a_snapshot_that_is_held_while_pods_change_gets_older_in_the_metrics() {
    let age = |running: &Running| {
        let text = running.seen.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix("pod_index_retired_snapshot_age_seconds "));
        line.expect("the metric").parse::<f64>().unwrap()
    };
    let running = Running::start(&[Source::Kubelet]);
    running.publish(Source::Kubelet, &[pod("0", "web")]);
    running.until_measured("pod_index_retired_snapshots 0");
    assert_eq!(age(&running).to_bits(), 0f64.to_bits());
    let held = running.seen.reader.snapshot();
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    running.until_measured("pod_index_retired_snapshots 1");
    // It was the oldest before.
    let since = Instant::now();
    thread::sleep(Duration::from_millis(50));
    // What is published next is seen after the metrics of the publication before.
    for number in 2..5 {
        running.publish(Source::Kubelet, &[pod(&number.to_string(), "web")]);
    }
    let least = since.elapsed().as_secs_f64() - 0.002;
    assert!(age(&running) >= least, "{} seconds, after {least}", age(&running));
    drop(held);
    running.until_measured("pod_index_retired_snapshots 0");
    running.until_measured("pod_index_retired_snapshot_age_seconds 0.0");
    running.stop();
}

/// The kubelet's list may lack for its interval what the API server has announced.
#[test]
fn a_change_at_the_api_server_makes_the_kubelet_be_asked_at_once() {
    let running = Running::start(&[Source::Kubelet, Source::Api]);
    running.publish(Source::Kubelet, &[pod("1", "web")]);
    running.publish(Source::Api, &[pod("2", "db")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let asked = async { tokio::time::timeout(PATIENCE, running.seen.nudge.notified()).await };
    runtime.block_on(asked).expect("the kubelet is asked");
    running.stop();
}
