//! The refusals of the API of pods, in the API server's words.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusDetails;

use super::resource::Resource;
use crate::api::refusal::{Reason, Refusal};

/// When a client may try again that has too many watches.
const AFTER_A_WATCH: Duration = Duration::from_secs(5);

/// An invalid parameter.
pub(super) fn bad_request(message: impl Into<String>) -> Refusal {
    Refusal::new(Reason::BadRequest, message)
}

pub(super) fn no_such_object(of: &Resource, name: &str) -> Refusal {
    let details = StatusDetails {
        group: Some(of.group.to_owned()).filter(|group| !group.is_empty()),
        kind: Some(of.name.to_owned()),
        name: Some(name.to_owned()),
        ..StatusDetails::default()
    };
    let message = format!("{} {name:?} not found", of.qualified());
    Refusal::new(Reason::NotFound, message).with(details)
}

/// `what` is served, or what it would take.
pub(super) fn no_such_resource(what: &str) -> Refusal {
    let message = format!("the server could not find the requested resource: {what}");
    Refusal::new(Reason::NotFound, message).with(StatusDetails::default())
}

pub(super) fn method_not_allowed() -> Refusal {
    let message = "the server does not allow this method on the requested resource";
    Refusal::new(Reason::MethodNotAllowed, message).with(StatusDetails::default())
}

pub(super) fn not_acceptable() -> Refusal {
    let message = "only the following media types are accepted: application/json, \
                   application/json;as=Table;v=v1;g=meta.k8s.io, \
                   application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, \
                   application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    Refusal::new(Reason::NotAcceptable, message)
}

/// A version at which no list or watch can start.
pub(super) fn expired(message: impl Into<String>) -> Refusal {
    Refusal::new(Reason::Expired, message)
}

pub(super) fn too_many_watches(limit: &str) -> Refusal {
    Refusal::too_many_requests(format!("too many watches: {limit}"), AFTER_A_WATCH)
}

pub(super) fn ending() -> Refusal {
    Refusal::not_ready("the agent is shutting down")
}
