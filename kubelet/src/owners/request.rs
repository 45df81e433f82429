//! One request for one owner.

use std::time::Duration;

use kube::api::{Api, DynamicObject, GetParams};
use kube::{Client, Error};
use tokio::time::timeout;

use super::Owner;
use super::id::OwnerId;
use crate::records::LAST_APPLIED;
use crate::text::api_causes;

/// Timeout of a request.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the API server said.
pub(super) enum Answer {
    Found(Box<Owner>),
    /// There is no such object, or the one with this name has another UID.
    NotFound,
    /// The right is missing: the server's words. Rights are granted for kinds.
    Denied(String),
    /// Any other failure, or no answer in time.
    Failed(String),
}

/// Requests an owner. Asks the API server's cache first, and etcd for what that lacks: it may be late.
pub(super) async fn request(client: &Client, id: &OwnerId) -> Answer {
    let both = async {
        match get(client, id, &GetParams::any()).await? {
            Some(owner) => Ok(Some(owner)),
            None => get(client, id, &GetParams::default()).await,
        }
    };
    match timeout(PATIENCE, both).await {
        Ok(Ok(Some(owner))) => Answer::Found(Box::new(owner)),
        Ok(Ok(None)) => Answer::NotFound,
        Ok(Err(error @ Error::Api(_))) if is_denied(&error) => Answer::Denied(api_causes(&error)),
        Ok(Err(error)) => Answer::Failed(api_causes(&error)),
        Err(_) => Answer::Failed(format!("no answer within {PATIENCE:?}")),
    }
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}

async fn get(client: &Client, id: &OwnerId, parameters: &GetParams) -> Result<Option<Owner>, Error> {
    let resource = id.kind.resource();
    let objects = Api::<DynamicObject>::namespaced_with(client.clone(), &id.namespace, &resource);
    let found = objects.get_metadata_opt_with(&id.name, parameters).await?;
    let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&id.uid));
    Ok(found.map(|mut found| {
        // Without the parts that can take most of the memory, and that may hold passwords.
        found.metadata.managed_fields = None;
        found.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(LAST_APPLIED));
        found
    }))
}
