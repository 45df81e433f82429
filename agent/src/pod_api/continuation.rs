//! Continue tokens: the version and the pod after which a list continues. The encoding is the API server's.
//!
//! A token is not a secret and grants nothing: a made-up token continues a list at that place.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::status::Refusal;

const FORMAT: &str = "meta.k8s.io/v1";
/// Stands for the latest version, as any negative number does.
const LATEST: i64 = -1;

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    /// The version of the first page. `None`: the latest.
    pub(super) version: Option<u64>,
    /// The page begins with the first pod that has this key or a greater one.
    pub(super) start: String,
}

#[derive(Deserialize, Serialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Continuation {
    /// A list that continues after this key.
    pub(super) fn after(version: Option<u64>, key: &str) -> Self {
        // As in the API server's tokens. No key has a zero byte, so the next one is greater.
        Self { version, start: format!("{key}\0") }
    }

    pub(super) fn read(token: &str) -> Result<Self, Refusal> {
        let bad = |why: &str| Refusal::bad_request(format!("continue key is not valid: {why}"));
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad("it is not base64"))?;
        let token: Token = serde_json::from_slice(&json).map_err(|_| bad("it is not JSON of a token"))?;
        if token.v != FORMAT {
            return Err(bad("server does not recognize this encoded version"));
        }
        let start = token.start.strip_prefix('/').unwrap_or(&token.start);
        if start.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            return Err(bad("it names no pod"));
        }
        let version = match u64::try_from(token.rv) {
            Ok(0) => return Err(bad("incorrect encoded start resourceVersion")),
            version => version.ok(),
        };
        Ok(Self { version, start: start.to_owned() })
    }

    pub(super) fn write(&self) -> String {
        let rv = self.version.map_or(LATEST, |version| i64::try_from(version).unwrap_or(i64::MAX));
        let token = Token { v: FORMAT.to_owned(), rv, start: self.start.clone() };
        // Serializing strings and a number does not fail.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_a_cut_or_foreign_one_is_refused() {
        for version in [Some(1_790_000_000_000_001), None] {
            let token = Continuation::after(version, "shop/web-\u{e9}");
            let text = token.write();
            assert_eq!(Continuation::read(&text).unwrap(), token);
            for cut in 1..text.len() {
                assert!(Continuation::read(&text[..cut]).is_err(), "{cut}");
            }
        }
        for json in [
            "{}",
            "[]",
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#,
            r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1e30,"start":"a/b\u0000"}"#,
        ] {
            assert!(Continuation::read(&URL_SAFE_NO_PAD.encode(json)).is_err(), "{json}");
        }
        // Any negative version is the latest, and a key without the zero byte is the first of the page.
        let json = r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"/a/b"}"#;
        let read = Continuation::read(&URL_SAFE_NO_PAD.encode(json)).unwrap();
        assert_eq!(read, Continuation { version: None, start: "a/b".to_owned() });
        assert!(Continuation::read(&(URL_SAFE_NO_PAD.encode(json) + "=")).is_err(), "no padding");
    }
}
