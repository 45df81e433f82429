//! The selected objects, and responses that show them, in parts. Each part is bounded work.

use std::iter;
use std::sync::Arc;

use super::history::State;
use super::object::Object;
use super::resource::Resource;
use super::selection::Selection;
use super::shape::Form;
use crate::api::client::ClientLimits;

/// A response is sent in parts of about this many bytes.
const CHUNK: usize = 32 * 1024;
/// Objects are matched with at most this many terms of the selector in one turn of the client.
const WORK: usize = 16 * 1024;

/// The selected objects, by their keys. `None`: the agent ends.
pub(super) async fn selected(
    client: &ClientLimits,
    state: &State,
    selection: &Selection,
) -> Option<Vec<Arc<Object>>> {
    let prefix = selection.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let mut start = Arc::<str>::from(prefix.as_str());
    let mut found = Vec::new();
    let most = (WORK / selection.terms()).max(1);
    loop {
        let some = || {
            let mut objects = state.range(start.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            let next = objects.by_ref().take(most).map(|(_, object)| object);
            found.extend(next.filter(|object| selection.matches(object)).cloned());
            objects.next().map(|(key, _)| Arc::clone(key))
        };
        match client.in_turn(some).await? {
            Some(key) => start = key,
            None => return Some(found),
        }
    }
}

/// The start of a response, each object as `write` appends it, and the end.
pub(super) fn parts<O: AsRef<Object>>(
    start: Vec<u8>,
    objects: impl IntoIterator<Item = O>,
    mut write: impl FnMut(&Object, &mut Vec<u8>),
    end: Vec<u8>,
) -> impl Iterator<Item = Vec<u8>> {
    let mut start = start;
    let mut objects = objects.into_iter();
    let mut end = Some(end);
    iter::from_fn(move || {
        let mut part = std::mem::take(&mut start);
        while part.len() < CHUNK {
            let Some(object) = objects.next() else {
                part.extend(end.take()?);
                break;
            };
            write(object.as_ref(), &mut part);
        }
        Some(part)
    })
}

/// A list as JSON: the version and the objects.
pub(super) fn list<O: AsRef<Object>>(
    of: &Resource,
    version: u64,
    objects: impl IntoIterator<Item = O>,
    form: Form,
) -> impl Iterator<Item = Vec<u8>> {
    let mut has_items = false;
    let write = move |object: &Object, part: &mut Vec<u8>| {
        if std::mem::replace(&mut has_items, true) {
            part.push(b',');
        }
        object.write(form, None, object.version, part);
    };
    parts(form.list_head(of, version), objects, write, b"]}".to_vec())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::Value;

    use super::super::pod::PODS;
    use super::*;
    use crate::api::client::Clients;
    use crate::api::selectors::Selector;

    fn state(pods: usize) -> State {
        let pod = |n: usize| {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some("shop".to_owned());
            pod.metadata.name = Some(format!("web-{n:05}"));
            (Arc::from(format!("shop/web-{n:05}")), Object::new(&PODS, Arc::new(pod), 1000 + n as u64, true))
        };
        (0..pods).map(pod).collect::<State>()
    }

    #[tokio::test]
    async fn a_list_of_any_length_is_whole_and_each_part_is_bounded_work() {
        let many: Vec<_> = (0..255).map(|n| format!("!z{n}")).collect();
        let client = Clients::new().named("client");
        for (pods, selector, parts, turns) in
            [(0, "", 1, 1), (1, "", 1, 1), (5_000, "", 2, 1), (5_000, &*many.join(","), 2, 70)]
        {
            let selection = Selection { labels: Selector::labels(selector).unwrap(), ..Selection::default() };
            let state = state(pods);
            let (mut select, mut taken) = (Box::pin(selected(&client, &state, &selection)), 0);
            let objects = poll_fn(|cx| {
                taken += 1;
                select.as_mut().poll(cx)
            });
            let written: Vec<_> = list(&PODS, 7, objects.await.unwrap(), Form::Object).collect();
            assert!(taken >= turns, "{taken} turns");
            assert!(written.len() >= parts, "{} parts", written.len());
            assert!(written.iter().all(|part| part.len() < 2 * CHUNK));
            let list: Value = serde_json::from_slice(&written.concat()).unwrap();
            let names: Vec<_> =
                list["items"].as_array().unwrap().iter().map(|pod| &pod["metadata"]["name"]).collect();
            let expected: Vec<_> = (0..pods).map(|n| Value::from(format!("web-{n:05}"))).collect();
            assert!(names.into_iter().eq(&expected), "{pods} {parts}");
            assert_eq!(list["metadata"]["resourceVersion"], "7");
        }
    }
}
