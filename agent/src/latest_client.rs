//! The client of the last successful start or reload.
//!
//! Each reload creates a client, because the kubeconfig may have other credentials. A part of the agent that runs
//! longer uses [`latest_client`], so that its next request has the new credentials. A watch keeps its connection until
//! it ends; then its part watches again. The connections of an old client close when their last watch ends.

use hyper::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tower::{BoxError, service_fn};

/// A client that sends each request with the client that `clients` holds at that time. Returns `None` if `clients` holds
/// none now.
pub(super) fn latest_client(clients: watch::Receiver<Option<Client>>) -> Option<Client> {
    let namespace = clients.borrow().as_ref()?.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = clients.borrow().clone();
        async move {
            match client {
                Some(client) => client.send(request).await.map_err(BoxError::from),
                None => Err("no API server is configured".into()),
            }
        }
    });
    Some(Client::new(service, namespace))
}
