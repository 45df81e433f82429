//! A client's identity, read from its certificate as a kubelet reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use x509_parser::asn1_rs::{Any, Tag, oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::api::client::Named;

/// The group of every authenticated client.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Which credential identified a client: the key of `extra` for it.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A client, in the terms of a Kubernetes user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The user name. From a certificate: its common name.
    pub(crate) name: String,
    /// The user's groups. From a certificate: its organizations.
    pub(crate) groups: Vec<String>,
    pub(crate) uid: String,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The holder of this certificate (DER). `None` if the certificate authenticates nobody: it cannot be parsed, has no
    /// common name, or an empty one, or has several UIDs. Of several common names the last counts.
    ///
    /// Kubelet: `CommonNameUserConversion` (`k8s.io/apiserver/pkg/authentication/request/x509`), and `FillFromRDNSequence`
    /// of Go's `crypto/x509/pkix`.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut identity = Self::default();
        let mut uids = Vec::new();
        for attribute in certificate.subject().iter_attributes() {
            let value = text(attribute.attr_value())?;
            let kind = attribute.attr_type();
            if *kind == oid!(2.5.4.3) {
                identity.name = value;
            } else if *kind == oid!(2.5.4.10) {
                identity.groups.push(value);
            } else if *kind == oid!(1.3.6.1.4.1.57683.2) {
                uids.push(value);
            }
        }
        match <[String; 1]>::try_from(uids) {
            Ok([uid]) if uid.is_empty() => return None,
            Ok([uid]) => identity.uid = uid,
            Err(none) if none.is_empty() => {}
            Err(_several) => return None,
        }
        if identity.name.is_empty() {
            return None;
        }
        let mut fingerprint = String::new();
        for byte in digest(&SHA256, der).as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(fingerprint, "{byte:02x}");
        }
        identity.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
        Some(identity.authenticated())
    }

    /// The same client as a member of the group of all authenticated clients.
    ///
    /// Kubelet: `AuthenticatedGroupAdder` (`k8s.io/apiserver/pkg/authentication/group`).
    pub(super) fn authenticated(mut self) -> Self {
        let is_anonymous = self.name == "system:anonymous";
        let has_one = self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if !is_anonymous && !has_one {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Its name for the limits of clients. A token's user may have none.
    pub(crate) fn named(&self) -> Option<Named> {
        Some(&*self.name).filter(|name| !name.is_empty()).map(|name| Named(name.into()))
    }
}

/// The text of a name's attribute. `None` if Go's parser rejects the certificate because of it.
///
/// Go: `parseASN1String` (`crypto/x509/parser.go`).
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    let is_of = |allowed: fn(u8) -> bool| bytes.iter().all(|byte| allowed(*byte));
    let latin_1 = || bytes.iter().map(|byte| char::from(*byte)).collect();
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        Tag::PrintableString => is_of(is_printable).then(latin_1),
        Tag::Ia5String => is_of(|byte| byte.is_ascii()).then(latin_1),
        Tag::NumericString => is_of(|byte| byte.is_ascii_digit() || byte == b' ').then(latin_1),
        // An old encoding that nearly is Latin-1.
        Tag::T61String => Some(latin_1()),
        Tag::BmpString if bytes.len().is_multiple_of(2) => {
            // A terminator is dropped.
            let bytes = bytes.strip_suffix(&[0, 0]).unwrap_or(bytes);
            let units: Vec<_> =
                bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            Some(String::from_utf16_lossy(&units))
        }
        _ => None,
    }
}

