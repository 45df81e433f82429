//! One call: its request, its answer as messages, and its status.

use std::sync::Arc;
use std::time::Duration;

use h2::RecvStream;
use h2::server::SendResponse;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use pod_index::PodMeta;
use pod_index_kubelet::protobuf::message;
use tokio::time::timeout;

use super::KubeletApi;
use super::answer::{Answer, End};
use super::caller::Caller;
use super::events;
use super::metrics::Method;
use super::wire::{Form, PREFIX, Reason, Status, prefix};

/// Maximum size of a request: a UID.
const LARGEST_REQUEST: usize = 4096;
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers a call.
pub(super) async fn answer(
    api: Arc<KubeletApi>,
    caller: Arc<Caller>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    // Fails if the client has ended the call.
    let Ok(stream) = respond.send_response(response, false) else { return };
    let mut answer = Answer::new(stream);
    let method = Method::at(request.uri().path());
    let open = api.metrics.begin(method);
    let end = answered(&api, &caller, method, request.into_body(), &mut answer).await;
    open.end(&end);
    answer.end(end);
}

async fn answered(
    api: &KubeletApi,
    caller: &Arc<Caller>,
    method: Method,
    body: RecvStream,
    answer: &mut Answer,
) -> Result<(), End> {
    let request = timeout(REQUEST_TIMEOUT, read(body)).await.unwrap_or_else(|_elapsed| Err(unreadable()))?;
    if !api.readiness.has_pods() {
        return Err(Status::new(Reason::NotReady, "not all sources were read yet").into());
    }
    match method {
        Method::ListPods => list(api, caller, answer).await,
        Method::GetPod => get(api, caller, &request, answer).await,
        Method::WatchPods => {
            let permit = api.watch_limits.acquire(caller.limits()).map_err(|limit| {
                Status::new(Reason::Watches, format!("there are too many watches: {limit}"))
            })?;
            let _watching = caller.begin_watch(permit);
            let _counted = api.metrics.begin_watch();
            events::watch(api, caller.limits(), answer).await
        }
        Method::Other => {
            let message = "the Pods API has ListPods, GetPod and WatchPods";
            Err(Status::new(Reason::Unimplemented, message).into())
        }
    }
}

/// The message of a request.
async fn read(mut body: RecvStream) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(|_| unreadable())?;
        if bytes.len() + part.len() > LARGEST_REQUEST {
            return Err(unreadable());
        }
        bytes.extend_from_slice(&part);
        // Fails if the client has ended the call.
        let _ = body.flow_control().release_capacity(part.len());
    }
    let (prefix, message) = bytes.split_first_chunk::<PREFIX>().ok_or_else(unreadable)?;
    let [is_compressed, length @ ..] = *prefix;
    if is_compressed != 0 {
        return Err(Status::new(Reason::Unimplemented, "compressed requests are not read"));
    }
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(unreadable());
    }
    Ok(message.to_vec())
}

fn unreadable() -> Status {
    Status::new(Reason::Request, "the request is not one message of at most 4 kB")
}

/// Encodes each pod twice: for the length of the message, and when the client reads it. So an unread list is a list of pods, and no
/// bytes.
async fn list(api: &KubeletApi, caller: &Caller, answer: &mut Answer) -> Result<(), End> {
    let limits = caller.limits();
    answer.take_place(limits).await?;
    let pods = {
        let snapshot = api.reader.snapshot();
        let mut pods: Vec<_> = snapshot.pods().cloned().collect();
        // As the kubelet sorts them.
        pods.sort_unstable_by(|one, other| one.uid().cmp(other.uid()));
        pods
    };
    let mut length = 0;
    for pod in &pods {
        length += api.encodings.in_turn(limits, pod, Form::Listed).await?.len();
    }
    answer.send(prefix(length).to_vec().into()).await?;
    for pod in &pods {
        let encoded = api.encodings.in_turn(limits, pod, Form::Listed).await?;
        answer.send(encoded).await?;
    }
    Ok(())
}

async fn get(api: &KubeletApi, caller: &Caller, request: &[u8], answer: &mut Answer) -> Result<(), End> {
    let limits = caller.limits();
    let uid = message::text(request, 1).unwrap_or_default();
    answer.take_place(limits).await?;
    let pod = api.reader.load().pod_by_uid(&*uid).cloned();
    let pod = pod.ok_or_else(|| Status::new(Reason::NotFound, "pod not found"))?;
    let encoded = api.encodings.in_turn(limits, &pod, Form::Single).await?;
    answer.send(encoded).await
}
