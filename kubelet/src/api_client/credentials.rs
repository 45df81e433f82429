//! What is added to every request: the server's address, the credentials and the configured headers. Also renews the
//! client certificate, which belongs to the connections.

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::Config;
use kube::client::{AuthError, Body, ConfigExt};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{self, Instant};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, service_fn};

use super::authorities::{self, Authorities};
use super::connect::Connections;
use super::options::ConnectionOptions;
use super::plugin::Plugin;
use super::pool::{Answer, Latest, Pool, lock};
use crate::blocking;
use crate::text::api_causes;

/// Minimum time between two renewals (reading the files of the token and of the client certificate, or running the
/// credential plugin), even if the server keeps answering 401.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// The files are read again after this time, as client-go does with a token file.
const FILE_AGE: Duration = Duration::from_secs(60);
/// A plugin's credentials are renewed this long before they expire, as in kube.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// The longest that a request waits for a renewal while the old credentials can still be used.
const WAIT_IF_USABLE: Duration = Duration::from_secs(1);

type Service = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// Adds the credentials to requests, and sends each through the pool in its extensions.
pub(super) struct Credentials {
    config: Config,
    plugin: Option<Plugin>,
    /// Connections with the client certificate.
    connections: Latest,
    current: Mutex<Current>,
    /// The trusted certificate authorities. They replace those of the configuration.
    authorities: Mutex<Authorities>,
    /// Held during a renewal.
    renewing: Arc<AsyncMutex<()>>,
    /// A request has waited in vain for the files to be read, and they are not read yet.
    is_hanging: AtomicBool,
    options: ConnectionOptions,
}

#[derive(Clone)]
struct Issued {
    service: Service,
    /// The token of the token file or of the plugin, if there is one.
    token: Option<String>,
    /// The client certificate in PEM.
    certificate: Option<Vec<u8>>,
    /// When the plugin's credentials expire. In the past before its first answer.
    expires: Option<SystemTime>,
}

#[derive(Clone)]
struct Current {
    issued: Issued,
    /// The configuration of the last connections, with the client certificate.
    connected_with: Config,
    /// Number of renewals.
    version: u64,
    /// Time of the last attempt to renew, initially the time of creation.
    since: Instant,
    was_tried: bool,
    /// The server answered 401 to this version, and has accepted no request with it since.
    is_refused: bool,
    /// Why the last attempt to renew failed.
    failure: Option<String>,
}

/// The result of a renewal; with connections, and their configuration, if the client certificate is another one.
type Renewed = kube::Result<(Issued, Option<(Connections, Config)>)>;

impl Credentials {
    /// Reads files, but does not run the plugin.
    pub(super) fn new(
        mut config: Config,
        plugin: Option<Plugin>,
        options: &ConnectionOptions,
    ) -> kube::Result<Self> {
        let token = match token(&config) {
            // As in client-go, the file need not be readable if the configuration also contains a token.
            Err(_) if config.auth_info.token.is_some() => None,
            token => token?,
        };
        // Before the connections: if the file changes in between, the next renewal notices.
        let authorities = Authorities::of(&mut config)?;
        let certificate = certificate(&config)?;
        let connections = Arc::new(Connections::new(&config, options)?);
        let connected_with = config.clone();
        let expires = plugin.is_some().then_some(UNIX_EPOCH);
        let current = Current {
            issued: Issued { service: service(&config, token.as_deref())?, token, certificate, expires },
            connected_with,
            version: 0,
            since: Instant::now(),
            was_tried: false,
            is_refused: false,
            failure: None,
        };
        Ok(Self {
            config,
            plugin,
            connections: Arc::new(Mutex::new(connections)),
            current: Mutex::new(current),
            authorities: Mutex::new(authorities),
            renewing: Arc::default(),
            is_hanging: AtomicBool::new(false),
            options: options.clone(),
        })
    }

    /// Connections for one client, with at most this many requests at a time.
    pub(super) fn pool(&self, requests: usize) -> Pool {
        Pool::new(&self.connections, requests, &self.options)
    }

    /// Why the server refuses the client certificate, if it has expired.
    pub(super) fn expired(&self) -> Option<String> {
        super::expiry::expired(self.lock().issued.certificate.as_ref()?)
    }

