//! The parts of an image's reference: `registry/name:tag@digest`.

/// A reference to an image.
///
/// # Examples
/// ```
/// use pod_index_kubelet::records::Image;
///
/// let image = Image::parse("registry.example:5000/shop/web:1.2").expect("a reference");
/// assert_eq!((image.name, image.tag, image.digest), ("registry.example:5000/shop/web", Some("1.2"), None));
/// assert_eq!(image.tag_or_latest(), Some("1.2"));
/// assert!(Image::parse("not a reference").is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// With the registry, if the reference has one.
    pub name: &'a str,
    /// Such as `1.2`.
    pub tag: Option<&'a str>,
    /// Such as `sha256:…`.
    pub digest: Option<&'a str>,
}

/// The longest path, host and digest. No container runtime accepts a longer path, without the host, and no name of a host is
/// longer; a digest of SHA-512 has 135 bytes.
const LONGEST: usize = 255;

impl<'a> Image<'a> {
    /// `None` if it is no reference, or longer than a container runtime accepts.
    #[must_use]
    pub fn parse(reference: &'a str) -> Option<Self> {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(Some(digest).filter(|digest| is_digest(digest))?)),
            None => (reference, None),
        };
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[last..].split_once(':') {
            Some((end, tag)) => (&rest[..last + end.len()], Some(Some(tag).filter(|tag| is_tag(tag))?)),
            None => (rest, None),
        };
        is_name(name).then_some(Self { name, tag, digest })
    }

    /// The tag. Without a tag and a digest, container runtimes take `latest`.
    #[must_use]
    pub fn tag_or_latest(self) -> Option<&'a str> {
        self.tag.or(if self.digest.is_none() { Some("latest") } else { None })
    }

    /// The version of a service that runs it: the tag, the digest, or `tag@digest`.
    pub(super) fn version(self) -> Option<String> {
        match (self.tag, self.digest) {
            (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
            (tag, digest) => tag.or(digest).map(str::to_owned),
        }
    }
}

/// The image that a status names in `imageID`, with its digest. `None` if it names only a digest.
pub(super) fn repo_digest(image_id: &str) -> Option<&str> {
    let reference = image_id.strip_prefix("docker-pullable://").unwrap_or(image_id);
    Image::parse(reference)?.digest.map(|_| reference)
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').filter(|_| digest.len() <= LONGEST).is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_tag(tag: &str) -> bool {
    let may_start = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.as_bytes().first().is_some_and(may_start)
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Parts between slashes. The first may be a host, which may have upper-case letters and a port.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_end =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = part.as_bytes();
        is_end(bytes.first())
            && is_end(bytes.last())
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(byte))
    };
    let is_path = |path: &str| path.len() <= LONGEST && path.split('/').all(is_part);
    let is_host = |host: &str| {
        if host.len() > LONGEST {
            return false;
        }
        let (host, port) = host.rsplit_once(':').unwrap_or((host, "0"));
        let of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        !host.is_empty()
            && host.bytes().all(of_host)
            && !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
    };
    match name.split_once('/') {
        Some((first, rest)) => is_path(name) || is_host(first) && is_path(rest),
        None => is_path(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:430ac608abaa332de4ce45d68534447c7a206edc5e98aaff9923ecc12f8a80d9";

    #[test]
    fn a_reference_is_split_into_its_parts() {
        for (text, name, tag, digest) in [
            ("web", "web", None, None),
            ("shop/web:1", "shop/web", Some("1"), None),
            ("localhost:5000/web", "localhost:5000/web", None, None),
            ("Registry.example/web", "Registry.example/web", None, None),
            (&format!("a.example:81/web:1@{DIGEST}"), "a.example:81/web", Some("1"), Some(DIGEST)),
            (&format!("web@{DIGEST}"), "web", None, Some(DIGEST)),
        ] {
            assert_eq!(Image::parse(text), Some(Image { name, tag, digest }), "{text}");
        }
        for text in ["", "Web", "a b", "web:", "web:-x", "web@sha256:12", "a//b", "web@", ":1", "/web", "é"]
        {
            assert_eq!(Image::parse(text), None, "{text}");
        }
    }

    /// A tenant may write 480 KB there, and each record would have a copy.
    #[test]
    fn a_reference_that_is_longer_than_a_runtime_accepts_is_none() {
        let name = |length: usize| "x".repeat(length);
        let digest = |length: usize| format!("web@sha256:{}", "0".repeat(length));
        let of_host = |host: usize, path: usize| format!("{}:5000/{}", name(host), name(path));
        for good in [name(255), digest(128), of_host(44, 255), of_host(250, 255)] {
            assert!(Image::parse(&good).is_some(), "{good}");
        }
        let bad_hosts = [of_host(44, 256), of_host(256, 1), format!("{}/web", name(256))];
        for bad in [name(256), format!("{}:1", name(480_000)), digest(480_000)].into_iter().chain(bad_hosts) {
            assert_eq!(Image::parse(&bad), None, "{} bytes", bad.len());
        }
        assert_eq!(repo_digest(&digest(480_000)), None);
    }

    #[test]
    fn a_status_names_an_image_with_its_digest() {
        let named = format!("docker.io/otel/collector@{DIGEST}");
        assert_eq!(repo_digest(&named), Some(&*named));
        assert_eq!(repo_digest(&format!("docker-pullable://{named}")), Some(&*named));
        assert_eq!(repo_digest(DIGEST), None);
        assert_eq!(repo_digest(""), None);
    }
}
