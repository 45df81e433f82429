//! Certificate and key files. Errors name the setting and the file.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file: four times the size of one with hundreds of authorities.
const LARGEST: u64 = 1 << 20;

/// Without the error, which quotes the line. That may be part of a key.
const NO_PEM: &str = "is not valid PEM";

/// A file's setting, path and content.
pub(crate) struct Pem<'a> {
    setting: &'a str,
    path: &'a Path,
    bytes: Vec<u8>,
}

impl<'a> Pem<'a> {
    pub(crate) fn read(setting: &'a str, path: &'a Path) -> Result<Self, String> {
        let mut pem = Self { setting, path, bytes: Vec::new() };
        let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut pem.bytes));
        match read {
            Err(error) => Err(pem.wrong(format_args!("cannot be read: {error}"))),
            Ok(length) if length as u64 > LARGEST => Err(pem.wrong("is larger than 1 MiB")),
            Ok(_) => Ok(pem),
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A certificate, followed by the intermediates up to an authority.
    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let chain = chain.map_err(|_| self.wrong(NO_PEM))?;
        if chain.is_empty() { Err(self.wrong("holds no certificate")) } else { Ok(chain) }
    }

    /// The first private key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.wrong("holds no private key"),
            _ => self.wrong(NO_PEM),
        })
    }

    /// The trusted authorities.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, String> {
        let mut authorities = RootCertStore::empty();
        for certificate in self.chain()? {
            let added = authorities.add(certificate);
            added.map_err(|error| {
                self.wrong(format_args!("holds a certificate that cannot be used as an authority: {error}"))
            })?;
        }
        Ok(authorities)
    }

    /// An error in this file.
    pub(crate) fn wrong(&self, why: impl Display) -> String {
        format!("{} {}: {why}", self.setting, self.path.display())
    }
}
