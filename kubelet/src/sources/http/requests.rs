//! Requests to one URL, with the token and the certificate authorities that the files hold at that moment.

use std::path::Path;
use std::time::Duration;

use hyper::header::HeaderValue;

use super::HttpConfig;
use super::fetch::{Fetched, HttpClient, client, fetch};
use super::files::{Content, Files, of_authorities, of_token};
use crate::blocking::OneThread;
use crate::sources::Problem;

/// The shortest time between two requests that are made because of nudges.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// Sends the requests to a URL.
pub(super) struct Requests {
    config: HttpConfig,
    client: HttpClient,
    files: Files,
    /// The content of the file of certificate authorities. Empty before it was read.
    authorities: Vec<u8>,
    /// Why that file could not be used the last time. The last authorities are trusted meanwhile.
    warning: Option<String>,
}

impl Requests {
    /// # Errors
    /// If the URL is `https`, no authorities are given, and the system's cannot be read.
    pub(super) fn new(config: HttpConfig) -> Result<Self, Problem> {
        Ok(Self {
            client: client(&config)?,
            files: Files::new(config.token_file.clone(), config.authorities_file.clone()),
            config,
            authorities: Vec::new(),
            warning: None,
        })
    }

    /// The answer, if it is `200 OK`, or an error message.
    pub(super) async fn send(&mut self, thread: &OneThread) -> Result<Fetched, String> {
        let Content { token, authorities } = self.files.read(thread, self.config.timeout).await;
        self.warning = authorities.and_then(|authorities| self.trust(authorities).err());
        let header = token.transpose()?.map(|token| self.header(&token)).transpose()?;
        fetch(&self.client, &self.config, header).await
    }

    /// What was wrong with the last request, although it was sent.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Drops a read of the files that may be half done.
    pub(super) fn begin_anew(&mut self) {
        self.files = Files::new(self.config.token_file.clone(), self.config.authorities_file.clone());
    }

    /// The header with this token.
    fn header(&self, token: &str) -> Result<HeaderValue, String> {
        // The error does not repeat the token.
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
            let path = self.config.token_file.as_deref().unwrap_or(Path::new(""));
            of_token(path, "it cannot be sent in a header")
        })?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Trusts these certificate authorities from now on. If they are others than before, the old client ends, and with it
    /// its connections.
    fn trust(&mut self, pem: Result<Vec<u8>, String>) -> Result<(), String> {
        let pem = pem?;
        if pem == self.authorities {
            return Ok(());
        }
        let wrong = |problem: Problem| {
            let path = self.config.authorities_file.as_deref().unwrap_or(Path::new(""));
            of_authorities(path, &problem.message)
        };
        let mut config = self.config.clone();
        config.trust(&pem).map_err(wrong)?;
        self.client = client(&config).map_err(wrong)?;
        if !self.authorities.is_empty() {
            tracing::info!(url = self.config.url, "the certificate authorities have changed");
        }
        self.authorities = pem;
        Ok(())
    }
}
