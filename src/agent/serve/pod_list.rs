//! A `PodList` written out pod by pod: however many there are, a few dozen kilobytes are in memory as JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;

/// How much is written before it is sent.
const CHUNK: usize = 32 * 1024;

/// The body of `/pods`.
pub(super) struct PodList {
    pods: std::vec::IntoIter<Arc<Pod>>,
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
    /// These pods. Their snapshot is not held on to.
    pub(super) fn new<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Self {
        let pods: Vec<_> = pods.into_iter().cloned().collect();
        Self { pods: pods.into_iter(), state: State::Head }
    }

    /// The next part, or none after the last.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        if self.state == State::Head {
            chunk.extend_from_slice(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
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
            match serde_json::to_writer(&mut chunk, &*pod) {
                Ok(()) => self.state = State::Rest,
                // Nothing in a pod can fail to become JSON; if something did, the others are still worth having.
                Err(_) => chunk.truncate(before),
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

impl Body for PodList {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.chunk().map(|chunk| Ok(Frame::data(chunk.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Done
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::List;

    use super::*;
    use crate::PodMeta;

    fn written(pods: usize) -> List<Pod> {
        let (mut writer, reader) = crate::new();
        let _ = writer.set_pods((0..pods).map(|i| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(format!("uid-{i}"));
            pod.metadata.name = Some(format!("pod-{i}"));
            pod.metadata.namespace = Some("default".to_owned());
            pod
        }));
        let mut list = PodList::new(reader.load().pods());
        let bytes: Vec<u8> = std::iter::from_fn(|| list.chunk()).flatten().collect();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_pod_list_of_any_length_is_read_back_whole() {
        for pods in [0, 1, 2, 5_000] {
            let list = written(pods);
            let mut uids: Vec<_> = list.items.iter().map(PodMeta::uid).collect();
            uids.sort_unstable();
            uids.dedup();
            assert_eq!(uids.len(), pods);
        }
    }
}
