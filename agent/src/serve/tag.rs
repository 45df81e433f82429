//! `ETag`s: the generation that last changed the pods of a response, so that clients need not fetch it again.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::IF_NONE_MATCH;

use super::pod_list::Form;
use crate::headers::elements;

/// Makes the tags of one run of the agent. Each run counts generations from the start.
#[derive(Clone, Debug)]
pub(crate) struct Tags(u128);

impl Tags {
    pub(crate) fn new() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
    }

    /// Weak, because compressed and uncompressed responses share a tag. Other forms have their own tags.
    pub(super) fn tag(&self, generation: u64, form: Form) -> String {
        let form = if form == Form::Table { "-table" } else { "" };
        format!("W/\"{:x}-{generation}{form}\"", self.0)
    }
}

/// Whether the client already has the response with this tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let tag = tag.trim_start_matches("W/");
    elements(headers, IF_NONE_MATCH)
        .any(|known| known.value == "*" || known.value.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_identifies_a_generation_and_a_run() {
        let (tags, before) = (Tags(7), Tags(6));
        for (header, known) in [
            (tags.tag(3, Form::Whole), true),
            (format!("\"other\", {}", tags.tag(3, Form::Whole).trim_start_matches("W/")), true),
            ("*".to_owned(), true),
            (tags.tag(4, Form::Whole), false),
            (tags.tag(3, Form::Table), false),
            (before.tag(3, Form::Whole), false),
            ("3".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, header.parse().unwrap());
            assert_eq!(is_known(&headers, &tags.tag(3, Form::Whole)), known, "{header}");
        }
        assert!(!is_known(&HeaderMap::new(), &tags.tag(3, Form::Whole)));
    }
}
