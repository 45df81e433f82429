//! Continue tokens: the version and the pod after which a list continues. The encoding is the API server's.
//!
//! A token is not a secret and grants nothing: a made-up token continues a list at that place.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::status::Refusal;

const FORMAT: &str = "meta.k8s.io/v1";
/// The latest version.
const LATEST: i64 = -1;

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    /// The version of the first page. `None`: the latest.
    pub(super) version: Option<u64>,
    /// The key of the last pod on the previous page.
    pub(super) after: String,
}

#[derive(Deserialize, Serialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Continuation {
    pub(super) fn read(token: &str) -> Result<Self, Refusal> {
        let bad = |why: &str| Refusal::bad_request(format!("continue key is not valid: {why}"));
        let json =
            URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| bad("it is not base64"))?;
        let token: Token = serde_json::from_slice(&json).map_err(|_| bad("it is not JSON of a token"))?;
        if token.v != FORMAT {
            return Err(bad("server does not recognize this encoded version"));
        }
        // Like the API server: the position after a key is the key with a zero byte appended.
        let after = token.start.strip_suffix('\0').filter(|key| !key.is_empty());
        let after = after.ok_or_else(|| bad("it names no pod"))?.to_owned();
        let version = match token.rv {
            LATEST => None,
            version => match u64::try_from(version) {
                Ok(version) if version > 0 => Some(version),
                _ => return Err(bad("incorrect encoded start resourceVersion")),
            },
        };
        Ok(Self { version, after })
    }

    pub(super) fn write(&self) -> String {
        let rv = self.version.map_or(LATEST, |version| i64::try_from(version).unwrap_or(i64::MAX));
        let token = Token { v: FORMAT.to_owned(), rv, start: format!("{}\0", self.after) };
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
            let token = Continuation { version, after: "shop/web-\u{e9}".to_owned() };
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
            r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/b"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1e30,"start":"a/b\u0000"}"#,
        ] {
            assert!(Continuation::read(&URL_SAFE_NO_PAD.encode(json)).is_err(), "{json}");
        }
    }
}
