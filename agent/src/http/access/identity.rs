//! A client's identity, read from its certificate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// A client, in the terms of a Kubernetes user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The user name. From a certificate: its common name.
    pub(crate) name: String,
    /// The certificate's alternative names: host names, addresses, URIs.
    pub(crate) alternative_names: Vec<String>,
    /// The user's groups. From a certificate: its organizations.
    pub(crate) groups: Vec<String>,
    pub(crate) uid: String,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The holder of this certificate (DER). `None` if it cannot be parsed.
    ///
    /// Kubelet: `CommonNameUserConversion` (`k8s.io/apiserver/pkg/authentication/request/x509`).
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let alternative = certificate.subject_alternative_name().ok()?;
        let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
        Some(Self {
            name: name.unwrap_or_default().to_owned(),
            groups: groups.map(str::to_owned).collect(),
            alternative_names: alternative.filter_map(text).collect(),
            ..Self::default()
        })
    }

    /// The name and the alternative names, without empty ones.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = std::iter::once(&self.name).chain(&self.alternative_names);
        names.map(String::as_str).filter(|name| !name.is_empty())
    }
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) | GeneralName::RFC822Name(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn a_certificate_gives_its_common_name_organizations_and_alternative_names() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a.example".to_owned(), "10.0.0.7".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://example/x".try_into().unwrap()));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "prometheus");
        params.distinguished_name.push(DnType::OrganizationName, "system:monitoring");
        let certificate = params.self_signed(&key).unwrap();
        let identity = Identity::of_certificate(certificate.der()).unwrap();
        assert_eq!(
            (&*identity.name, &*identity.groups),
            ("prometheus", &["system:monitoring".to_owned()][..])
        );
        let names: Vec<_> = identity.names().collect();
        assert_eq!(names, ["prometheus", "a.example", "10.0.0.7", "spiffe://example/x"]);
        assert_eq!(Identity::of_certificate(b"no certificate"), None);
    }
}
