//! What a request asks: the parameters of its URL, and its queries.

use std::time::Duration;

use hyper::body::Bytes;
use pod_index::Time;

use super::query_text;
use crate::config::duration::go_duration;

/// Longest time to wait for a pod.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// No text contains this byte, which ends a query of a URL. Queries of a body are lines.
const END: u8 = 0xff;

/// What the URL of a request says.
pub(super) struct Parameters {
    /// The queries in the URL. A request that has them in its body has none here.
    pub(super) queries: Queries,
    pub(super) options: AnswerOptions,
    /// How long to wait for a pod that is not there yet.
    pub(super) wait: Duration,
}

/// What a request says about all its answers.
#[derive(Clone, Copy, Default)]
pub(super) struct AnswerOptions {
    /// When the events happened whose queries do not say so themselves.
    pub(super) at: Option<Time>,
    pub(super) is_detailed: bool,
    /// Whether each answer is the attributes of the pod, and nothing else.
    pub(super) only_attributes: bool,
}

impl Parameters {
    /// `of_url`: what the URL has behind its `?`.
    pub(super) fn parse(of_url: Option<&str>) -> Result<Self, String> {
        let mut queries = Vec::new();
        let mut options = AnswerOptions::default();
        let mut wait = Duration::ZERO;
        for (name, value) in form_urlencoded::parse(of_url.unwrap_or_default().as_bytes()) {
            match &*name {
                "q" => queries.extend([value.as_bytes(), &[END]].concat()),
                "at" => options.at = Some(query_text::time(&value)?),
                "details" => {
                    options.is_detailed = value.parse().map_err(|_| "details: true or false".to_owned())?;
                }
                "fields" if value == "attributes" => options.only_attributes = true,
                "fields" => return Err("fields: attributes can be asked for alone".to_owned()),
                "wait" => wait = parse_wait(&value)?,
                _ => {
                    let known = "q, at, details, fields and wait";
                    return Err(format!("unknown parameter {name:?}; the parameters are {known}"));
                }
            }
        }
        Ok(Self { queries: Queries { text: queries.into(), end: END }, options, wait })
    }
}

fn parse_wait(value: &str) -> Result<Duration, String> {
    let wait = go_duration(value).map_err(|why| format!("wait {why}"))?;
    if wait > LONGEST_WAIT { Err(format!("wait: at most {LONGEST_WAIT:?}")) } else { Ok(wait) }
}

/// Queries, in their order. A clone has those that are left.
#[derive(Clone)]
pub(super) struct Queries {
    text: Bytes,
    /// What ends each.
    end: u8,
}

impl Queries {
    /// Those of a body: one in each line.
    pub(super) fn of_body(text: Bytes) -> Self {
        Self { text, end: b'\n' }
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl Iterator for Queries {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            return None;
        }
        let end = self.text.iter().position(|byte| *byte == self.end);
        let mut query = self.text.split_to(end.map_or(self.text.len(), |end| end + 1));
        query.truncate(end.unwrap_or(query.len()));
        Some(query_text::of_json(&query).map_or(query, Bytes::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_line() {
        let lines: Vec<_> = Queries::of_body("a\n\nb".into()).collect();
        assert_eq!(lines, ["a", "", "b"]);
    }

    #[test]
    fn an_empty_query_of_a_url_counts() {
        let count = |of_url| Parameters::parse(of_url).unwrap().queries.count();
        assert_eq!([None, Some(""), Some("q="), Some("q=a&q=&q=b%0Ac")].map(count), [0, 0, 1, 3]);
    }
}
