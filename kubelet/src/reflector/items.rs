//! Splits the answer to a list into its objects while it arrives, so that only one of them is in memory as text.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::failure::{Failure, FailureKind};
use super::split::{Each, LARGEST, Split, too_large};

/// The part of a list that has arrived.
#[derive(Default)]
pub(super) struct Items {
    /// Everything before the items, with the bracket.
    envelope: Vec<u8>,
    /// What follows it, without the items that were passed on.
    rest: Vec<u8>,
    /// An item that is not complete is looked at again once this much has arrived. Otherwise, each part of a large item
    /// would cause a look at all of it.
    enough: usize,
    /// The items have ended.
    is_over: bool,
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

impl Split for Items {
    fn take(&mut self, bytes: &[u8], each: Each<'_>) -> Result<(), Failure> {
        self.rest.extend_from_slice(bytes);
        if self.envelope.is_empty()
            && let Some(start) = start(&self.rest)
        {
            self.envelope = self.rest.drain(..start).collect();
        }
        let is_before = self.envelope.is_empty();
        let mut taken = 0;
        while !is_before && !self.is_over && self.rest.len() - taken >= self.enough {
            let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
            taken += self.rest[taken..].iter().take_while(|byte| is_between(byte)).count();
            let rest = &self.rest[taken..];
            self.is_over = rest.starts_with(b"]");
            // It does not look at the bytes of a text: one that is not UTF-8 is a problem of its object alone.
            let mut items = Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
            match items.next() {
                _ if self.is_over => {}
                None => break,
                Some(Err(error)) if error.is_eof() => {
                    self.enough = (rest.len() + rest.len() / 2 + 1).min(LARGEST);
                    break;
                }
                Some(Err(_)) => return Err(unreadable()),
                Some(Ok(_)) => {
                    let length = items.byte_offset();
                    each(&rest[..length])?;
                    taken += length;
                    self.enough = 0;
                }
            }
        }
        self.rest.drain(..taken);
        if self.rest.len() > LARGEST {
            return Err(too_large());
        }
        Ok(())
    }

    fn end(&mut self, each: Each<'_>) -> Result<u64, Failure> {
        self.enough = 0;
        self.take(b"", each)?;
        self.envelope.append(&mut self.rest);
        let envelope: Envelope = serde_json::from_slice(&self.envelope).map_err(|_| unreadable())?;
        // As 0, one that is not a number lets the watch send all objects.
        Ok(envelope.metadata.version.parse().unwrap_or_default())
    }
}

/// The length of what comes before the first item, if it has arrived.
fn start(text: &[u8]) -> Option<usize> {
    let is_start = |end: &usize| {
        let before = &text[..end - 1];
        let key = before.trim_ascii_end().strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        // The key of the list itself: not one inside of another field.
        key.ends_with(b"\"items\"")
            && serde_json::from_slice::<IgnoredAny>(&[before, b"null}"].concat()).is_ok()
    };
    (1..=text.len()).filter(|end| text[end - 1] == b'[').find(is_start)
}

fn unreadable() -> Failure {
    // Without the decoder's message: it may quote a value.
    Failure::new(FailureKind::Doubt, "the answer cannot be decoded: it is not a list")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: impl AsRef<[u8]>, size: usize) -> Result<(Vec<Vec<u8>>, u64), Failure> {
        let mut items = Items::default();
        let mut found = Vec::new();
        let mut each = |item: &[u8]| {
            found.push(item.to_vec());
            Ok(())
        };
        for part in text.as_ref().chunks(size) {
            items.take(part, &mut each)?;
        }
        let version = items.end(&mut each)?;
        Ok((found, version))
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
                    (found.as_slice(), version),
                    (&items.map(|item| item.as_bytes().to_vec())[..], 7),
                    "{size}: {text}"
                );
            }
        }
    }

    #[test]
    fn objects_up_to_the_limit_and_bytes_that_are_no_text_are_passed_on() {
        for length in [LARGEST / 3 * 2, LARGEST - 1, LARGEST] {
            let large = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
            let text = format!("{{\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":[{large},{{}}]}}");
            for size in [100_000, text.len()] {
                let (found, _) = split(&text, size).unwrap();
                assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [length, 2], "{size}");
            }
        }
        let too_large = format!("{{\"items\":[{{\"a\":\"{}\"}}]}}", "x".repeat(LARGEST + 200_000));
        assert_eq!(split(too_large, 100_000).err().unwrap().message, "an object of the list is too large");
        let text = b"{\"items\":[{\"a\":\"\xff\"},{}],\"metadata\":{\"resourceVersion\":\"7\"}}";
        assert_eq!(split(text, 5).unwrap().0, [&b"{\"a\":\"\xff\"}"[..], b"{}"]);
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
