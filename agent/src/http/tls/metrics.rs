//! Whether the served certificate matches the configured files, and when it expires.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::http::tls::Tls;
use crate::metrics::gauge;

#[derive(Debug)]
pub(crate) struct Certificate(pub(crate) Arc<Tls>);

impl Collector for Certificate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        gauge(
            &mut encoder,
            "tls_certificate_current",
            "Whether the certificate in use is the one in the files; 0 if the files are invalid.",
            i64::from(self.0.is_current()),
        )?;
        let Some(end) = self.0.not_after() else { return Ok(()) };
        gauge(
            &mut encoder,
            "tls_certificate_not_after_timestamp_seconds",
            "Expiry of the certificate in use.",
            i64::try_from(end).unwrap_or(i64::MAX),
        )
    }
}
