//! The URL, its headers and intervals, and the trusted authorities.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_rustls::ConfigBuilderExt;
use k8s_openapi::api::core::v1::Pod;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::sources::{Nudge, Problem, ProblemKind};

/// Size limit of a body in bytes.
const LARGEST_BODY: usize = 10 * 1024 * 1024;
/// The same for a kubelet's list: a thousand pods of 64 KiB.
const LARGEST_LIST: usize = 64 << 20;

/// A URL that serves manifests, and how to request it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::sources::http::HttpConfig;
///
/// let mut config = HttpConfig::new("http://manifests.example.com/node-1")?.header("Authorization", "Bearer secret")?;
/// config.period = Duration::from_secs(5);
/// assert!(HttpConfig::new("ftp://example.com/").is_err());
/// # Ok::<(), pod_index_kubelet::sources::Problem>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// As given: it becomes part of UIDs.
    pub(super) url: String,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// The pause between two requests; 20 s by default. Zero counts as a millisecond.
    ///
    /// Kubelet: `httpCheckFrequency`.
    pub period: Duration,
    /// The time limit for an answer, including the body; 10 s by default.
    pub timeout: Duration,
    /// Changes each pod before it is stored, as [`redact_env`](crate::sources::redact_env) does. UIDs are derived
    /// before the change.
    pub transform: fn(&mut Pod),
    /// Reads at once whenever this nudge is used.
    pub nudge: Nudge,
    /// File of the bearer token, read again for each request because tokens rotate.
    pub token_file: Option<PathBuf>,
    /// File of the certificate authorities to trust, in PEM, read again for each request because authorities rotate. If they
    /// have changed, a new connection is opened and the old one ends. While the file is unusable, the last ones are trusted,
    /// and the status has a [`Warning`](ProblemKind::Warning).
    pub authorities_file: Option<PathBuf>,
    /// Accepts any certificate. A kubelet without a serving certificate from the cluster's authority uses a
    /// self-signed one. An impostor would then receive the token, so use this only with an address of this host.
    pub insecure: bool,
    /// Size limit of a body in bytes.
    pub(super) limit: usize,
    /// `None` means the system's authorities.
    authorities: Option<Arc<RootCertStore>>,
}

impl HttpConfig {
    /// Requests `url` every 20 seconds, with a time limit of 10 seconds, and trusts the system's authorities.
    ///
    /// # Errors
    /// If it is not an absolute `http` or `https` URL, or if it holds a user name or a password.
    ///
    /// Kubelet: `staticPodURL`.
    pub fn new(url: &str) -> Result<Self, Problem> {
        Self::of(url, "staticPodURL", LARGEST_BODY)
    }

    /// A kubelet's list of its pods. A URL without a path means `/pods`. The list may have 64 MiB, a thousand pods of
    /// 64 KiB; otherwise like [`new`](Self::new).
    ///
    /// # Errors
    /// Like `new`.
    pub fn of_kubelet(url: &str) -> Result<Self, Problem> {
        let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
        let has_path = after_scheme.split_once('/').is_some_and(|(_, path)| !path.is_empty());
        let url = if has_path { url.to_owned() } else { format!("{}/pods", url.trim_end_matches('/')) };
        Self::of(&url, "kubeletURL", LARGEST_LIST)
    }

    /// The URL in this field of the configuration, and a body of at most `limit` bytes.
    fn of(url: &str, field: &str, limit: usize) -> Result<Self, Problem> {
        let wrong = |message: &str| problem(field, message.to_owned());
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("is not a URL: {error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong("must begin with http:// or https://"));
        }
        if uri.host().unwrap_or_default().is_empty() {
            return Err(wrong("must name a host"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("must not hold a user name or a password; send a header instead"));
        }
        Ok(Self {
            url: url.to_owned(),
            uri,
            headers: HeaderMap::new(),
            period: Duration::from_secs(20),
            timeout: Duration::from_secs(10),
            transform: |_| {},
            nudge: Nudge::default(),
            limit,
            token_file: None,
            authorities_file: None,
            insecure: false,
            authorities: None,
        })
    }

    /// Sends a header with each request. Several headers of one name are all sent.
    ///
    /// # Errors
    /// If the name or value is not valid in a header. The error does not repeat the value.
    ///
    /// Kubelet: `staticPodURLHeader`.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Problem> {
        let field = "staticPodURLHeader";
        let key = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| problem(field, format!("{:?} is not a header name", crate::text::shorten(name))))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| problem(field, format!("the value of {key} cannot be sent in a header")))?;
        // Hides it from debug output.
        value.set_sensitive(true);
        self.headers.append(key, value);
        Ok(self)
    }

    /// Trusts only the certificate authorities in `pem`, instead of the system's.
    ///
    /// # Errors
    /// If `pem` holds no certificate, or one that cannot be used as an authority.
    pub fn certificate_authorities(mut self, pem: &[u8]) -> Result<Self, Problem> {
        self.trust(pem)?;
        Ok(self)
    }

    /// As [`certificate_authorities`](Self::certificate_authorities). After an error, the last ones stay.
    pub(super) fn trust(&mut self, pem: &[u8]) -> Result<(), Problem> {
        let wrong = |message: String| problem("certificateAuthorities", message);
        let mut authorities = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| wrong("is not valid PEM".to_owned()))?;
            authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if authorities.is_empty() {
            return Err(wrong("holds no certificate".to_owned()));
        }
        self.authorities = Some(Arc::new(authorities));
        Ok(())
    }

    pub(super) fn tls(&self) -> Result<ClientConfig, Problem> {
        let wrong = |message: String| problem("certificateAuthorities", message);
        let builder = crate::https::client_config().map_err(|error| wrong(error.to_string()))?;
        if self.insecure {
            return Ok(crate::https::unverified(builder));
        }
        let authorities = match &self.authorities {
            Some(authorities) => Arc::clone(authorities),
            None => match builder.clone().with_native_roots() {
                Ok(builder) => return Ok(builder.with_no_client_auth()),
                // A container without certificates may still use an `http` URL.
                Err(_) if self.uri.scheme_str() == Some("http") => Arc::new(RootCertStore::empty()),
                Err(error) => return Err(wrong(format!("the system's cannot be read: {error}"))),
            },
        };
        Ok(builder.with_root_certificates(authorities).with_no_client_auth())
    }
}

fn problem(field: &str, message: String) -> Problem {
    Problem::new(ProblemKind::Invalid, "configuration", None, Some(field.to_owned()), message)
}
