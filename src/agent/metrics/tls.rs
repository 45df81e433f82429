//! Whether the certificate that the agent presents is the one that it was given.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::gauge;
use crate::agent::tls::Tls;

#[derive(Debug)]
pub(super) struct Certificate(pub(super) Arc<Tls>);

impl Collector for Certificate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        gauge(
            &mut encoder,
            "tls_certificate_current",
            "Whether what is presented is what is in the files of the TLS certificate; 0 if they are no good.",
            i64::from(self.0.is_current()),
        )
    }
}
