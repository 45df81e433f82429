//! The client of the last successful start or reload.
//!
//! Each reload creates a client, because the kubeconfig may have other credentials. A part of the agent that runs
//! longer uses [`ApiClients::latest`], so that its next request has the new credentials. A watch keeps its connection until
//! it ends; then its part watches again. The connections of an old client close when their last watch ends.

use hyper::Request;
use hyper::http::Uri;
use kube::client::Body;
use kube::{Client, Config};
use pod_index_kubelet::sources::Problem;
use pod_index_kubelet::sources::api_server::{connect_with, load_config};
use tokio::sync::watch;
use tower::{BoxError, service_fn};

use super::api_requests::ApiRequests;
use super::exit::Failure;
use super::settings::{ApiSettings, Settings};

/// Creates the clients of a running agent, and holds the current one.
pub(super) struct ApiClients {
    current: watch::Sender<Option<Client>>,
    requests: ApiRequests,
    /// The API server at the start.
    server: Option<Uri>,
}

impl ApiClients {
    /// Creates the first client, if `settings` names an API server. Counts its requests in `requests`.
    pub(super) async fn start(settings: &Settings, requests: ApiRequests) -> Result<Self, Failure> {
        let config = config(settings).await?;
        let server = config.as_ref().map(|config| config.cluster_url.clone());
        let client = connect(settings, config).await?.map(|client| requests.counted(client));
        Ok(Self { current: watch::Sender::new(client), requests, server })
    }

    /// A client for new settings. It is not the current one yet.
    ///
    /// # Errors
    /// Also if the agent must stay with the API server of the start, and the kubeconfig names another one now.
    pub(super) async fn create(&self, settings: &Settings) -> Result<Option<Client>, Failure> {
        let config = config(settings).await?;
        let server = config.as_ref().map(|config| &config.cluster_url);
        if settings.keeps_api_server() && server != self.server.as_ref() {
            let why = "the server in the kubeconfig cannot change while the agent runs";
            return Err(Failure::Usage(why.to_owned()));
        }
        let client = connect(settings, config).await?;
        Ok(client.map(|client| self.requests.counted(client)))
    }

    /// Makes this client the current one.
    pub(super) fn replace(&self, client: Option<Client>) {
        self.current.send_replace(client);
    }

    /// The current client.
    pub(super) fn current(&self) -> Option<Client> {
        self.current.borrow().clone()
    }

    /// Receives each current client.
    pub(super) fn follow(&self) -> watch::Receiver<Option<Client>> {
        self.current.subscribe()
    }

    /// A client that sends each request with the client that is current at that time. Returns `None` if there is none
    /// now.
    pub(super) fn latest(&self) -> Option<Client> {
        let clients = self.follow();
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
}

/// A client of the API server, if `settings` names one. It has not connected yet.
pub(super) async fn client(settings: &Settings) -> Result<Option<Client>, Failure> {
    connect(settings, config(settings).await?).await
}

/// The content of the kubeconfig that `settings` names.
async fn config(settings: &Settings) -> Result<Option<Config>, Failure> {
    let Some(ApiSettings { kubeconfig, .. }) = &settings.api else { return Ok(None) };
    load_config(kubeconfig.as_deref()).await.map(Some).map_err(|problem| unusable(&problem))
}

async fn connect(settings: &Settings, config: Option<Config>) -> Result<Option<Client>, Failure> {
    let (Some(config), Some(ApiSettings { kubeconfig, .. })) = (config, &settings.api) else {
        return Ok(None);
    };
    let user_agent = format!("pod-index/{} (node {})", env!("CARGO_PKG_VERSION"), settings.node.as_str());
    connect_with(config, kubeconfig.as_deref(), &user_agent)
        .await
        .map(Some)
        .map_err(|problem| unusable(&problem))
}

fn unusable(problem: &Problem) -> Failure {
    Failure::Usage(problem.to_string())
}
