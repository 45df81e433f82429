//! `pod-index list`: the pods as kubectl prints them, from the rows that the agent writes; with `-w`, also each change.

use pod_index::CONFIG_SEEN_ANNOTATION;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Server, TABLE, escaped};
use super::follow::{Change, Follower, Key, Target, follow};
use super::watch::Changes;
use super::{ListArgs, Output, Selected, format, runtime};
use crate::api::table;
use crate::config::failure::Failure;

/// Pods, in the API server's `Table` format.
#[derive(Debug, Deserialize)]
struct Table {
    #[serde(rename = "columnDefinitions")]
    columns: Option<Vec<Column>>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Column {
    name: String,
    priority: u8,
}

/// The cells of a pod, and its metadata.
#[derive(Debug, Deserialize)]
struct Row {
    cells: Vec<String>,
    object: Value,
}

/// Prints the pods, and with `-w` each of their changes.
pub(crate) fn run(server: &Server, asked: &ListArgs, output: Output) -> Result<(), Failure> {
    let is_whole = matches!(output, Output::Json | Output::Yaml);
    let target = target(&asked.selected, if is_whole { &[] } else { TABLE });
    let has_namespaces = asked.selected.namespace.is_none();
    let mut printer =
        Printer { output, has_namespaces, columns: Vec::new(), widths: Vec::new(), text: String::new() };
    if asked.watch {
        return runtime()?.block_on(follow(server, &target, &mut printer));
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    let path = format!("{}?{}", target.path, query.extend_pairs(&target.query).finish());
    let body = runtime()?.block_on(server.within(None, server.get(&path, target.headers)))?;
    let unreadable =
        |error| Failure::unable(format_args!("cannot read what {} answers", server.place), error);
    if is_whole {
        let list: Value = serde_json::from_slice(&body).map_err(unreadable)?;
        return format::answer(output, &list, |_| String::new());
    }
    let table: Table = serde_json::from_slice(&body).map_err(unreadable)?;
    if table.rows.is_empty() {
        eprintln!("No pods found");
    }
    printer.add(&table);
    printer.flush().map(drop)
}

/// Prints lines of JSON: each pod, and then each change with the names of the fields.
pub(crate) fn watch(server: &Server, selected: &Selected, output: Output) -> Result<(), Failure> {
    if !matches!(output, Output::Table | Output::Json) {
        return Err(Failure::Usage("watch prints lines of JSON: -o json".to_owned()));
    }
    let target = target(selected, &[]);
    runtime()?.block_on(follow(server, &target, &mut Changes::default()))
}

fn target(selected: &Selected, headers: super::client::Headers) -> Target {
    let Selected { namespace, selector, field_selector } = selected;
    let within = namespace.as_ref().map(|namespace| format!("/namespaces/{}", escaped(namespace)));
    let query = [("labelSelector", selector), ("fieldSelector", field_selector)];
    let query = query.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    Target { path: format!("/api/v1{}/pods", within.unwrap_or_default()), query, headers, is_patient: false }
}

/// Prints pods in one form.
struct Printer {
    output: Output,
    has_namespaces: bool,
    /// The indexes of the columns to print. Empty before the first row.
    columns: Vec<usize>,
    widths: Vec<usize>,
    /// What was not printed yet.
    text: String,
}

impl Printer {
    fn add(&mut self, table: &Table) {
        let mut lines: Vec<Vec<String>> = Vec::new();
        let row = |namespace: &str, cells: &[String], columns: &[usize]| {
            let namespace = self.has_namespaces.then(|| namespace.to_owned());
            namespace.into_iter().chain(columns.iter().filter_map(|at| cells.get(*at).cloned())).collect()
        };
        if let Some(columns) = table.columns.as_ref().filter(|_| self.columns.is_empty()) {
            let is_shown = |column: &Column| column.priority == 0 || self.output == Output::Wide;
            self.columns = (0..columns.len()).filter(|at| is_shown(&columns[*at])).collect();
            let names: Vec<_> = columns.iter().map(|column| column.name.to_uppercase()).collect();
            if !table.rows.is_empty() && self.output != Output::Name {
                lines.push(row("NAMESPACE", &names, &self.columns));
            }
        }
        let metadata =
            |row: &Row, name: &str| row.object["metadata"][name].as_str().unwrap_or_default().to_owned();
        if self.output == Output::Name {
            lines.extend(table.rows.iter().map(|row| vec![format!("pod/{}", metadata(row, "name"))]));
        } else {
            lines.extend(
                table.rows.iter().map(|pod| row(&metadata(pod, "namespace"), &pod.cells, &self.columns)),
            );
        }
        self.text += &table::lines(&mut self.widths, &lines);
    }
}

/// What only a change of the pod changes: its cells without times since, or the pod without its version.
fn content(kept: &Value) -> Value {
    let mut content = kept.pointer("/rows/0/cells").unwrap_or(kept).clone();
    if let Some([_, _, _, restarts, age, ..]) = content.as_array_mut().map(Vec::as_mut_slice) {
        // The rest is the time since the last one.
        *restarts = restarts.as_str().and_then(|text| text.split(' ').next()).into();
        age.take();
    }
    if let Some(metadata) = content.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(CONFIG_SEEN_ANNOTATION);
        }
    }
    content
}

