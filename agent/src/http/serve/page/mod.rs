//! The page at `/`: shows the agent's responses. The browser watches the pods and requests the rest each second.
//!
//! The files are in the binary and contain no data: the page queries the other paths like any client. The content
//! security policy allows only its own scripts, its own style and this agent. Trusted Types keep the browser from
//! parsing any string as markup.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::get;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The path, the content type and the text of each file.
const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("index.html")),
    ("/ui/page.css", CSS, include_str!("page.css")),
    ("/ui/page.js", JS, include_str!("page.js")),
    ("/ui/agent.js", JS, include_str!("agent.js")),
    ("/ui/ask.js", JS, include_str!("ask.js")),
    ("/ui/changes.js", JS, include_str!("changes.js")),
    ("/ui/rows.js", JS, include_str!("rows.js")),
    ("/ui/pod.js", JS, include_str!("pod.js")),
    ("/ui/icon.svg", SVG, include_str!("icon.svg")),
];

pub(super) fn router() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        let headers: [(HeaderName, &str); 6] = [
            (header::CONTENT_TYPE, kind),
            // The files belong together, and to this version of the agent.
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        router.route(path, get((headers, text)))
    })
}