    /// The current service and its version. Refused credentials are renewed first: there may be new ones by now.
    ///
    /// # Errors
    /// If the last credentials were refused or have expired, and the credential plugin does not answer in time;
    /// if they have expired and it fails.
    pub(super) async fn current(self: &Arc<Self>) -> Result<(Service, u64), BoxError> {
        let Current { version, since, is_refused, issued: Issued { expires, .. }, .. } = self.lock().clone();
        let is_hanging = self.is_hanging.load(Ordering::Relaxed);
        let is_old = self.has_files() && since.elapsed() >= FILE_AGE && !is_hanging;
        let ends_within = |time| {
            expires.is_some_and(|end| end.duration_since(SystemTime::now()).unwrap_or_default() <= time)
        };
        if is_old || is_refused || ends_within(BEFORE_EXPIRY) {
            let is_usable = !is_refused && !ends_within(Duration::ZERO);
            let most = self.options.plugin.request;
            let wait = if is_usable { most.min(WAIT_IF_USABLE) } else { most };
            let renewal = self.renew(version, wait).await;
            let has_expired = ends_within(Duration::ZERO);
            match renewal {
                Err(error) if is_refused || has_expired => return Err(error),
                Ok(false) if has_expired => {
                    if let Some(failure) = self.lock().failure.clone() {
                        return Err(failure.into());
                    }
                }
                _ => {}
            }
        }
        let current = self.lock();
        Ok((current.issued.service.clone(), current.version))
    }

    /// The server answered 401 to `version`. Renews it, unless `was_renewed` for the same request. Returns
    /// `true` if the current version is another one, so that the request can be repeated.
    ///
    /// # Errors
    /// If the credential plugin does not answer in time.
    pub(super) async fn refused(self: &Arc<Self>, version: u64, was_renewed: bool) -> Result<bool, BoxError> {
        {
            let mut current = self.lock();
            current.is_refused |= current.version == version;
        }
        Ok(!was_renewed && self.renew(version, self.options.plugin.request).await?)
    }

    /// A request with `version` succeeded: an earlier 401 was a passing fault of the server.
    pub(super) fn accepted(&self, version: u64) {
        let mut current = self.lock();
        current.is_refused &= current.version != version;
    }

    /// Whether the token or the client certificate is read from a file. A plugin takes precedence.
    fn has_files(&self) -> bool {
        let in_file = self.config.auth_info.token_file.is_some() || certificate_file(&self.config).is_some();
        in_file && self.plugin.is_none()
    }