/// With `*` and `&`, which are not allowed, but common.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    /// A certificate with this subject. rcgen keeps one attribute of each type, so others are given as custom types and
    /// their object identifier is replaced in the encoded certificate. The signature is not checked here.
    fn certificate(subject: &[(&str, DnValue)]) -> Vec<u8> {
        let mut name = DistinguishedName::new();
        let mut placeholders = Vec::new();
        for (number, (kind, value)) in subject.iter().enumerate() {
            let (arcs, encoded): (&[u64], &[u8]) = match *kind {
                "CN" => (&[2, 5, 4, 3], &[6, 3, 0x55, 4, 3]),
                "O" => (&[2, 5, 4, 10], &[6, 3, 0x55, 4, 10]),
                "OU" => (&[2, 5, 4, 11], &[6, 3, 0x55, 4, 11]),
                "UID" => (&[1, 3, 6, 1, 4, 1, 57683, 2], &[6, 9, 0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2]),
                _ => panic!("{kind}"),
            };
            // The last number is another one: as long as the one that takes its place.
            let placeholder = 100 + u8::try_from(number).unwrap();
            let (_, before) = arcs.split_last().unwrap();
            let (last, start) = encoded.split_last().unwrap();
            placeholders.push(([start, &[placeholder]].concat(), *last));
            name.push(DnType::CustomDnType([before, &[placeholder.into()]].concat()), value.clone());
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.custom_extensions = Vec::<CustomExtension>::new();
        let mut der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for (placeholder, last) in placeholders {
            while let Some(at) = der.windows(placeholder.len()).position(|window| window == placeholder) {
                der[at + placeholder.len() - 1] = last;
            }
        }
        der
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    /// The cases of Kubernetes' own test of `CommonNameUserConversion`, and those in which parsers differ.
    #[test]
    fn a_certificate_identifies_whom_a_kubelet_takes_it_for() {
        let bmp = DnValue::BmpString("al\u{ef}ce".try_into().unwrap());
        let printable = DnValue::PrintableString("a.b:c@".replace('@', "").as_str().try_into().unwrap());
        for (what, subject, expected) in [
            ("a common name", vec![("CN", utf8("client"))], Some(("client", vec![]))),
            (
                "organizations, in their order",
                vec![
                    ("O", utf8("My Org")),
                    ("CN", utf8("client")),
                    ("O", utf8("My Org 2")),
                    ("O", utf8("My Org")),
                ],
                Some(("client", vec!["My Org", "My Org 2", "My Org"])),
            ),
            ("no common name", vec![("O", utf8("system:masters"))], None),
            ("an empty common name", vec![("CN", utf8("")), ("O", utf8("system:masters"))], None),
            (
                "two common names: the last",
                vec![("CN", utf8("alice")), ("CN", utf8("mallory"))],
                Some(("mallory", vec![])),
            ),
            ("the last is empty", vec![("CN", utf8("alice")), ("CN", utf8(""))], None),
            ("the first is empty", vec![("CN", utf8("")), ("CN", utf8("alice"))], Some(("alice", vec![]))),
            ("an empty organization", vec![("CN", utf8("a")), ("O", utf8(""))], Some(("a", vec![""]))),
            (
                "a unit is no group",
                vec![("CN", utf8("a")), ("OU", utf8("system:masters"))],
                Some(("a", vec![])),
            ),
            ("other encodings", vec![("CN", bmp), ("O", printable)], Some(("al\u{ef}ce", vec!["a.b:c"]))),
            ("no subject", vec![], None),
        ] {
            let identity = Identity::of_certificate(&certificate(&subject));
            let expected = expected.map(|(name, groups): (&str, Vec<&str>)| {
                let groups = groups.into_iter().chain([AUTHENTICATED]).map(str::to_owned).collect::<Vec<_>>();
                (name.to_owned(), groups)
            });
            assert_eq!(identity.map(|identity| (identity.name, identity.groups)), expected, "{what}");
        }
        assert_eq!(Identity::of_certificate(b"no certificate"), None);
    }

    #[test]
    fn a_certificate_has_one_uid_that_is_not_empty_or_none() {
        for (uids, expected) in [
            (&[][..], Some("")),
            (&["u-1"], Some("u-1")),
            (&[""], None),
            (&["u-1", "u-2"], None),
            (&["", "u-2"], None),
        ] {
            let uids = uids.iter().map(|uid| ("UID", utf8(uid)));
            let others = [("CN", utf8("a")), ("O", utf8("b")), ("OU", utf8("c"))];
            let subject: Vec<_> = others.into_iter().chain(uids).collect();
            let identity = Identity::of_certificate(&certificate(&subject));
            assert_eq!(identity.as_ref().map(|identity| &*identity.uid), expected, "{subject:?}");
            if let Some(Identity { name, groups, .. }) = identity {
                assert_eq!((&*name, &*groups), ("a", &["b".to_owned(), AUTHENTICATED.to_owned()][..]));
            }
        }
    }

    #[test]
    fn a_certificate_names_its_credential_as_on_a_kubelet() {
        let der = certificate(&[("CN", utf8("client"))]);
        let identity = Identity::of_certificate(&der).unwrap();
        let [id] = &*identity.extra[CREDENTIAL_ID] else { panic!("{identity:?}") };
        let hex = id.strip_prefix("X509SHA256=").unwrap();
        assert!(hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }

    #[test]
    fn an_encoding_that_go_rejects_identifies_nobody() {
        let value = |tag: Tag, bytes: &'static [u8]| text(&Any::from_tag_and_data(tag, bytes));
        for (tag, bytes, expected) in [
            (Tag::Utf8String, &b"a\xc3\xa9"[..], Some("a\u{e9}")),
            (Tag::Utf8String, b"a\xff", None),
            (Tag::PrintableString, b"a*&'", Some("a*&'")),
            (Tag::PrintableString, b"a@b", None),
            (Tag::Ia5String, b"a@b", Some("a@b")),
            (Tag::Ia5String, b"a\xe9", None),
            (Tag::NumericString, b"1 2", Some("1 2")),
            (Tag::NumericString, b"1a", None),
            (Tag::T61String, b"a\xe9", Some("a\u{e9}")),
            (Tag::BmpString, b"\0a\0b\0\0", Some("ab")),
            (Tag::BmpString, b"\0a\0", None),
            (Tag::OctetString, b"a", None),
        ] {
            assert_eq!(value(tag, bytes).as_deref(), expected, "{tag:?} {bytes:?}");
        }
    }

    /// Otherwise all clients behind one address share the limits of one.
    #[test]
    fn the_limits_of_clients_count_by_name_if_there_is_one() {
        let named = |name: &str| Identity { name: name.to_owned(), ..Identity::default() }.named();
        assert_eq!(named("alice").as_ref().map(|Named(name)| &**name), Some("alice"));
        assert!(named("").is_none());
    }

    #[test]
    fn every_authenticated_client_is_in_the_group_of_them_once() {
        let groups = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Identity { name: name.to_owned(), groups, ..Identity::default() }.authenticated().groups
        };
        assert_eq!(groups("a", &["x"]), ["x", AUTHENTICATED]);
        assert_eq!(groups("a", &[AUTHENTICATED]), [AUTHENTICATED]);
        assert_eq!(groups("a", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert_eq!(groups("system:anonymous", &[]), [""; 0]);
    }
}
