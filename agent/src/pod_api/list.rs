//! A list as JSON, in parts: the version and the selected objects.

use std::sync::Arc;

use super::history::{State, range};
use super::resource::Resource;
use super::selection::Selection;
use super::shape::Form;

/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 32 * 1024;
/// Objects are matched with at most this many terms of the selector for one part.
const WORK: usize = 16 * 1024;

/// The selected objects of a state, in parts. Each part is bounded work; it may be empty.
#[derive(Debug)]
pub(super) struct List {
    of: &'static Resource,
    state: State,
    version: u64,
    selection: Selection,
    form: Form,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    Head,
    /// After this key, and whether an item was written.
    After(Option<Arc<str>>, bool),
    Done,
}

impl List {
    pub(super) fn new(
        of: &'static Resource,
        (state, version): (State, u64),
        selection: Selection,
        form: Form,
    ) -> Self {
        Self { of, state, version, selection, form, progress: Progress::Head }
    }
}

impl Iterator for List {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        let (mut last, mut has_items) = match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Head => {
                chunk = self.form.list_head(self.of, self.version);
                (None, false)
            }
            Progress::After(last, has_items) => (last, has_items),
            Progress::Done => return None,
        };
        let mut work = 0;
        let namespace = self.selection.namespace.as_deref();
        for (key, object) in range(&self.state, namespace, last.clone().as_ref()) {
            work += self.selection.terms();
            if self.selection.matches(object) {
                if has_items {
                    chunk.push(b',');
                }
                has_items = true;
                object.write(self.form, None, object.version, &mut chunk);
            }
            if chunk.len() >= CHUNK || work >= WORK {
                last = Some(Arc::clone(key));
                self.progress = Progress::After(last, has_items);
                return Some(chunk);
            }
        }
        chunk.extend_from_slice(b"]}");
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::Value;

    use super::super::object::Object;
    use super::super::pod::PODS;
    use super::*;
    use crate::api::labels::Labels;

    fn state(pods: usize) -> State {
        let pod = |n: usize| {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some("shop".to_owned());
            pod.metadata.name = Some(format!("web-{n:05}"));
            (Arc::from(format!("shop/web-{n:05}")), Object::new(&PODS, Arc::new(pod), 1000 + n as u64, true))
        };
        (0..pods).map(pod).collect::<State>()
    }

    #[test]
    fn a_list_of_any_length_is_whole_and_each_part_is_bounded_work() {
        let many: Vec<_> = (0..255).map(|n| format!("!z{n}")).collect();
        for (pods, selector, parts) in [(0, "", 1), (1, "", 1), (5_000, "", 2), (5_000, &*many.join(","), 70)]
        {
            let selection = Selection { labels: Labels::parse(selector).unwrap(), ..Selection::default() };
            let list = List::new(&PODS, (state(pods), 7), selection, Form::Object);
            let written: Vec<_> = list.collect();
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
