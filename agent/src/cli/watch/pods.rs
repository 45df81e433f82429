//! Turns events into lines of output, by comparing them with the known pods. No I/O.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::Fields;

/// Kubernetes: `InitialEventsAnnotationKey`.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event as the pod API sends it.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Value,
}

/// One line of output.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    namespace: String,
    name: String,
    uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// Whether the pod existed before the watch began.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    initial: bool,
    /// The names of the changed fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Added,
    Changed,
    Removed,
}

#[derive(Debug)]
struct Known {
    uid: String,
    phase: Option<String>,
    fields: Fields,
    /// The number of the last list that contained it.
    list: u64,
}

/// All pods that were printed as added and not yet as removed.
#[derive(Debug, Default)]
pub(super) struct Pods {
    known: HashMap<(String, String), Known>,
    /// The version up to which every event is known. `None`: the pods have to be listed.
    version: Option<String>,
    /// Number of lists started.
    list: u64,
    /// Whether a list was completed.
    is_listed: bool,
}

impl Pods {
    /// The version after which a watch continues. `None`: it begins with a list.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Makes the next watch begin with a list. Only its differences from the known pods are printed.
    pub(super) fn list_again(&mut self) {
        self.version = None;
        self.list += 1;
    }

    /// Applies an event other than `ERROR`.
    pub(super) fn apply(&mut self, event: &Event) -> Vec<Line> {
        let metadata = &event.object["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let version = text("resourceVersion");
        let mut lines = Vec::new();
        match &*event.kind {
            "BOOKMARK" => {
                if metadata["annotations"][INITIAL_EVENTS_END] == "true" {
                    lines = self.listed();
                    self.version = Some(version);
                    return lines;
                }
            }
            kind => {
                let key = (text("namespace"), text("name"));
                if kind == "DELETED" {
                    lines.extend(self.known.remove(&key).map(|known| removed(key, known)));
                } else {
                    self.put(key, text("uid"), &event.object, &mut lines);
                }
            }
        }
        // An incomplete list has no version to continue from: removed pods would not be noticed.
        if self.version.is_some() {
            self.version = Some(version);
        }
        lines
    }

    fn put(&mut self, key: (String, String), uid: String, pod: &Value, lines: &mut Vec<Line>) {
        let phase = pod["status"]["phase"].as_str().map(str::to_owned);
        let new = Known { uid, phase, fields: Fields::of(pod), list: self.list };
        let initial = !self.is_listed;
        let line = |kind, (namespace, name): (String, String), known: &Known, changed| {
            let (uid, phase) = (known.uid.clone(), known.phase.clone());
            let initial = initial && kind == Kind::Added;
            Line { kind, namespace, name, uid, phase, initial, changed }
        };
        match self.known.entry(key.clone()) {
            Entry::Vacant(entry) => {
                lines.push(line(Kind::Added, key, &new, Vec::new()));
                entry.insert(new);
            }
            Entry::Occupied(mut entry) if entry.get().uid != new.uid => {
                let old = entry.insert(new);
                lines.push(removed(key.clone(), old));
                lines.push(line(Kind::Added, key, entry.get(), Vec::new()));
            }
            Entry::Occupied(mut entry) => {
                let changed = entry.get().fields.changed(&new.fields);
                if !changed.is_empty() {
                    lines.push(line(Kind::Changed, key, &new, changed));
                }
                entry.insert(new);
            }
        }
    }

    /// The list is complete: pods that it does not contain were removed.
    fn listed(&mut self) -> Vec<Line> {
        self.is_listed = true;
        let list = self.list;
        let mut gone: Vec<_> = self.known.extract_if(|_, known| known.list != list).collect();
        gone.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        gone.into_iter().map(|(key, known)| removed(key, known)).collect()
    }
}

fn removed((namespace, name): (String, String), known: Known) -> Line {
    let Known { uid, phase, .. } = known;
    Line { kind: Kind::Removed, namespace, name, uid, phase, initial: false, changed: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, name: &str, uid: &str, phase: &str, version: &str) -> Event {
        let metadata = json!({ "namespace": "a", "name": name, "uid": uid, "resourceVersion": version });
        Event { kind: kind.to_owned(), object: json!({ "metadata": metadata, "status": { "phase": phase } }) }
    }

    fn end(version: &str) -> Event {
        let metadata = json!({ "resourceVersion": version, "annotations": { INITIAL_EVENTS_END: "true" } });
        Event { kind: "BOOKMARK".to_owned(), object: json!({ "metadata": metadata }) }
    }

    fn apply(pods: &mut Pods, events: &[Event]) -> Vec<String> {
        let lines = events.iter().flat_map(|event| pods.apply(event));
        let words = |line: Line| {
            let Line { kind, name, uid, changed, initial, .. } = line;
            let initial = if initial { " initial" } else { "" };
            format!("{kind:?} {name} {uid}{initial} {}", changed.join(",")).trim_end().to_owned()
        };
        lines.map(words).collect()
    }

    #[test]
    fn after_a_lost_version_only_differences_are_printed() {
        let mut pods = Pods::default();
        let first = [
            event("ADDED", "stays", "1", "Running", "5"),
            event("ADDED", "changes", "2", "Pending", "6"),
            event("ADDED", "goes", "3", "Running", "7"),
            event("ADDED", "replaced", "4", "Running", "8"),
        ];
        assert_eq!(
            apply(&mut pods, &first),
            [
                "Added stays 1 initial",
                "Added changes 2 initial",
                "Added goes 3 initial",
                "Added replaced 4 initial"
            ]
        );
        assert_eq!(pods.version(), None, "an unfinished list cannot be continued");
        assert_eq!(apply(&mut pods, &[end("9")]), [""; 0]);
        assert_eq!(pods.version(), Some("9"));
        assert_eq!(
            apply(&mut pods, &[event("MODIFIED", "changes", "2", "Running", "10")]),
            ["Changed changes 2 status.phase"]
        );
        assert_eq!(pods.version(), Some("10"));

        pods.list_again();
        let again = [
            event("ADDED", "stays", "1", "Running", "105"),
            event("ADDED", "changes", "2", "Failed", "106"),
            event("ADDED", "replaced", "9", "Running", "107"),
            event("ADDED", "comes", "5", "Running", "108"),
        ];
        // The connection breaks in the middle of the list.
        let lines = apply(&mut pods, &again[..2]);
        assert_eq!(lines, ["Changed changes 2 status.phase"]);
        pods.list_again();
        let lines = apply(&mut pods, &again);
        assert_eq!(lines, ["Removed replaced 4", "Added replaced 9", "Added comes 5"]);
        assert_eq!(apply(&mut pods, &[end("109")]), ["Removed goes 3"]);
        assert_eq!(
            apply(&mut pods, &[event("DELETED", "stays", "1", "Running", "110")]),
            ["Removed stays 1"]
        );
        assert_eq!(apply(&mut pods, &[event("DELETED", "stays", "1", "Running", "110")]), [""; 0]);
    }
}
