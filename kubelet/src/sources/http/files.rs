//! The files that requests need: the bearer token and the certificate authorities. Both rotate, so both are read again for
//! each request. The mount that they are on may hang.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::blocking::{Job, OneThread, Unfinished};

pub(super) struct Files {
    token: Option<PathBuf>,
    authorities: Option<PathBuf>,
    /// A read that has not ended.
    reading: Option<Job<Content>>,
}

/// What the files hold, or why that is unknown. `None`: no such file is configured.
pub(super) struct Content {
    pub(super) token: Option<Result<String, String>>,
    pub(super) authorities: Option<Result<Vec<u8>, String>>,
}

impl Files {
    pub(super) fn new(token: Option<PathBuf>, authorities: Option<PathBuf>) -> Self {
        Self { token, authorities, reading: None }
    }

    /// What the files hold now, or held when a read began that was late.
    pub(super) async fn read(&mut self, thread: &OneThread, patience: Duration) -> Content {
        if self.token.is_none() && self.authorities.is_none() {
            return Content { token: None, authorities: None };
        }
        self.content(thread, patience).await.unwrap_or_else(|unfinished| {
            let why = unfinished.to_string();
            Content {
                token: self.token.as_deref().map(|path| Err(of_token(path, &why))),
                authorities: self.authorities.as_deref().map(|path| Err(of_authorities(path, &why))),
            }
        })
    }

    async fn content(&mut self, thread: &OneThread, patience: Duration) -> Result<Content, Unfinished> {
        let mut reading = if let Some(reading) = self.reading.take() {
            reading
        } else {
            let token = self.token.clone();
            let authorities = self.authorities.clone();
            thread.start(move || read(token, authorities))?
        };
        let content = reading.within(patience).await;
        if content.is_err() {
            self.reading = Some(reading);
        }
        content
    }
}

fn read(token: Option<PathBuf>, authorities: Option<PathBuf>) -> Content {
    Content {
        token: token
            .map(|path| fs::read_to_string(&path).map_err(|error| of_token(&path, &error.to_string()))),
        authorities: authorities
            .map(|path| fs::read(&path).map_err(|error| of_authorities(&path, &error.to_string()))),
    }
}

pub(super) fn of_token(path: &Path, why: &str) -> String {
    format!("the token in {}: {why}", path.display())
}

pub(super) fn of_authorities(path: &Path, why: &str) -> String {
    format!("the certificate authorities in {}: {why}", path.display())
}
