//! Splits the answer to a list into its objects while it arrives, so that only one of them is in memory as text.

use serde::Deserialize;

use super::failure::{Failure, FailureKind};

/// Size limit of an object in bytes. etcd accepts at most 1.5 MiB.
pub(super) const LARGEST: usize = 8 << 20;
/// The depth of the objects in a list.
const ITEMS: usize = 2;

/// The part of a list that has arrived.
#[derive(Default)]
pub(super) struct Items {
    /// Everything but the items.
    envelope: Vec<u8>,
    /// The beginning of an item.
    item: Vec<u8>,
    /// Number of open brackets.
    depth: usize,
    /// Inside of the array of items.
    is_within: bool,
    is_in_string: bool,
    is_escaped: bool,
}

#[derive(Deserialize)]
struct Envelope {
    metadata: Metadata,
    /// A list may have none, as `null`.
    #[serde(rename = "items")]
    _items: Option<Vec<()>>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "resourceVersion")]
    version: String,
}

impl Items {
    /// Takes the next bytes, and passes on each object that they complete.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // The first byte of the current item in `bytes`, and the next byte.
        let (mut from, mut next) = (0, 0);
        while next < bytes.len() {
            // Most bytes mean nothing.
            let has_meaning = |byte: &u8| matches!(byte, b'"' | b'\\' | b'{' | b'[' | b'}' | b']');
            let rest = &bytes[next..];
            let skipped = if self.is_escaped { Some(0) } else { rest.iter().position(has_meaning) };
            let at = skipped.map_or(bytes.len() - 1, |skipped| next + skipped);
            if !(self.is_within && self.depth >= ITEMS) {
                self.envelope.extend_from_slice(&bytes[next..=at]);
            }
            let byte = bytes[at];
            next = at + 1;
            if self.is_in_string {
                self.is_in_string = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'"' => self.is_in_string = true,
                b'{' | b'[' => {
                    if self.is_within && self.depth == ITEMS {
                        from = at;
                    }
                    self.is_within |= byte == b'[' && self.depth == 1 && self.is_at_start();
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(unreadable)?;
                    if self.is_within && self.depth == ITEMS {
                        let end = &bytes[from..=at];
                        if self.item.is_empty() {
                            each(end)?;
                        } else {
                            self.item.extend_from_slice(end);
                            each(&std::mem::take(&mut self.item))?;
                        }
                    } else if self.is_within && self.depth < ITEMS {
                        self.is_within = false;
                        self.envelope.push(byte);
                    }
                }
                _ => {}
            }
        }
        if self.is_within && self.depth > ITEMS {
            self.item.extend_from_slice(&bytes[from..]);
        }
        if self.item.len() > LARGEST || self.envelope.len() > LARGEST {
            return Err(Failure::new(FailureKind::Doubt, "an object of the list is too large"));
        }
        Ok(())
    }

    /// Whether the envelope ends with `"items":[`.
    fn is_at_start(&self) -> bool {
        let text = self.envelope.strip_suffix(b"[").unwrap_or_default().trim_ascii_end();
        let text = text.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        text.ends_with(b"\"items\"")
    }

    /// The version of the list, after its end.
    pub(super) fn version(self) -> Result<String, Failure> {
        let envelope: Envelope = serde_json::from_slice(&self.envelope).map_err(|_| unreadable())?;
        Ok(envelope.metadata.version)
    }
}

fn unreadable() -> Failure {
    // Without the decoder's message: it may quote a value.
    Failure::new(FailureKind::Doubt, "the answer cannot be decoded: it is not a list")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, size: usize) -> Result<(Vec<String>, String), Failure> {
        let (mut items, mut found) = (Items::default(), Vec::new());
        for part in text.as_bytes().chunks(size) {
            items.take(part, |item| {
                found.push(String::from_utf8(item.to_vec()).unwrap());
                Ok(())
            })?;
        }
        Ok((found, items.version()?))
    }

    /// The server chooses the order of the keys, and the network where the text is split.
    #[test]
    fn a_list_is_split_into_its_items_wherever_its_text_is_split() {
        let items = [
            r#"{"metadata":{"name":"a","labels":{"items":"]}\\"}},"items":[1,{"x":2}]}"#,
            r#"{"text":"\"items\":[{","list":[[],{}]}"#,
            r#"{"text":"\"]}"}"#,
            r#"{"line":"\n"}"#,
            "{}",
        ];
        let metadata = r#""metadata":{"resourceVersion":"7","items":["x"]}"#;
        for text in [
            format!("{{\"kind\":\"PodList\",{metadata},\"items\":[{}]}}\n", items.join(",")),
            format!("{{ \"items\" : [ {} ] , {metadata} }}", items.join(" ,\n ")),
        ] {
            for size in [1, 2, 7, 64, text.len()] {
                let (found, version) = split(&text, size).unwrap();
                assert_eq!(
                    (found.as_slice(), &*version),
                    (&items.map(str::to_owned)[..], "7"),
                    "{size}: {text}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_list_or_ends_early_is_a_failure_that_quotes_nothing() {
        for text in [
            "",
            "<html>hunter2</html>",
            "[]",
            "}",
            r#"{"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":"hunter2"}"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":["hunter2"]"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":null"#,
        ] {
            let failure = split(text, 5).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Doubt);
            assert!(!failure.message.contains("hunter2"), "{}", failure.message);
        }
    }
}
