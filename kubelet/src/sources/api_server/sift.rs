//! Replaces pods that cannot be decoded by stubs, so that the other pods of a list or watch are still served.
//!
//! kube decodes a list as a whole, and a watch loses its position after an event that it cannot decode. So the
//! pods are replaced below kube, in the response bodies. This decodes each object twice, so it is off until kube
//! fails to decode something. It is off again after a list in which every pod can be decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Bytes, Frame};
use kube::ResourceExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower::BoxError;

use crate::sources::{Problem, undecodable};

/// The annotations of a stub. No object of the API server has them: a key must not begin with `?`.
const FIELD: &str = "?field";
const MESSAGE: &str = "?message";

/// Why an object cannot be decoded: the field and a message.
pub(super) type Check = fn(&str) -> Result<(), (String, String)>;

/// The problem of a pod, if it is a stub.
pub(super) fn problem<K: ResourceExt>(pod: &K) -> Option<Problem> {
    let message = pod.annotations().get(MESSAGE)?;
    let field = pod.annotations().get(FIELD).map_or(".", String::as_str);
    Some(undecodable::problem(&pod.namespace().unwrap_or_default(), &pod.name_any(), field, message))
}

/// The same list with stubs. `None` if there is nothing to replace.
pub(super) fn list(body: &[u8], check: Check) -> Option<Bytes> {
    let mut list: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
    let items: Vec<&RawValue> = serde_json::from_str(list.get("items")?.get()).ok()?;
    let stubs: Vec<_> = items.iter().map(|item| stub(item, check)).collect();
    if stubs.iter().all(Option::is_none) {
        return None;
    }
    let items: Vec<_> =
        items.iter().zip(&stubs).map(|(item, stub)| stub.as_deref().unwrap_or(item)).collect();
    let items = serde_json::value::to_raw_value(&items).ok()?;
    list.insert("items".into(), &items);
    serde_json::to_vec(&list).ok().map(Bytes::from)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The same line of a watch, with a stub if necessary.
fn event(line: &[u8], check: Check) -> Cow<'_, [u8]> {
    let replaced = || {
        let event: Event<'_> = serde_json::from_slice(line).ok()?;
        if !matches!(&*event.kind, "ADDED" | "MODIFIED" | "DELETED") {
            return None;
        }
        let mut text =
            serde_json::to_vec(&json!({ "type": event.kind, "object": stub(event.object, check)? })).ok()?;
        text.push(b'\n');
        Some(text)
    };
    replaced().map_or(Cow::Borrowed(line), Cow::Owned)
}

/// The stub of an object that cannot be decoded but has a name.
fn stub(object: &RawValue, check: Check) -> Option<Box<RawValue>> {
    let (field, message) = check(object.get()).err()?;
    let object: Value = serde_json::from_str(object.get()).ok()?;
    let metadata = |key| object["metadata"][key].as_str();
    let stub = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": metadata("namespace")?, "name": metadata("name")?,
            "uid": metadata("uid")?, "resourceVersion": metadata("resourceVersion")?,
            "annotations": { FIELD: field, MESSAGE: message },
        },
    });
    serde_json::value::to_raw_value(&stub).ok()
}

/// The body of a watch, with stubs.
pub(super) struct Sifted<B = Body> {
    body: B,
    check: Check,
    /// The start of a line whose end has not arrived.
    rest: Vec<u8>,
    is_over: bool,
}

impl<B> Sifted<B> {
    pub(super) fn new(body: B, check: Check) -> Self {
        Self { body, check, rest: Vec::new(), is_over: false }
    }
}

