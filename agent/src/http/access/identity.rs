//! A client's identity, read from its certificate.

use std::collections::BTreeMap;

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::api::client::Named;

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
    /// The holder of this certificate (DER). `None` if it cannot be parsed.
    ///
    /// Kubelet: `CommonNameUserConversion` (`k8s.io/apiserver/pkg/authentication/request/x509`).
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.unwrap_or_default().to_owned();
        let groups =
            subject.iter_organization().filter_map(|one| Some(one.as_str().ok()?.to_owned())).collect();
        Some(Self { name, groups, ..Self::default() })
    }

    /// Its name for the limits of clients. A certificate may have none.
    pub(crate) fn named(&self) -> Option<Named> {
        Some(&*self.name).filter(|name| !name.is_empty()).map(|name| Named(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_certificate_gives_its_common_name_and_organizations() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "prometheus");
        params.distinguished_name.push(DnType::OrganizationName, "system:monitoring");
        let certificate = params.self_signed(&key).unwrap();
        let identity = Identity::of_certificate(certificate.der()).unwrap();
        assert_eq!(
            (&*identity.name, &*identity.groups),
            ("prometheus", &["system:monitoring".to_owned()][..])
        );
        assert_eq!(Identity::of_certificate(b"no certificate"), None);
    }
}
