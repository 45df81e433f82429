//! Whether the lists of a kubelet are complete, judged by its pods and by the connections that carry them.

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::{Duration, Instant};

use super::fetch::Fetched;
use super::requests::SOON;
use crate::sources::completeness::{Completeness, Extent, Listed};
use crate::sources::skeleton::Admitted;

/// The lists of one kubelet.
pub(super) struct Lists {
    completeness: Completeness,
    /// The connection of the last answer, if it stayed open.
    connection: Option<SocketAddr>,
    /// Whether the last usable list has pods of the API server.
    has_api_pods: bool,
    /// If the last list may have been incomplete: the longest pause after it.
    pause: Option<Duration>,
}

impl Lists {
    pub(super) fn new() -> Self {
        Self { completeness: Completeness::new(), connection: None, has_api_pods: false, pause: None }
    }

    /// Finds out from an answer, or from its absence, whether another process than before may have answered.
    pub(super) fn answered(&mut self, answer: Option<&Fetched>) {
        let connection = answer.and_then(|answer| answer.connection);
        // If the server closes each connection, a new one means nothing.
        let is_new = connection.is_some() && connection != self.connection;
        if answer.is_none() || is_new {
            self.completeness.interrupted();
        }
        self.connection = connection;
    }

    /// Which pods of the node this list, which was requested at that time, has for certain.
    pub(super) fn extent(&mut self, began: Instant, pods: &[Admitted]) -> Extent {
        let listed = Listed::of(pods.iter().map(Deref::deref));
        let api_pods = listed.of_api_server;
        if self.connection.is_none() && self.has_api_pods && api_pods == 0 {
            // All of them are gone, and no connection tells whether the process is still the same.
            self.completeness.interrupted();
        }
        self.has_api_pods = api_pods > 0;
        let extent = self.completeness.extent(began, listed);
        self.pause = match self.pause {
            _ if extent == Extent::All => None,
            // Only the API server's return ends a longer doubt.
            Some(pause) if api_pods == 0 => Some(pause.saturating_mul(2)),
            _ => Some(SOON),
        };
        extent
    }

    /// The longest pause before the next request, while the lists may be incomplete.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.pause
    }
}
