//! Checks the `Host` header of requests without TLS: it must be an address, or a name that the public DNS cannot hold.
//!
//! Prevents DNS rebinding: the owner of a public name can point it at any address, such as 127.0.0.1 or the node's, at any
//! time, and a page from that name could then read the agent's responses in a browser that can reach the agent. Such a request
//! has the public name in `Host`. With TLS, the browser refuses: the agent's certificate is for another name.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use axum::response::Response;

use crate::api::refusal::{Reason, refused};

/// Top-level domains that the public DNS does not delegate, and that local networks and clusters use.
const PRIVATE: [&str; 8] = ["localhost", "local", "internal", "svc", "localdomain", "lan", "corp", "home"];

/// Under which names a listener serves.
#[derive(Debug)]
pub(super) enum Hosts {
    /// Under all, because a page in a browser cannot reach it, or is refused by TLS.
    All,
    /// Under addresses, names that are not public, and the name of this node.
    Private { node: String },
}

impl Hosts {
    /// Checks a request. The error is the response. There must be one `Host` header (RFC 9112, section 3.2).
    #[expect(clippy::result_large_err, reason = "it is made once for a refused request, and sent at once")]
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Response> {
        let mut headers = request.headers().get_all(header::HOST).iter();
        let header = headers.next();
        if headers.next().is_some() {
            return Err(refused(Reason::BadRequest, "more than one Host header"));
        }
        let Self::Private { node } = self else { return Ok(()) };
        let header = header.map(|host| host.to_str().unwrap_or("."));
        // A request may name the host in its URI, too, and some servers prefer that.
        let in_uri = request.uri().authority().map(Authority::as_str);
        match header.into_iter().chain(in_uri).find(|host| !is_private(host, node)) {
            Some(host) => {
                let message = format!(
                    "blocked to prevent DNS rebinding: use localhost, an IP address or the node's name instead of {host:?}, or TLS"
                );
                Err(refused(Reason::MisdirectedRequest, message))
            }
            None => Ok(()),
        }
    }
}

/// Whether `host`, with or without a port, cannot be somebody else's public name.
fn is_private(host: &str, node: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case(node) {
        return true;
    }
    // A name may end with the dot of the root.
    let name = name.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(name);
    match name.rsplit_once('.') {
        None => true,
        Some((_, domain)) => PRIVATE.iter().any(|private| domain.eq_ignore_ascii_case(private)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_private;

    #[test]
    fn only_addresses_and_names_outside_the_public_dns_are_private() {
        let private = "127.0.0.1 127.0.0.1:10270 [::1]:10270 [::1] localhost localhost:1 LOCALHOST a.localhost node localhost. \
                       pod-index.monitoring.svc pod-index.monitoring.svc.cluster.local:10270 ip-10-0-0-1.ec2.internal \
                       node-1.shop.example node-1.shop.example:10270";
        for host in private.split_whitespace().chain([""]) {
            assert!(is_private(host, "node-1.shop.example"), "{host}");
        }
        let public = "evil.example evil.example:10270 127.0.0.1.evil.example localhost.evil.example:80 . 1.2.3.4.5:1 \
                      evil.example. svc.evil.example node-2.shop.example evil.node-1.shop.example";
        for host in public.split_whitespace() {
            assert!(!is_private(host, "node-1.shop.example"), "{host}");
        }
    }
}