    /// Reads the files or runs the credential plugin again, unless another task has done so since
    /// `version`. Returns `false` if the credentials are still those of `version`. If the renewal fails, the
    /// old credentials stay in use (k/k#68164).
    ///
    /// # Errors
    /// If the credential plugin does not answer within `wait`.
    async fn renew(self: &Arc<Self>, version: u64, wait: Duration) -> Result<bool, BoxError> {
        if self.plugin.is_none() && !self.has_files() {
            return Ok(false);
        }
        match (time::timeout(wait, self.renewed(version)).await, &self.plugin) {
            (Ok(is_new), _) => Ok(is_new),
            (Err(_), Some(plugin)) => Err(plugin.silent_for(wait).into()),
            (Err(_), None) => {
                self.is_hanging.store(true, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    async fn renewed(self: &Arc<Self>, version: u64) -> bool {
        let turn = Arc::clone(&self.renewing).lock_owned().await;
        {
            let current = self.lock();
            let is_new = current.version != version;
            if is_new || current.was_tried && current.since.elapsed() < RENEWAL_PAUSE {
                return is_new;
            }
        }
        let credentials = Arc::clone(self);
        // A task of its own: a request that is dropped must neither end the renewal nor let another one begin.
        let renewal = tokio::spawn(async move {
            let _turn = turn;
            let issued = credentials.issued().await;
            credentials.replace(issued)
        });
        renewal.await.unwrap_or(false)
    }

    /// The current content of the files, or a new answer of the plugin.
    async fn issued(&self) -> Renewed {
        let mut config = self.config.clone();
        let mut issued = None;
        if let Some(plugin) = &self.plugin {
            let answer = plugin.run().await?;
            answer.identify(&mut config);
            issued = Some((answer.token.clone(), answer.expires()));
        }
        config.root_cert.clone_from(&lock(&self.authorities).trusted);
        let known = self.lock().issued.certificate.clone();
        let options = self.options.clone();
        // Reading a file may block for ever. One renewal runs at a time.
        let renewed = blocking::run("credentials", move || {
            let (token, expires) = match issued {
                Some(issued) => issued,
                None => (token(&config)?, None),
            };
            let certificate = certificate(&config)?;
            let is_new = certificate != known;
            let connections = is_new.then(|| Connections::new(&config, &options)).transpose()?;
            let service = service(&config, token.as_deref())?;
            let issued = Issued { service, token, certificate, expires };
            Ok((issued, connections.map(|connections| (connections, config))))
        });
        let unfinished = |why| kube::Error::Service(format!("the files of the credentials: {why}").into());
        renewed.await.map_err(unfinished)?
    }

    /// Whether there are new credentials.
    fn replace(&self, renewed: Renewed) -> bool {
        self.is_hanging.store(false, Ordering::Relaxed);
        let mut current = self.lock();
        (current.since, current.was_tried) = (Instant::now(), true);
        match renewed {
            Ok((issued, connections)) => {
                current.failure = None;
                // A plugin's first answer is no renewal.
                current.was_tried = self.plugin.is_none() || current.version > 0;
                let is_new = issued.token != current.issued.token || connections.is_some();
                if let Some((connections, config)) = connections {
                    current.connected_with = config;
                    *lock(&self.connections) = Arc::new(connections);
                    if current.issued.certificate.is_some() {
                        tracing::info!("the client certificate has changed; new connections use it");
                    }
                }
                current.issued = issued;
                current.version += u64::from(is_new);
                current.is_refused &= !is_new;
                is_new
            }
            Err(error) => {
                let failure = format!("credentials cannot be renewed: {}", api_causes(&error));
                tracing::warn!("{failure}");
                current.failure = Some(failure);
                false
            }
        }
    }

    /// The file of the certificate authorities, if there is one.
    pub(super) fn authorities_file(&self) -> Option<PathBuf> {
        lock(&self.authorities).file.clone()
    }

    /// Trusts these certificate authorities from now on, in PEM. If they are others than before, opens new connections, and
    /// ends the answers on the old ones. Returns whether they are.
    ///
    /// # Errors
    /// If they are unusable. The last ones stay.
    pub(super) async fn trust(&self, pem: Vec<u8>) -> kube::Result<bool> {
        if lock(&self.authorities).pem == pem {
            return Ok(false);
        }
        let trusted = authorities::decoded(&pem)?;
        // A renewal that runs now would bring back the old ones.
        let _turn = self.renewing.lock().await;
        let mut config = self.lock().connected_with.clone();
        config.root_cert = Some(trusted.clone());
        let connections = Connections::new(&config, &self.options)?;
        self.lock().connected_with = config;
        {
            let mut authorities = lock(&self.authorities);
            authorities.trusted = Some(trusted);
            authorities.pem = pem;
        }
        let old = mem::replace(&mut *lock(&self.connections), Arc::new(connections));
        old.distrust();
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

/// The service that sends `token`, or the other credentials of `config`.
fn service(config: &Config, token: Option<&str>) -> kube::Result<Service> {
    let send = service_fn(|mut request: Request<Body>| async move {
        match request.extensions_mut().remove::<Arc<Pool>>() {
            Some(pool) => pool.send(request).await,
            None => unreachable!("every request has a pool"),
        }
    });
    let send = config.extra_headers_layer()?.layer(send);
    let base = config.base_uri_layer();
    let mut config = config.clone();
    if let Some(token) = token {
        config.auth_info.token = Some(token.to_owned().into());
    }
    Ok(match config.auth_layer()? {
        Some(auth) => Service::new(base.layer(auth.layer(send))),
        None => Service::new(base.layer(send)),
    })
}

/// The token in the token file, trimmed as in client-go. It takes precedence over a token in the configuration. kube
/// would read the file itself, once a minute, but keeps a trailing newline as part of the token.
fn token(config: &Config) -> kube::Result<Option<String>> {
    let Some(path) = &config.auth_info.token_file else { return Ok(None) };
    let unread = |error| kube::Error::Auth(AuthError::ReadTokenFile(error, path.into()));
    let content = std::fs::read_to_string(path).map_err(unread)?;
    let token = content.trim();
    if token.is_empty() {
        return Err(unread(io::Error::new(io::ErrorKind::InvalidData, "the file is empty")));
    }
    Ok(Some(token.to_owned()))
}

/// The client certificate in PEM.
pub(super) fn certificate(config: &Config) -> kube::Result<Option<Vec<u8>>> {
    let Some(path) = certificate_file(config) else {
        let data = config.auth_info.client_certificate_data.as_ref();
        // If it is not base64, `Connections` says so.
        let pem = data.and_then(|data| serde_json::from_value::<ByteString>(data.as_str().into()).ok());
        return Ok(pem.map(|pem| pem.0));
    };
    let unread = |error| format!("cannot read the client certificate {path:?}: {error}");
    std::fs::read(path).map(Some).map_err(|error| kube::Error::Service(unread(error).into()))
}

/// The file of the client certificate, unless the configuration contains the certificate.
fn certificate_file(config: &Config) -> Option<&String> {
    let auth = &config.auth_info;
    auth.client_certificate.as_ref().filter(|_| auth.client_certificate_data.is_none())
}
