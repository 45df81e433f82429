//! Clients that watch pods all the time. At the end, each must know exactly the sources' pods.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::doors::{Doors, Shown, Stream};
use super::truth::Pods;
use crate::support::{PATIENCE, Stop};

pub const WATCHERS: u64 = 200;
/// How many of them watch all pods. Each of the others watches one shard.
const OF_ALL: u64 = 20;
pub const SHARDS: u64 = 100;
/// Every fourth watcher leaves after this time and returns.
const STAYS: Duration = Duration::from_secs(20);

/// The version of each pod, by its name. `None` for a mirror pod without its static pod.
type Known = BTreeMap<String, Option<u64>>;

/// What the watchers know. Indexed by watcher.
pub struct Watchers {
    known: Vec<Mutex<Known>>,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: serde_json::Value,
}

/// The shard of a pod of the API server.
pub fn shard(name: &str) -> Option<u64> {
    Some(name.strip_prefix("pod-")?.parse::<u64>().ok()? % SHARDS)
}

impl Watchers {
    pub fn new() -> Self {
        Self { known: (0..WATCHERS).map(|_| Mutex::default()).collect() }
    }

    /// One watcher, until stopped.
    pub fn run(&self, number: u64, doors: &Doors, stop: &Stop) {
        let selector = if number < OF_ALL {
            String::new()
        } else {
            format!("&labelSelector=shard%3D{}", number % SHARDS)
        };
        // The version to continue from.
        let mut version = String::new();
        while !stop.is_set() {
            let mut stream = doors.connect(number);
            // The response to HTTP/1.0 is not chunked: it has one event a line.
            let path =
                format!("/api/v1/pods?watch=1&allowWatchBookmarks=true{selector}&resourceVersion={version}");
            write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
            stream.set_timeout(Duration::from_secs(1));
            self.follow(number, stream, &mut version, stop);
        }
    }

    /// Reads the response, until it ends or the watcher leaves.
    fn follow(&self, number: u64, stream: Box<dyn Stream>, version: &mut String, stop: &Stop) {
        let (start, mut reader, mut line, mut in_body) =
            (Instant::now(), BufReader::new(stream), Vec::new(), false);
        if version.is_empty() {
            // The watch starts with all pods.
            self.known[usize::try_from(number).unwrap()].lock().unwrap().clear();
        }
        while !stop.is_set() && (!number.is_multiple_of(4) || start.elapsed() < STAYS) {
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => {}
                // Nothing came for a second. The start of a line is kept.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("watcher {number}: {error}"),
            }
            if !line.ends_with(b"\n") {
                return;
            }
            if in_body {
                if !self.take(number, &line, version) {
                    return;
                }
            } else if line == b"\r\n" {
                in_body = true;
            } else if line.starts_with(b"HTTP/") {
                let text = String::from_utf8_lossy(&line);
                assert!(text.contains(" 200 "), "watcher {number}: {text}");
            }
            line.clear();
        }
    }

    /// Whether the watch continues after this event.
    fn take(&self, number: u64, line: &[u8], version: &mut String) -> bool {
        let event: Event = serde_json::from_slice(line).unwrap();
        if event.r#type == "ERROR" {
            assert_eq!(event.object["code"], 410, "watcher {number}: {}", event.object);
            version.clear();
            return false;
        }
        let pod: Shown = serde_json::from_value(event.object).unwrap();
        version.clone_from(&pod.metadata.resource_version);
        if event.r#type == "BOOKMARK" {
            return true;
        }
        let mut known = self.known[usize::try_from(number).unwrap()].lock().unwrap();
        let name = &pod.metadata.name;
        let before = known.get(name).copied();
        match event.r#type.as_str() {
            "ADDED" => {
                assert_eq!(before, None, "watcher {number}: {name} is added twice");
                known.insert(name.clone(), pod.version());
            }
            "MODIFIED" => {
                let before = before
                    .unwrap_or_else(|| panic!("watcher {number}: {name} is modified before it is added"));
                let goes_back = before.zip(pod.version()).is_some_and(|(before, now)| now < before);
                assert!(
                    !goes_back,
                    "watcher {number}: {name} goes back from {before:?} to {:?}",
                    pod.version()
                );
                known.insert(name.clone(), pod.version());
            }
            "DELETED" => {
                assert!(before.is_some(), "watcher {number}: {name} is deleted before it is added");
                known.remove(name);
            }
            other => panic!("watcher {number}: an event of type {other}"),
        }
        true
    }

    /// Waits until each watcher knows exactly these pods, as far as it watches them.
    pub fn all_know(&self, pods: &Pods) {
        let deadline = Instant::now() + PATIENCE;
        for (number, known) in (0..).zip(&self.known) {
            let is_watched = |name: &str| number < OF_ALL || shard(name) == Some(number % SHARDS);
            let expected = pods.iter().filter(|(name, _)| is_watched(name));
            let expected: Known = expected.map(|(name, version)| (name.clone(), Some(*version))).collect();
            while *known.lock().unwrap() != expected {
                assert!(Instant::now() < deadline, "watcher {number} knows other pods than the sources have");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
