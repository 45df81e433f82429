//! One request, from start to answer.

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Response, header};
use serde_json::json;

use super::answer::{Body, Cut, Refusal, json_answer, too_many_requests};
use super::fault::Fault;
use super::identity::PeerCertificate;
use super::protobuf::Protobuf;
use super::request::{Request, Verb};
use super::write::Write;
use super::{Shared, admission, list, protobuf, review, watch, write};

/// The answer; an error closes the connection without one.
pub(super) async fn handle(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let protobuf = shared.lock().protobuf;
    let protobuf = protobuf.filter(|_| protobuf::is_wanted(request.uri().path(), request.headers()));
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    let answer = answer_in_json(Arc::clone(&shared), request).await?;
    let Some(protobuf) = protobuf else { return Ok(answer) };
    shared.lock().answers_in_protobuf += 1;
    match protobuf {
        Protobuf::Good(encode_pod) => protobuf::translated(answer, is_watch, encode_pod).await,
        Protobuf::Broken => Ok(protobuf::broken()),
    }
}

async fn answer_in_json(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let is_let_in = |request: &hyper::Request<Incoming>| {
        let bearer = request.headers().get(header::AUTHORIZATION);
        let state = shared.lock();
        let has_token = state.token.as_ref().is_none_or(|token| {
            bearer.is_some_and(|bearer| bearer.as_bytes() == format!("Bearer {token}").as_bytes())
        });
        let peer = request.extensions().get::<PeerCertificate>();
        let has_certificate = state.certificate.as_ref().is_none_or(|certificate| {
            peer.is_some_and(|PeerCertificate(peer)| peer.as_ref() == Some(certificate))
        });
        has_token && has_certificate
    };
    if request.uri().path() == "/version" {
        if !is_let_in(&request) {
            return Ok(Refusal::new(401, "Unauthorized", "Unauthorized").answer());
        }
        let version =
            json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64" });
        return Ok(json_answer(200, version.to_string().into()));
    }
    let is_let_in = is_let_in(&request);
    let parsed = match Request::parse(&request) {
        Ok(parsed) => parsed,
        Err(refusal) => {
            shared.lock().unparsed.push(request.uri().to_string());
            return Ok(refusal.answer());
        }
    };
    let body = request.into_body().collect().await.map_err(Cut::other)?.to_bytes();
    let verb = parsed.verb;
    let fault = {
        let mut state = shared.lock();
        state.counts[verb as usize] += 1;
        state.user_agents.insert(parsed.user_agent.clone());
        if verb == Verb::List && parsed.metadata_only && parsed.query("resourceVersion").is_some() {
            state.comparisons += 1;
        } else if verb == Verb::List {
            state.listed_versions.push(parsed.version("resourceVersion").ok().flatten());
        }
        // Also for requests that are answered below.
        shared.announce();
        if !is_let_in {
            return Ok(Refusal::new(401, "Unauthorized", "Unauthorized").answer());
        }
        if review::is_of_oneself(&parsed) {
            let answer = review::of_oneself(&parsed, &state.user(), &state.rights, &body);
            return Ok(answer.unwrap_or_else(|refusal| refusal.answer()));
        }
        if let Err(refusal) = state.rights.check(&parsed) {
            return Ok(refusal.answer());
        }
        state.faults.take(verb)
    };
    shared.announce();
    let dropped = || Cut::other("planted: no answer");
    match fault {
        Fault::Delay(delay) => tokio::time::sleep(delay).await,
        Fault::Status(code) => return Ok(shared.lock().planted(code).answer()),
        Fault::TooLargeVersion => return Ok(Refusal::too_large(2, 1).answer()),
        Fault::TooManyRequests(seconds) => return Ok(too_many_requests(seconds)),
        Fault::Drop => return Err(dropped()),
        Fault::Garbage => return Ok(garbage()),
        _ => {}
    }
    until_version(&shared, &parsed).await;
    let drops = matches!(fault, Fault::DropAfter);
    let writes = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    let target = writes.then(|| write::target(&parsed, &body));
    let answer = answer(&shared, parsed, fault, &body);
    if let Some(key) = target {
        let code = answer.as_ref().map_or_else(|refusal| refusal.code, |answer| answer.status().as_u16());
        shared.lock().writes.push(Write { verb, key, code });
        shared.announce();
    }
    if drops { Err(dropped()) } else { Ok(answer.unwrap_or_else(|refusal| refusal.answer())) }
}

/// Gets and lists, and watches that start with current objects, wait a while for a future version.
async fn until_version(shared: &Shared, request: &Request) {
    let waits = match request.verb {
        Verb::Get | Verb::List => true,
        Verb::Watch => request.asks_for("sendInitialEvents"),
        _ => false,
    };
    let Ok(Some(version)) = request.version("resourceVersion") else { return };
    if !waits || shared.lock().store.version >= version {
        return;
    }
    let patience = shared.lock().future_patience;
    let mut changes = shared.changed.subscribe();
    let _ =
        tokio::time::timeout(patience, changes.wait_for(|_| shared.lock().store.version >= version)).await;
}

fn answer(
    shared: &Arc<Shared>,
    mut request: Request,
    fault: Fault,
    body: &Bytes,
) -> Result<Response<Body>, Refusal> {
    let mut state = shared.lock();
    if state.ignores_fields {
        request.selector.ignore_fields();
    }
    if let Some(answer) = state.reviews.answer(&request, body) {
        return answer;
    }
    admission::read(&state, &request)?;
    match request.verb {
        Verb::Get => list::get(&state, &request),
        Verb::List => list::list(&mut state, &request),
        Verb::Watch => watch::watch(shared, &state, request, fault),
        Verb::Create => write::create(&mut state, &request, body),
        Verb::Replace => write::replace(&mut state, &request, body),
        Verb::Delete => write::delete(&mut state, &request, body),
    }
}

fn garbage() -> Response<Body> {
    let body = Full::new(Bytes::from_static(b"<html>not the page you are looking for</html>\n"));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, "text/html").body(body).unwrap()
}
