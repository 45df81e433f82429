//! `pod-index list`: the pods as kubectl prints them; with `-w`, also each change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use form_urlencoded::Serializer;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use pod_index::{CONFIG_SEEN_ANNOTATION, PodMeta, PodUid};
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::sources::api_server::ApiServer;
use serde_json::Value;

use super::client::{Server, escaped};
use super::follow::follow;
use super::format::Printer;
use super::patience::{PATIENCE, Patience};
use super::{ListArgs, Output, format, runtime};
use crate::api::view::View;
use crate::config::failure::Failure;
use crate::pod_api::printed::{COLUMNS, cells};

/// Prints the pods, and with `-w` each of their changes.
pub(crate) fn run(server: &Server, asked: &ListArgs, output: Output) -> Result<(), Failure> {
    let mut printer = Printer::new(output);
    let has_namespaces = asked.namespace.is_none();
    let mut print = |pods: &[Arc<Pod>]| print(&mut printer, has_namespaces, pods.iter().map(|pod| &**pod));
    if asked.watch {
        return watched(server, asked, print);
    }
    let path = path(asked, &[]);
    let patience = Patience::of(PATIENCE);
    if matches!(output, Output::Json | Output::Yaml) {
        let list: Value = runtime()?.block_on(server.get_json(&path, &patience))?;
        return format::answer(output, &list, |_| String::new());
    }
    let list: List<Pod> = runtime()?.block_on(server.get_json(&path, &patience))?;
    if list.items.is_empty() {
        format::note("No pods found");
    }
    print(&list.items.into_iter().map(Arc::new).collect::<Vec<_>>()).map(drop)
}

/// Prints one pod in this form.
pub(crate) fn show(pod: &Pod, output: Output) -> Result<(), Failure> {
    print(&mut Printer::new(output), true, std::iter::once(pod)).map(drop)
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

/// A watch that ends at once.
const TRIAL: [(&str, &str); 3] =
    [("watch", "true"), ("sendInitialEvents", "false"), ("timeoutSeconds", "-1")];

/// Follows these pods. Fails if the agent does not answer at all, or refuses a watch.
fn watched(
    server: &Server,
    asked: &ListArgs,
    mut print: impl FnMut(&[Arc<Pod>]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    runtime()?.block_on(async {
        // Following would try what the agent refuses for ever.
        server.get(&path(asked, &TRIAL), &Patience::of(PATIENCE)).await?;
        let ListArgs { namespace, selector: labels, field_selector: fields, .. } = asked.clone();
        let fields = fields.into_iter().collect();
        let pods = ApiServer { namespace, labels, fields, ..ApiServer::new(server.api(View::ApiServer)) };
        let mut known = HashMap::new();
        let update = |update| print(&changed(&mut known, update));
        follow(pods, update, |problem| match problem {
            Some(problem) => {
                format::note(&format!("pod-index: {problem}; the watch continues when it answers"));
            }
            None => format::note("pod-index: the agent answers again"),
        })
        .await
    })
}

/// The pods to print: those that were added or have changed, and, as last seen, those that are gone without a new pod
/// of their name. After a lost version, the list has all pods again.
fn changed(known: &mut HashMap<PodUid, Arc<Pod>>, update: SourceUpdate<Pod>) -> Vec<Arc<Pod>> {
    let (pods, mut changed) = match update {
        SourceUpdate::Upsert(pods) | SourceUpdate::Incomplete(pods) => (pods, Vec::new()),
        SourceUpdate::Set(pods) => {
            let listed: HashSet<PodUid> = pods.iter().map(|pod| pod.uid().into()).collect();
            let gone = known.extract_if(|uid, _| !listed.contains(uid)).map(|(_, pod)| pod).collect();
            (pods, gone)
        }
        SourceUpdate::Remove(uids) => {
            let mut gone: Vec<_> = uids.iter().filter_map(|uid| known.remove(uid)).collect();
            // In a new list, the update with the new pods precedes this one.
            let names: HashSet<_> = known.values().map(|pod| (pod.namespace(), pod.name())).collect();
            gone.retain(|pod| !names.contains(&(pod.namespace(), pod.name())));
            (Vec::new(), gone)
        }
    };
    for pod in pods {
        let before = known.insert(pod.uid().into(), Arc::clone(&pod));
        if before.is_none_or(|before| content(&before) != content(&pod)) {
            changed.push(pod);
        }
    }
    changed
}

/// Prints these pods, with their namespaces if they may have several. `false`: nobody reads them any more.
fn print<'a>(
    printer: &mut Printer,
    has_namespaces: bool,
    pods: impl Iterator<Item = &'a Pod>,
) -> Result<bool, Failure> {
    let is_wide = printer.output == Output::Wide;
    let now = Timestamp::now();
    let line = |namespace: &str, cells: &[String]| -> Vec<String> {
        let namespace = has_namespaces.then(|| namespace.to_owned());
        let shown = cells.iter().zip(COLUMNS).filter(|(_, (_, priority))| is_wide || *priority == 0);
        namespace.into_iter().chain(shown.map(|(cell, _)| cell.clone())).collect()
    };
    let text = if printer.output == Output::Name {
        printer.text(pods, None, |pod| Some(vec![format!("pod/{}", pod.name())]))
    } else {
        let headings = line("NAMESPACE", &COLUMNS.map(|(name, _)| name.to_uppercase()));
        printer.text(pods, Some(headings), |pod| Some(line(pod.namespace(), &cells(pod, now))))
    };
    format::write(text?.as_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pods<const N: usize>(pods: [(&str, &str, &str); N]) -> Vec<Arc<Pod>> {
        let pod = |(name, uid, node): (&str, &str, &str)| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.uid = Some(uid.to_owned());
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            Arc::new(pod)
        };
        pods.map(pod).into()
    }

    #[test]
    fn only_differences_are_told() {
        let mut known = HashMap::new();
        let mut told = |update| {
            let pods = changed(&mut known, update);
            let node = |pod: &Pod| pod.spec.clone().unwrap_or_default().node_name.unwrap_or_default();
            let mut told: Vec<_> =
                pods.iter().map(|pod| format!("{} on {}", pod.name(), node(pod))).collect();
            told.sort();
            told
        };
        let first = [("stays", "1", "a"), ("changes", "2", "a"), ("goes", "3", "a"), ("replaced", "4", "a")];
        assert_eq!(
            told(SourceUpdate::Set(pods(first))),
            ["changes on a", "goes on a", "replaced on a", "stays on a"]
        );
        let again = [("stays", "1", "a"), ("changes", "2", "b"), ("replaced", "9", "b"), ("comes", "5", "a")];
        assert_eq!(
            told(SourceUpdate::Set(pods(again))),
            ["changes on b", "comes on a", "goes on a", "replaced on a", "replaced on b"]
        );
        let some = pods([("comes", "5", "b"), ("changes", "2", "b")]);
        assert_eq!(told(SourceUpdate::Upsert(some)), ["comes on b"]);
        let gone = ["1", "unknown"].map(PodUid::from).into();
        assert_eq!(told(SourceUpdate::Remove(gone)), ["stays on a"]);
        assert_eq!(told(SourceUpdate::Upsert(pods([("comes", "6", "c")]))), ["comes on c"]);
        let gone = || SourceUpdate::Remove(vec!["5".into()]);
        assert_eq!(told(gone()), [""; 0], "the new pod of the name is printed last");
    }
}
