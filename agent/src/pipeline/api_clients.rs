//! The clients of the API server. Creating one reads files, and neither connects nor runs a credential plugin: each request
//! does, in the task that sends it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use pod_index_kubelet::api_client::ApiClient;
use pod_index_kubelet::sources::api_server::{connect_with, load_config};
use pod_index_kubelet::text::api_causes;
use tokio::time::timeout;

use super::api_requests::ApiRequests;
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::metrics::Metrics;

/// How many reviews of tokens and of rights are sent at a time.
const REVIEWS: usize = 8;
/// Timeout of a single request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The clients of a running agent. Each has connections of its own, so that nothing delays the pods.
pub(crate) struct ApiClients {
    /// For the source of pods.
    pub(crate) pods: Client,
    /// For what the agent itself reads and writes: mirror pods, its Node object, other resources.
    pub(crate) agent: Client,
    /// For what clients of the agent cause: reviews of their tokens and rights.
    pub(crate) reviews: Client,
}

impl ApiClients {
    /// `None` if no API server is configured. Their requests are counted in either case, so that the metrics exist.
    pub(crate) async fn build(settings: &Settings, metrics: &mut Metrics) -> Result<Option<Self>, Failure> {
        let requests = ApiRequests::register(metrics.ours());
        let Some(api) = connect(settings).await? else { return Ok(None) };
        Ok(Some(Self {
            pods: requests.counted(api.client()),
            agent: requests.counted(api.client()),
            reviews: requests.counted(api.client_with_limit(REVIEWS)),
        }))
    }
}

/// The API server that `settings` names.
pub(crate) async fn connect(settings: &Settings) -> Result<Option<ApiClient>, Failure> {
    if !settings.effective.api_server.is_configured() {
        return Ok(None);
    }
    let kubeconfig = settings.effective.api_server.kubeconfig.as_deref();
    let wrong = |problem| settings.wrong_credentials(problem);
    let config = load_config(kubeconfig).await.map_err(wrong)?;
    let user_agent = format!("pod-index/{} (node {})", env!("CARGO_PKG_VERSION"), settings.node.as_str());
    connect_with(config, kubeconfig, &user_agent).await.map(Some).map_err(wrong)
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