impl<B> HttpBody for Sifted<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while !self.is_over {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                self.is_over = true;
                let rest = std::mem::take(&mut self.rest);
                return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
            };
            let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
            self.rest.extend_from_slice(&data);
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let rest = self.rest.split_off(end + 1);
            let lines = std::mem::replace(&mut self.rest, rest);
            let lines = lines.split_inclusive(|byte| *byte == b'\n').map(|line| event(line, self.check));
            return Poll::Ready(Some(Ok(Frame::data(lines.collect::<Vec<_>>().concat().into()))));
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::super::wire::WirePod;
    use super::*;
    use crate::sources::undecodable::check;

    const CANARY: &str = "hunter2";
    const CHECK: Check = check::<WirePod<false>>;

    fn good(name: &str) -> Value {
        json!({
            "metadata": { "namespace": "ns", "name": name, "uid": name, "resourceVersion": "7" },
            "spec": { "containers": [{ "name": "c", "env": [{ "name": "E", "value": CANARY }] }] },
        })
    }

    fn bad(name: &str) -> Value {
        let mut pod = good(name);
        pod["spec"]["containers"][0]["env"][0]["value"] = json!([CANARY]);
        pod
    }

    fn decoded(json: Value) -> WirePod<false> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_stub_names_the_pod_and_the_field_and_quotes_nothing() {
        let body = json!({ "kind": "PodList", "metadata": { "resourceVersion": "9" }, "items": [good("a"), bad("b")] });
        let sifted = list(body.to_string().as_bytes(), CHECK).unwrap();
        let sifted: Value = serde_json::from_slice(&sifted).unwrap();
        assert_eq!(
            (&sifted["kind"], &sifted["metadata"], &sifted["items"][0]),
            (&body["kind"], &body["metadata"], &good("a"))
        );
        let stub = decoded(sifted["items"][1].clone());
        let problem = problem(&stub).unwrap();
        assert_eq!(
            problem.to_string(),
            "ns/b: spec.containers[0].env[0].value: cannot be decoded: expected a string"
        );
        assert_eq!((stub.uid().unwrap(), stub.resource_version().unwrap()), ("b".to_owned(), "7".to_owned()));
        assert!(super::problem(&decoded(good("a"))).is_none());
        assert!(
            list(json!({ "items": [good("a")] }).to_string().as_bytes(), CHECK).is_none(),
            "nothing to replace"
        );
    }

    #[test]
    fn the_field_is_found_in_metadata_too() {
        let mut pod = good("a");
        pod["metadata"]["labels"] = json!({ "app": { "x": CANARY } });
        assert_eq!(CHECK(&pod.to_string()).unwrap_err().0, "metadata.labels.app");
        // Not an object at all.
        assert_eq!(CHECK("[]").unwrap_err().0, ".");
    }

    /// The server chooses the order of the two keys, and where a line is split into chunks.
    #[tokio::test]
    async fn a_line_is_replaced_in_any_order_of_keys_and_split_anywhere() {
        let lines = [
            json!({ "type": "ADDED", "object": good("a") }).to_string(),
            format!(r#"{{"type":"MODIFIED","object":{}}}"#, bad("b")),
            format!(r#"{{"object":{},"type":"DELETED"}}"#, bad("c")),
            json!({ "type": "ERROR", "object": { "code": 410 } }).to_string(),
            "no JSON".to_owned(),
        ];
        let whole = lines.join("\n") + "\nthe beginn";
        let mut seen = Vec::new();
        for size in [1, 7, 100, whole.len()] {
            let pieces: Vec<_> = whole
                .as_bytes()
                .chunks(size)
                .map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece))))
                .collect();
            let body = StreamBody::new(stream::iter(pieces));
            let sifted = Sifted::new(body, CHECK).collect().await.unwrap().to_bytes();
            seen.push(String::from_utf8(sifted.to_vec()).unwrap());
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
        let out: Vec<_> = seen[0].split('\n').collect();
        assert_eq!((out[0], out[3], out[4], out[5]), (&*lines[0], &*lines[3], &*lines[4], "the beginn"));
        for (line, kind, name) in [(out[1], "MODIFIED", "b"), (out[2], "DELETED", "c")] {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&event["type"], &event["object"]["metadata"]["uid"]), (&json!(kind), &json!(name)));
            assert!(problem(&decoded(event["object"].clone())).is_some());
        }
    }
}
