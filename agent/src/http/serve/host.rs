//! Checks the `Host` header on loopback without TLS: an address, `localhost`, or a name without a dot.
//!
//! Prevents DNS rebinding: the owner of a public name can point it at 127.0.0.1 at any time, and a page from that name
//! could then read the agent's responses in a browser on this machine. Such a request has the public name, with a dot,
//! in `Host`.

use std::net::IpAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;

use crate::api::refusal::refused;

/// Rejects requests made under a public name.
pub(super) fn checked(router: Router) -> Router {
    router.layer(middleware::from_fn(check))
}

/// Rejects requests with more than one `Host` header (RFC 9112, section 3.2).
pub(super) fn single(router: Router) -> Router {
    router.layer(middleware::from_fn(async |request: Request, next: Next| {
        if request.headers().get_all(header::HOST).iter().count() > 1 {
            return refused(StatusCode::BAD_REQUEST, "BadRequest", "more than one Host header".to_owned());
        }
        next.run(request).await
    }))
}

async fn check(request: Request, next: Next) -> Response {
    let header = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("."));
    // A request may name the host in its URI, too, and some servers prefer that.
    let in_uri = request.uri().authority().map(axum::http::uri::Authority::as_str);
    match header.into_iter().chain(in_uri).find(|host| !is_local(host)) {
        Some(host) => {
            let message = format!(
                "blocked to prevent DNS rebinding: use localhost or an IP address instead of {host:?}"
            );
            refused(StatusCode::MISDIRECTED_REQUEST, "MisdirectedRequest", message)
        }
        None => next.run(request).await,
    }
}

/// Whether `host`, with or without a port, cannot be a public name.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || name.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn only_addresses_localhost_and_names_without_a_dot_are_local() {
        let local =
            "127.0.0.1 127.0.0.1:10270 [::1]:10270 [::1] localhost localhost:1 LOCALHOST a.localhost node";
        for host in local.split(' ').chain([""]) {
            assert!(is_local(host), "{host}");
        }
        let public =
            "evil.example evil.example:10270 127.0.0.1.evil.example localhost.evil.example:80 . 1.2.3.4.5:1";
        for host in public.split(' ') {
            assert!(!is_local(host), "{host}");
        }
    }
}