impl Follower for Printer {
    /// The whole object: a table of one row, or the pod.
    type Kept = Value;

    fn keep(&mut self, object: &Value) -> Option<(Key, String, Value)> {
        let pod = object.pointer("/rows/0/object").unwrap_or(object);
        let text = |name: &str| Some(pod["metadata"][name].as_str()?.to_owned());
        Some(((text("namespace")?, text("name")?), text("uid").unwrap_or_default(), object.clone()))
    }

    fn change(&mut self, change: Change<'_, Value>) {
        let Change { before, after, is_event, .. } = change;
        // After a lost version, the list has all pods again.
        if let (false, Some(before), Some(after)) = (is_event, before, after)
            && content(&before.kept) == content(&after.kept)
        {
            return;
        }
        let Some(pod) = after.or(before) else { return };
        match self.output {
            Output::Json => self.text += &(pod.kept.to_string() + "\n"),
            Output::Yaml => self.text.extend(["---\n", &format::yaml(&pod.kept).unwrap_or_default()]),
            _ => {
                if let Ok(table) = Table::deserialize(&pod.kept) {
                    self.add(&table);
                }
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        format::write(std::mem::take(&mut self.text).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::content;

    fn row(version: &str, status: &str, restarts: &Value, age: &str) -> Value {
        let object = json!({ "metadata": { "name": "web", "resourceVersion": version } });
        json!({ "rows": [{ "cells": ["web", "1/1", status, restarts, age, "10.0.0.1"], "object": object }] })
    }

    fn whole(version: &str, phase: &str) -> Value {
        let annotations = json!({ "kubernetes.io/config.seen": version });
        let metadata = json!({ "name": "web", "resourceVersion": version, "annotations": annotations });
        json!({ "metadata": metadata, "status": { "phase": phase } })
    }

    #[test]
    fn after_a_lost_version_only_pods_that_changed_are_printed() {
        let of = |kept: Value| content(&kept);
        let (before, later) = (
            row("1", "Running", &json!("1 (5m ago)"), "6m"),
            row("9", "Running", &json!("1 (6m ago)"), "7m"),
        );
        assert_eq!(of(before.clone()), of(later));
        for changed in
            [row("9", "Error", &json!("1 (5m ago)"), "6m"), row("9", "Running", &json!("2 (1s ago)"), "6m")]
        {
            assert_ne!(of(before.clone()), of(changed));
        }
        assert_eq!(of(whole("1", "Running")), of(whole("2", "Running")));
        assert_ne!(of(whole("1", "Running")), of(whole("2", "Failed")));
    }
}
