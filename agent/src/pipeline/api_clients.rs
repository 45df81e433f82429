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
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::{Client, Config};
use pod_index_kubelet::api_client::ApiClient;
use pod_index_kubelet::sources::Problem;
use pod_index_kubelet::sources::api_server::{authenticate, connect_with, load_config};
use pod_index_kubelet::text::api_causes;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

use super::api_requests::ApiRequests;
use crate::config::failure::Failure;
use crate::config::{ApiSettings, Settings};

/// How many reviews of tokens and of rights are sent at a time.
const REVIEWS: usize = 8;
/// Timeout of a review of the agent's own rights.
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
        let config = config(settings).await?;
        let server = config.as_ref().map(|config| config.cluster_url.clone());
        let clients = connect(settings, config).await?.map(|api| clients(&api, &requests));
        Ok(Self { current: watch::Sender::new(clients), requests, server })
    }

    /// Clients for new settings. They are not the current ones yet.
    ///
    /// # Errors
    /// Also if the agent must stay with the API server of the start, and the kubeconfig names another one now.
    pub(crate) async fn create(&self, settings: &Settings) -> Result<Option<Clients>, Failure> {
        let config = config(settings).await?;
        let server = config.as_ref().map(|config| &config.cluster_url);
        if settings.keeps_api_server() && server != self.server.as_ref() {
            let why = "the server in the kubeconfig cannot change while the agent runs";
            return Err(Failure::Usage(why.to_owned()));
        }
        let api = connect(settings, config).await?;
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
    let Some(api) = connect(settings, config(settings).await?).await? else { return Ok(None) };
    let kubeconfig = settings.api.as_ref().and_then(|api| api.kubeconfig.as_deref());
    authenticate(&api, kubeconfig).await.map_err(|problem| unusable(&problem))?;
    Ok(Some(api.client()))
}

/// The content of the kubeconfig that `settings` names.
async fn config(settings: &Settings) -> Result<Option<Config>, Failure> {
    let Some(ApiSettings { kubeconfig, .. }) = &settings.api else { return Ok(None) };
    load_config(kubeconfig.as_deref()).await.map(Some).map_err(|problem| unusable(&problem))
}

async fn connect(settings: &Settings, config: Option<Config>) -> Result<Option<ApiClient>, Failure> {
    let (Some(config), Some(ApiSettings { kubeconfig, .. })) = (config, &settings.api) else {
        return Ok(None);
    };
    let user_agent = format!("pod-index/{} (node {})", env!("CARGO_PKG_VERSION"), settings.node.as_str());
    connect_with(config, kubeconfig.as_deref(), &user_agent)
        .await
        .map(Some)
        .map_err(|problem| unusable(&problem))
}

/// Whether the API server grants this to the agent. Every account may ask. The error is the reason why that is unknown.
pub(crate) async fn may(client: &Client, attributes: ResourceAttributes) -> Result<bool, String> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let (parameters, no_answer) = (PostParams::default(), |_| format!("no answer within {PATIENCE:?}"));
    let review = timeout(PATIENCE, reviews.create(&parameters, &review)).await.map_err(no_answer)?;
    let status = review.map_err(|error| api_causes(&error))?.status;
    Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}

fn unusable(problem: &Problem) -> Failure {
    Failure::Usage(problem.to_string())
}
