//! `pod-index list`: the pods as kubectl prints them; with `-w`, also each change.

use std::{mem, slice};

use form_urlencoded::Serializer;
use hyper::StatusCode;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use pod_index::{CONFIG_SEEN_ANNOTATION, PodMeta};
use pod_index_kubelet::sources::api_server::ApiServer;
use serde_json::Value;

use super::client::{Server, escaped};
use super::follow::{Follower, Key, follow};
use super::{ListArgs, Output, format, runtime};
use crate::api::table;
use crate::config::failure::Failure;
use crate::config::selection::Selection;
use crate::pod_api::printed::{COLUMNS, cells};

/// Prints the pods, and with `-w` each of their changes.
pub(crate) fn run(server: &Server, asked: &ListArgs, output: Output) -> Result<(), Failure> {
    let has_namespaces = asked.namespace.is_none();
    let mut printer = Printer {
        output,
        has_namespaces,
        is_headed: false,
        widths: Vec::new(),
        rows: Vec::new(),
        text: String::new(),
    };
    if asked.watch {
        return watched(server, asked, &mut printer);
    }
    let path = path(asked, &[]);
    if matches!(output, Output::Json | Output::Yaml) {
        let list: Value = runtime()?.block_on(server.get_json(&path))?;
        return format::answer(output, &list, |_| String::new());
    }
    let list: List<Pod> = runtime()?.block_on(server.get_json(&path))?;
    if list.items.is_empty() {
        eprintln!("No pods found");
    }
    printer.add(&list.items);
    printer.flush().map(drop)
}

/// The path and the query of these pods.
fn path(asked: &ListArgs, more: &[(&str, &str)]) -> String {
    let within = asked.namespace.as_ref().map(|namespace| format!("/namespaces/{}", escaped(namespace)));
    let selectors = [("labelSelector", &asked.selector), ("fieldSelector", &asked.field_selector)];
    let mut query = Serializer::new(String::new());
    query.extend_pairs(selectors.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
    let query = query.extend_pairs(more).finish();
    format!("/api/v1{}/pods?{query}", within.unwrap_or_default())
}

/// Follows these pods. Fails if the agent does not answer at all, or refuses.
fn watched(server: &Server, asked: &ListArgs, printer: &mut Printer) -> Result<(), Failure> {
    // First a watch that ends at once: following would retry what the agent refuses, such as a bad selector, for ever.
    let trial = [
        ("watch", "true"),
        ("sendInitialEvents", "false"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("timeoutSeconds", "-1"),
    ];
    let trial = path(asked, &trial);
    runtime()?.block_on(async {
        match server.stream(&trial, &[]).await {
            // The agent is starting, or has too many watches.
            Err((Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS), _)) => {}
            answer => drop(answer.map_err(|(_, failure)| failure)?),
        }
        let ListArgs { namespace, selector: labels, field_selector: fields, .. } = asked.clone();
        let selection = Selection { namespace, labels, fields };
        follow(selection.of(ApiServer::new(server.api(false))), printer).await
    })
}

/// Prints pods in one form.
struct Printer {
    output: Output,
    has_namespaces: bool,
    is_headed: bool,
    widths: Vec<usize>,
    /// What was not printed yet: rows of the table, which are aligned together, or other text.
    rows: Vec<Vec<String>>,
    text: String,
}

impl Printer {
    fn add(&mut self, pods: &[Pod]) {
        let is_wide = self.output == Output::Wide;
        let columns = COLUMNS.iter().take_while(|(.., priority)| *priority == 0 || is_wide);
        let names: Vec<_> = columns.map(|(name, ..)| name.to_uppercase()).collect();
        let line = |namespace: &str, cells: &[String]| -> Vec<String> {
            let namespace = self.has_namespaces.then(|| namespace.to_owned());
            namespace.into_iter().chain(cells[..names.len()].iter().cloned()).collect()
        };
        let row = |pod: &Pod| match self.output {
            Output::Name => vec![format!("pod/{}", pod.name())],
            _ => line(pod.namespace(), &cells(pod, Timestamp::now())),
        };
        let has_heading = !pods.is_empty() && self.output != Output::Name && !self.is_headed;
        let heading = has_heading.then(|| line("NAMESPACE", &names));
        self.rows.extend(heading.into_iter().chain(pods.iter().map(row)));
        self.is_headed |= has_heading;
    }
}

/// What only a change of the pod changes.
fn content(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    pod.metadata.resource_version = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(CONFIG_SEEN_ANNOTATION);
    }
    pod
}

impl Follower for Printer {
    type Kept = Pod;

    fn keep(&mut self, pod: &Pod) -> Pod {
        pod.clone()
    }

    fn change(&mut self, _: &Key, before: Option<&Pod>, after: Option<&Pod>) {
        // After a lost version, the list has all pods again.
        let is_same = before.zip(after).is_some_and(|(before, after)| content(before) == content(after));
        let Some(pod) = after.or(before).filter(|_| !is_same) else { return };
        match self.output {
            // Serializing a pod does not fail.
            Output::Json => self.text += &(serde_json::to_string(pod).unwrap_or_default() + "\n"),
            Output::Yaml => self.text.extend(["---\n", &format::yaml(pod).unwrap_or_default()]),
            _ => self.add(slice::from_ref(pod)),
        }
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        self.text += &table::lines(&mut self.widths, &mem::take(&mut self.rows));
        format::write(mem::take(&mut self.text).as_bytes())
    }
}
