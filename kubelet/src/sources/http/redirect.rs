//! The target of a redirect, and what may be sent there.

use hyper::Uri;

/// Limit of redirects, as in Go's client.
pub(super) const MOST_REDIRECTS: usize = 10;

/// Resolves `location` against `base` (RFC 3986, section 5.2). `None` unless the result is an HTTP URL.
pub(super) fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?.as_str());
    let target = if has_scheme(location) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        let (path, query) = match location.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (location, None),
        };
        let (path, query) = if path.is_empty() {
            (base.path().to_owned(), query.or(base.query()))
        } else if path.starts_with('/') {
            (without_dots(path), query)
        } else {
            let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            (without_dots(&format!("{directory}/{path}")), query)
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}://{authority}{path}{query}")
    };
    let target: Uri = target.parse().ok()?;
    let http = matches!(target.scheme_str(), Some("http" | "https"));
    (http && !target.host().unwrap_or_default().is_empty()).then_some(target)
}

fn has_scheme(location: &str) -> bool {
    let scheme =
        location.split(['/', '?']).next().unwrap_or_default().split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Resolves `.` and `..` in an absolute path.
fn without_dots(path: &str) -> String {
    let mut segments = Vec::new();
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let last = rest.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                // A path that ends in dots is a directory.
                if last {
                    segments.push("");
                }
            }
            _ => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Whether following `next` would end encryption. Anyone on the network could then answer.
pub(super) fn is_downgrade(from: &Uri, next: &Uri) -> bool {
    from.scheme_str() == Some("https") && next.scheme_str() != Some("https")
}

/// Whether both have the same scheme, host and port. The configured headers are sent nowhere else: any of them may be a
/// credential, and another port may be another user's server. Go's client sends them to every host, except those it knows
/// to be credentials.
pub(super) fn is_same_origin(first: &Uri, next: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        (uri.scheme_str().map(str::to_ascii_lowercase), host, uri.port_u16().unwrap_or(default))
    };
    origin(first) == origin(next)
}

#[cfg(test)]
mod tests {
    use hyper::Uri;

    use super::{is_downgrade, is_same_origin, resolve};

    #[test]
    fn locations_are_resolved_as_in_browsers() {
        let base = Uri::from_static("http://a.example:8080/b/c/d?q");
        for (location, target) in [
            ("https://z/y", Some("https://z/y")),
            ("//z/y?x", Some("http://z/y?x")),
            ("/g", Some("http://a.example:8080/g")),
            ("g", Some("http://a.example:8080/b/c/g")),
            ("./g", Some("http://a.example:8080/b/c/g")),
            ("g/", Some("http://a.example:8080/b/c/g/")),
            ("../g?x=1", Some("http://a.example:8080/b/g?x=1")),
            ("../../../g", Some("http://a.example:8080/g")),
            ("..", Some("http://a.example:8080/b/")),
            (".", Some("http://a.example:8080/b/c/")),
            ("?y", Some("http://a.example:8080/b/c/d?y")),
            ("", Some("http://a.example:8080/b/c/d?q")),
            ("#s", Some("http://a.example:8080/b/c/d?q")),
            ("g#s/../x", Some("http://a.example:8080/b/c/g")),
            ("a:b/../c", None),
            ("g;x=1/../y:z", Some("http://a.example:8080/b/c/y:z")),
            ("ftp://z/y", None),
            ("file:///etc/passwd", None),
            ("javascript:1", None),
            ("http://", None),
            ("//", None),
            ("/\u{1}", None),
        ] {
            let resolved = resolve(&base, location).map(|uri| uri.to_string());
            assert_eq!(resolved.as_deref(), target, "{location:?}");
        }
    }

    #[test]
    fn only_scheme_host_and_port_together_are_the_same_and_encryption_does_not_end() {
        for (first, next, same, downgrade) in [
            ("https://a.example/", "https://a.example:443/x", true, false),
            ("https://a.example/", "https://a.example:444/x", false, false),
            ("https://a.example/", "https://A.Example/x", true, false),
            ("https://a.example/", "https://b.a.example/", false, false),
            ("https://a.example/", "https://ba.example/", false, false),
            ("https://a.example/", "https://example/", false, false),
            ("https://a.example/", "http://a.example/", false, true),
            ("https://a.example/", "http://b.example/", false, true),
            ("http://a.example/", "https://a.example/", false, false),
            ("http://a.example/", "http://A.example:80/", true, false),
            ("http://a.example/", "http://b.example/", false, false),
            ("http://127.0.0.1/", "http://127.0.0.1:8080/", false, false),
            ("http://0.0.1/", "http://127.0.0.1/", false, false),
        ] {
            let (first, next): (Uri, Uri) = (first.parse().expect("a URL"), next.parse().expect("a URL"));
            assert_eq!(is_same_origin(&first, &next), same, "{first} to {next}");
            assert_eq!(is_downgrade(&first, &next), downgrade, "{first} to {next}");
        }
    }
}
