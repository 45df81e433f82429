//! One call: its request, its answer as messages, and its status.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use pod_index::PodMeta;
use pod_index_kubelet::protobuf::message;

use super::KubeletApi;
use super::events;
use super::wire::{Code, PREFIX, Status, encoded, frame};

/// Maximum size of a request: a UID.
const LARGEST_REQUEST: usize = 4096;
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

type Frames = BoxStream<'static, Frame<Bytes>>;
type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Answers a call.
pub(super) async fn answer(
    api: KubeletApi,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let frames = answered(api, request)
        .await
        .unwrap_or_else(|status| stream::once(async move { status.frame() }).boxed());
    let mut response = Response::new(StreamBody::new(frames.map(Ok).boxed()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

async fn answered(api: KubeletApi, request: Request<Incoming>) -> Result<Frames, Status> {
    let (head, body) = request.into_parts();
    let request = read(body).await?;
    if !api.readiness.has_pods() {
        return Err(Status::new(Code::FailedPrecondition, "not all sources were read yet"));
    }
    match head.uri.path() {
        "/v1alpha1.Pods/ListPods" => list(api).await,
        "/v1alpha1.Pods/GetPod" => get(&api, &request),
        "/v1alpha1.Pods/WatchPods" => {
            let Ok(permit) = Arc::clone(&api.watches).try_acquire_owned() else {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    "there are too many watches (--max-watches)",
                ));
            };
            Ok(events::watch(api.reader, permit))
        }
        _ => Err(Status::new(Code::Unimplemented, "the Pods API has ListPods, GetPod and WatchPods")),
    }
}

/// The message of a request.
async fn read(body: Incoming) -> Result<Vec<u8>, Status> {
    let wrong = Status::new(Code::InvalidArgument, "the request is not one message of at most 4 kB");
    let body = tokio::time::timeout(REQUEST_TIMEOUT, Limited::new(body, LARGEST_REQUEST).collect());
    let body = body.await.map_err(|_elapsed| wrong)?.map_err(|_| wrong)?.to_bytes();
    let (prefix, message) = body.split_first_chunk::<PREFIX>().ok_or(wrong)?;
    let [is_compressed, length @ ..] = *prefix;
    if is_compressed != 0 {
        return Err(Status::new(Code::Unimplemented, "compressed requests are not read"));
    }
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(wrong);
    }
    Ok(message.to_vec())
}

async fn list(api: KubeletApi) -> Result<Frames, Status> {
    let unavailable = Status::new(Code::Unavailable, "the agent is shutting down");
    let permit = Arc::clone(&api.lists).acquire_owned().await.map_err(|_| unavailable)?;
    let encoded = tokio::task::spawn_blocking(move || {
        let snapshot = api.reader.snapshot();
        let mut pods: Vec<_> = snapshot.pods().collect();
        // As the kubelet sorts them.
        pods.sort_unstable_by(|one, other| one.uid().cmp(other.uid()));
        let mut list = Vec::new();
        for pod in pods {
            message::put(&mut list, 1, &encoded(pod));
        }
        frame(&list)
    });
    let message = encoded.await.map_err(|_| unavailable)?;
    let end = stream::once(async move {
        drop(permit);
        Status::OK.frame()
    });
    Ok(stream::once(async { message }).chain(end).boxed())
}

fn get(api: &KubeletApi, request: &[u8]) -> Result<Frames, Status> {
    let uid = message::text(request, 1).unwrap_or_default();
    let snapshot = api.reader.load();
    let Some(pod) = snapshot.pod_by_uid(&*uid) else {
        return Err(Status::new(Code::NotFound, "pod not found"));
    };
    let mut answer = Vec::new();
    message::put(&mut answer, 1, &encoded(pod));
    Ok(stream::iter([frame(&answer), Status::OK.frame()]).boxed())
}
