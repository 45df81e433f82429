//! The clients of the last successful start or reload.
//!
//! Each reload creates clients, because the kubeconfig may have other credentials. A part of the agent that runs
//! longer uses [`ApiClients::latest`], so that its next request has the new credentials. A watch keeps its connection until
//! it ends; then its part watches again. The connections of an old client close when their last watch ends.
//!
//! Creating a client reads files, and neither connects nor runs a credential plugin: each request does, in the task that
//! sends it.

use std::time::Duration;

use hyper::Request;
use hyper::http::Uri;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use pod_index_kubelet::api_client::ApiClient;
use pod_index_kubelet::sources::api_server::{authenticate, connect_with, load_config};
use pod_index_kubelet::text::api_causes;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

use super::api_requests::ApiRequests;
use crate::config::failure::Failure;
use crate::config::{Settings, rule, wrong};

/// How many reviews of tokens and of rights are sent at a time.
const REVIEWS: usize = 8;
/// Timeout of a single request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The clients of one identity. Each has connections of its own, so that nothing delays the pods.
#[derive(Clone)]
pub(crate) struct Clients {
    /// For the source.
    pub(crate) pods: Client,
    /// For what the agent itself reads and writes: mirror pods, its Node object.
    pub(crate) others: Client,
    /// For what clients of the agent cause: reviews of their tokens and rights.
    pub(crate) reviews: Client,
}

/// Creates the clients of a running agent, and holds the current ones.
pub(crate) struct ApiClients {
    current: watch::Sender<Option<Clients>>,
    requests: ApiRequests,
    /// The API server at the start.
    server: Option<Uri>,
}

impl ApiClients {
    /// Creates the first clients, if `settings` names an API server. Counts its requests in `requests`.
    pub(crate) async fn start(settings: &Settings, requests: ApiRequests) -> Result<Self, Failure> {
        let (api, server) = connect(settings).await?.unzip();
        let clients = api.map(|api| clients(&api, &requests));
        Ok(Self { current: watch::Sender::new(clients), requests, server })
    }

    /// Clients for new settings. They are not the current ones yet.
    ///
    /// # Errors
    /// Also if the agent must stay with the API server of the start, and the kubeconfig names another one now.
    pub(crate) async fn create(&self, settings: &Settings) -> Result<Option<Clients>, Failure> {
        let (api, server) = connect(settings).await?.unzip();
        let may_change = !settings.keeps_api_server();
        rule(
            may_change || server == self.server,
            "the server in the kubeconfig cannot change while the agent runs",
        )?;
        Ok(api.map(|api| clients(&api, &self.requests)))
    }

    /// Makes these clients the current ones.
    pub(crate) fn replace(&self, clients: Option<Clients>) {
        self.current.send_replace(clients);
    }

    /// The current client of the source.
    pub(crate) fn current(&self) -> Option<Client> {
        self.current.borrow().as_ref().map(|clients| clients.pods.clone())
    }

    /// Receives the current clients.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Clients>> {
        self.current.subscribe()
    }

    /// A client that sends each request with the one that is current at that time. Returns `None` if there is none
    /// now.
    pub(crate) fn latest(&self, which: fn(&Clients) -> &Client) -> Option<Client> {
        let clients = self.follow();
        let namespace = which(clients.borrow().as_ref()?).default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let client = clients.borrow().as_ref().map(|clients| which(clients).clone());
            async move {
                match client {
                    Some(client) => client.send(request).await.map_err(BoxError::from),
                    None => Err("no API server is configured".into()),
                }
            }
        });
        Some(Client::new(service, namespace))
    }
}

fn clients(api: &ApiClient, requests: &ApiRequests) -> Clients {
    Clients {
        pods: requests.counted(api.client()),
        others: requests.counted(api.client()),
        reviews: requests.counted(api.client_with_limit(REVIEWS)),
    }
}

/// A client of the API server, if `settings` names one, after the credential plugin has answered. It has not connected
/// yet.
pub(crate) async fn client(settings: &Settings) -> Result<Option<Client>, Failure> {
    let Some((api, _)) = connect(settings).await? else { return Ok(None) };
    authenticate(&api, settings.given.kubeconfig.as_deref()).await.map_err(wrong)?;
    Ok(Some(api.client()))
}

/// The API server that `settings` names, and its address in the kubeconfig.
async fn connect(settings: &Settings) -> Result<Option<(ApiClient, Uri)>, Failure> {
    if !settings.given.has_api_server() {
        return Ok(None);
    }
    let kubeconfig = settings.given.kubeconfig.as_deref();
    let config = load_config(kubeconfig).await.map_err(wrong)?;
    let server = config.cluster_url.clone();
    let user_agent = format!("pod-index/{} (node {})", env!("CARGO_PKG_VERSION"), settings.node.as_str());
    let api = connect_with(config, kubeconfig, &user_agent).await.map_err(wrong)?;
    Ok(Some((api, server)))
}

/// The answer of the API server, or why there is none in time.
pub(crate) async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    let answer = timeout(PATIENCE, request).await.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    answer.map_err(|error| api_causes(&error))
}

/// Whether the API server grants this to the agent. Every account may ask. The error is the reason why that is unknown.
pub(crate) async fn may(client: &Client, attributes: ResourceAttributes) -> Result<bool, String> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let status = answer(reviews.create(&PostParams::default(), &review)).await?.status;
    Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
