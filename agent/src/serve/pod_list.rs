//! A list of pods, serialized pod by pod. Memory use is a few dozen kilobytes of JSON for any number of pods.
//!
//! The form is a `PodList` or a `Table`, which has the columns people read in a hundredth of the bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::ACCEPT;
use k8s_openapi::api::core::v1::Pod;

use crate::api_types::{TABLE_COLUMNS, TableRow};
use crate::headers::{Element, elements};

/// Bytes to write before sending.
const CHUNK: usize = 32 * 1024;

/// The form of each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The whole pod.
    Whole,
    /// A row of a `Table`, as the API server sends it with `includeObject=None`.
    Table,
}

impl Form {
    /// The form that the client asks for: a table for the media type of `kubectl get`, otherwise whole pods.
    pub(super) fn asked(headers: &HeaderMap) -> Self {
        let is_table = |range: Element<'_>| {
            let has = |name, value| {
                range.parameter(name).is_some_and(|given: &str| given.eq_ignore_ascii_case(value))
            };
            let is_json = range.value.eq_ignore_ascii_case("application/json");
            is_json && has("as", "Table") && has("v", "v1") && has("g", "meta.k8s.io")
        };
        if elements(headers, ACCEPT).any(is_table) { Self::Table } else { Self::Whole }
    }

    fn head(self, generation: u64) -> String {
        match self {
            Self::Whole => r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_owned(),
            Self::Table => {
                let column = |name| serde_json::json!({ "name": name, "type": "string", "format": "", "description": "", "priority": 0 });
                let columns: Vec<_> = TABLE_COLUMNS.into_iter().map(column).collect();
                let columns = serde_json::Value::from(columns);
                format!(
                    r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{generation}"}},"columnDefinitions":{columns},"rows":["#
                )
            }
        }
    }

    fn write(self, chunk: &mut Vec<u8>, pod: &Pod) -> serde_json::Result<()> {
        match self {
            Self::Whole => serde_json::to_writer(chunk, pod),
            Self::Table => serde_json::to_writer(chunk, &TableRow::of(pod)),
        }
    }
}

/// A list of pods, in parts.
pub(super) struct PodList {
    pods: std::vec::IntoIter<Arc<Pod>>,
    form: Form,
    generation: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Head,
    First,
    Rest,
    Done,
}

impl PodList {
    /// Lists these pods of this generation. Does not hold their snapshot.
    pub(super) fn new<'a>(form: Form, generation: u64, pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Self {
        let pods: Vec<_> = pods.into_iter().cloned().collect();
        Self { pods: pods.into_iter(), form, generation, state: State::Head }
    }

    /// The number of pods left.
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }
}

impl Iterator for PodList {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        if self.state == State::Head {
            chunk.extend_from_slice(self.form.head(self.generation).as_bytes());
            self.state = State::First;
        }
        while self.state != State::Done && chunk.len() < CHUNK {
            let Some(pod) = self.pods.next() else {
                chunk.extend_from_slice(b"]}");
                self.state = State::Done;
                break;
            };
            let before = chunk.len();
            if self.state == State::Rest {
                chunk.push(b',');
            }
            match self.form.write(&mut chunk, &pod) {
                Ok(()) => self.state = State::Rest,
                // Serializing a pod does not fail. If it did, the other pods would still be sent.
                Err(_) => chunk.truncate(before),
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// A body made of parts, which never fail. Yields after each part: a client that reads as fast as parts are made would
/// otherwise block its thread, and the other clients on it, until the last part.
pub(crate) struct Parts<I> {
    parts: I,
    /// Whether it has yielded since the last part.
    rested: bool,
}

impl<I> Parts<I> {
    pub(crate) fn new(parts: I) -> Self {
        Self { parts, rested: true }
    }
}

impl<I: Iterator<Item = Vec<u8>> + Unpin> Body for Parts<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.rested = !self.rested;
        if self.rested {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.parts.next().map(|part| Ok(Frame::data(part.into()))))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::List;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;
    use pod_index::PodMeta;

    fn written<T: DeserializeOwned>(form: Form, pods: usize) -> T {
        let (mut writer, reader) = pod_index::new();
        let _ = writer.set_pods((0..pods).map(|i| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(format!("uid-{i}"));
            pod.metadata.name = Some(format!("pod-{i}"));
            pod.metadata.namespace = Some("default".to_owned());
            pod
        }));
        let list = PodList::new(form, 7, reader.load().pods());
        assert_eq!(list.len(), pods);
        let bytes: Vec<u8> = list.flatten().collect();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_pod_list_of_any_length_is_parsed_completely() {
        for pods in [0, 1, 2, 5_000] {
            let list: List<Pod> = written(Form::Whole, pods);
            let mut uids: Vec<_> = list.items.iter().map(PodMeta::uid).collect();
            uids.sort_unstable();
            uids.dedup();
            assert_eq!(uids.len(), pods);

            let table: Value = written(Form::Table, pods);
            assert_eq!(
                (&table["kind"], &table["metadata"]["resourceVersion"]),
                (&"Table".into(), &"7".into())
            );
            let mut uids: Vec<_> =
                table["rows"].as_array().unwrap().iter().map(|row| row["cells"][2].as_str()).collect();
            uids.sort_unstable();
            uids.dedup();
            assert_eq!(uids.len(), pods);
        }
    }

    #[test]
    fn a_table_is_sent_only_if_requested_by_its_full_type() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (header, form) in [
            (table, Form::Table),
            ("application/json; g=meta.k8s.io; v=v1; as=Table, application/json", Form::Table),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Form::Whole),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Form::Whole),
            ("application/json", Form::Whole),
            ("*/*", Form::Whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            assert_eq!(Form::asked(&headers), form, "{header}");
        }
        assert_eq!(Form::asked(&HeaderMap::new()), Form::Whole);
    }
}
