//! What is added to every request: the server's address, the credentials and the configured headers.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use kube::Config;
use kube::client::{AuthError, Body, ConfigExt};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, service_fn};

use super::lanes::{Answer, Lanes};

/// Minimum time between two renewals (reading the token file or running the credential plugin), even if the
/// server keeps answering 401.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// A token file is read again after this time, as in client-go.
const TOKEN_AGE: Duration = Duration::from_secs(60);

type Service = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// Adds the credentials to requests and sends them.
pub(super) struct Credentials {
    config: Config,
    lanes: Arc<Lanes>,
    current: Mutex<Current>,
    /// Held during a renewal.
    renewing: AsyncMutex<()>,
}

#[derive(Clone)]
struct Current {
    service: Service,
    /// The content of the token file, if there is one.
    token: Option<String>,
    /// Number of renewals.
    version: u64,
    /// Time of the last attempt to renew, initially the time of creation.
    since: Instant,
    was_tried: bool,
    /// The server answered 401 to this version.
    is_refused: bool,
}

impl Credentials {
    pub(super) fn new(config: Config, lanes: Arc<Lanes>) -> kube::Result<Self> {
        let (service, token) = service(&config, &lanes)?;
        let since = Instant::now();
        let current = Current { service, token, version: 0, since, was_tried: false, is_refused: false };
        Ok(Self { config, lanes, current: Mutex::new(current), renewing: AsyncMutex::default() })
    }

    /// The current service and its version. Refused credentials are renewed first: there may be new ones by now.
    pub(super) async fn current(&self) -> (Service, u64) {
        let Current { version, since, is_refused, .. } = *self.lock();
        let is_old = self.config.auth_info.token_file.is_some() && since.elapsed() >= TOKEN_AGE;
        if is_old || is_refused {
            self.renew(version).await;
        }
        let current = self.lock();
        (current.service.clone(), current.version)
    }

    /// The server answered 401 to `version`. Renews it, unless `was_renewed` for the same request. Returns
    /// `true` if the current version is another one, so that the request can be repeated.
    pub(super) async fn refused(&self, version: u64, was_renewed: bool) -> bool {
        {
            let mut current = self.lock();
            current.is_refused |= current.version == version;
        }
        !was_renewed && self.renew(version).await
    }

    /// Reads the token file or runs the credential plugin again, unless another task has done so since
    /// `version`. Returns `false` if the credentials are still those of `version`. If the renewal fails, the
    /// old credentials stay in use (k/k#68164).
    async fn renew(&self, version: u64) -> bool {
        let auth = &self.config.auth_info;
        if auth.token_file.is_none() && auth.exec.is_none() && auth.auth_provider.is_none() {
            return false;
        }
        let _turn = self.renewing.lock().await;
        let Current { version: now, since, was_tried, .. } = *self.lock();
        if now != version || was_tried && since.elapsed() < RENEWAL_PAUSE {
            return now != version;
        }
        let (config, lanes) = (self.config.clone(), Arc::clone(&self.lanes));
        // Reading a file and running a process may block.
        let renewed = tokio::task::spawn_blocking(move || service(&config, &lanes)).await;
        let mut current = self.lock();
        (current.since, current.was_tried) = (Instant::now(), true);
        match renewed {
            Ok(Ok((service, token))) => {
                let is_file = token.is_some();
                if is_file && token == current.token {
                    return false;
                }
                current.service = service;
                current.token = token;
                current.version += 1;
                current.is_refused = false;
                drop(current);
                if is_file {
                    // A plugin may give the same credentials each time it is asked.
                    self.lanes.try_now();
                }
                true
            }
            Ok(Err(error)) => {
                tracing::warn!("credentials cannot be renewed: {}", crate::text::api_causes(&error));
                false
            }
            Err(_) => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service, and the content of the token file that it sends.
fn service(config: &Config, lanes: &Arc<Lanes>) -> kube::Result<(Service, Option<String>)> {
    let lanes = Arc::clone(lanes);
    let send = service_fn(move |request| {
        let lanes = Arc::clone(&lanes);
        async move { lanes.send(request).await }
    });
    let send = config.extra_headers_layer()?.layer(send);
    let base = config.base_uri_layer();
    let mut config = config.clone();
    let token = token(&config)?;
    if let Some(token) = &token {
        config.auth_info.token = Some(token.clone().into());
    }
    let service = match config.auth_layer()? {
        Some(auth) => Service::new(base.layer(auth.layer(send))),
        None => Service::new(base.layer(send)),
    };
    Ok((service, token))
}

/// The token in the token file, trimmed as in client-go. kube would read the file itself, once a minute, but
/// keeps a trailing newline as part of the token.
fn token(config: &Config) -> kube::Result<Option<String>> {
    let auth = &config.auth_info;
    let (None, Some(path)) = (&auth.token, &auth.token_file) else { return Ok(None) };
    let unread = |error| kube::Error::Auth(AuthError::ReadTokenFile(error, path.into()));
    let content = std::fs::read_to_string(path).map_err(unread)?;
    let token = content.trim();
    if token.is_empty() {
        return Err(unread(io::Error::new(io::ErrorKind::InvalidData, "the file is empty")));
    }
    Ok(Some(token.to_owned()))
}
