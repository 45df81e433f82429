//! Lists in request headers, for example `Accept` (RFC 9110, sections 5.6 and 12.4.2).

use axum::http::{HeaderMap, HeaderName};

/// One element of a list: a value and its parameters.
#[derive(Debug)]
pub(crate) struct Element<'a> {
    pub(crate) value: &'a str,
    parameters: &'a str,
}

/// The elements of all headers with that name, in order. Skips headers that are not text.
pub(crate) fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Element<'_>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|element| {
        let (value, parameters) = element.split_once(';').unwrap_or((element, ""));
        Element { value: value.trim(), parameters }
    })
}

impl<'a> Element<'a> {
    /// The value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut parameters = self.parameters.split(';').filter_map(|parameter| parameter.split_once('='));
        let (_, value) = parameters.find(|(known, _)| known.trim().eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// The quality: more than 0, at most 1, and 1 without `q`. `None` if the client refuses the element.
    pub(crate) fn quality(&self) -> Option<f32> {
        self.parameter("q").unwrap_or("1").parse().ok().filter(|quality| *quality > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT;

    use super::*;

    #[test]
    fn every_element_of_every_header_is_parsed_with_its_parameters() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "a;q=0.5 ; As=x, b".parse().unwrap());
        headers.append(ACCEPT, "c;q=0,d;q=x".parse().unwrap());
        let read: Vec<_> = elements(&headers, ACCEPT)
            .map(|element| (element.value, element.quality(), element.parameter("as")))
            .collect();
        assert_eq!(
            read,
            [("a", Some(0.5), Some("x")), ("b", Some(1.0), None), ("c", None, None), ("d", None, None)]
        );
        assert_eq!(elements(&HeaderMap::new(), ACCEPT).count(), 0);
    }
}
