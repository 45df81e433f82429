//! Compresses a response while it is written, if the client accepts gzip.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::HeaderMap;
use hyper::header::ACCEPT_ENCODING;

use super::headers::elements;

/// Bytes to collect before sending.
const CHUNK: usize = 16 * 1024;

/// Whether the client accepts gzip.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    elements(headers, ACCEPT_ENCODING)
        .any(|coding| coding.value.eq_ignore_ascii_case("gzip") && coding.quality().is_some())
}

/// The same parts, compressed, in as many parts, of which many are empty. Buffers a few dozen kilobytes.
pub(crate) struct Gzip<I> {
    parts: I,
    /// `None` after the end is written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Vec<u8>>> Gzip<I> {
    pub(crate) fn new(parts: I) -> Self {
        // The fastest level finds what repeats between pods. Higher levels take several times as long to save another
        // tenth.
        Self { parts, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<I: Iterator<Item = Vec<u8>>> Iterator for Gzip<I> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let encoder = self.encoder.as_mut()?;
        match self.parts.next() {
            Some(part) => {
                // Writing to memory does not fail.
                encoder.write_all(&part).ok()?;
                let is_enough = encoder.get_ref().len() >= CHUNK;
                Some(if is_enough { std::mem::take(encoder.get_mut()) } else { Vec::new() })
            }
            None => self.encoder.take()?.finish().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn compressed_data_of_any_length_is_decompressed_unchanged() {
        for parts in [0, 1, 5_000] {
            let parts: Vec<Vec<u8>> = (0..parts)
                .map(|i: u32| format!("{}-{:x};", i, i.wrapping_mul(2_654_435_761)).repeat(20).into_bytes())
                .collect();
            let squeezed: Vec<Vec<u8>> = Gzip::new(parts.clone().into_iter()).collect();
            assert!(squeezed.iter().all(|part| part.len() < 4 * CHUNK), "in parts of some size");
            let mut whole = Vec::new();
            GzDecoder::new(&*squeezed.concat()).read_to_end(&mut whole).unwrap();
            assert_eq!(whole, parts.concat());
        }
    }

    #[test]
    fn gzip_is_used_only_on_request() {
        for (header, accepted) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5, br", true),
            ("GZIP ; q=1.0", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("x-gzip-not", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, header.parse().unwrap());
            assert_eq!(is_accepted(&headers), accepted, "{header}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
