//! Error texts: shortening, error chains, and decoder messages without the values they quote.

#[cfg(feature = "memory")]
mod path;

use std::error::Error;

#[cfg(feature = "memory")]
use serde::Deserialize;

/// Declares the kinds of an error, each with its word.
macro_rules! kinds {
    ($(#[$of_kinds:meta])* pub enum $name:ident { $($(#[$of_kind:meta])* $kind:ident = $word:literal,)* }) => {
        $(#[$of_kinds])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name { $($(#[$of_kind])* $kind,)* }

        impl $name {
            /// A short word for the kind, for metric labels.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }
        }
    };
}

/// Prints these fields of a type, whose others have no `Debug` or hold too much.
macro_rules! impl_debug {
    ($name:ident $(, $field:ident)*) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

/// The message about a file, a pod or another object on which this program panics.
pub(crate) const PANICKED: &str = "this program has a defect: it panicked on this (see the log)";

/// How many bytes of the API server's reason for a refusal are shown. An admission plugin may have a long one.
#[cfg(feature = "api-server")]
pub(crate) const LONGEST_REFUSAL: usize = 1024;

/// `text`, cut after 128 bytes: an error about a UID of ten megabytes must stay short.
pub(crate) fn shorten(text: &str) -> String {
    shorten_to(text, 128)
}

/// `text`, cut at a character boundary after at most `most` bytes. A cut text ends in `…`.
pub(crate) fn shorten_to(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

/// An error and its chain of sources.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    joined(error, |_| None)
}

/// Like `causes`, for kube errors. Only the API server's own message is shown, and no more than its beginning if it is long: kube
/// repeats it and then appends the whole object.
#[cfg(feature = "api-server")]
#[must_use]
pub fn api_causes(error: &(dyn Error + 'static)) -> String {
    joined(error, |error| {
        match error.downcast_ref()? {
            // kube's wrapper can be nested: "ServiceError: ServiceError: ".
            kube::Error::Service(error) => Some(api_causes(&**error)),
            kube::Error::Api(status) => Some(refusal(status)),
            kube::Error::SerdeError(error) => {
                Some(format!("the answer cannot be decoded: {}", without_found(error)))
            }
            _ => None,
        }
    })
}

/// The API server's refusal. Something else may have answered at its address, with a page of any length and any characters.
#[cfg(feature = "api-server")]
fn refusal(status: &kube::core::Status) -> String {
    /// What kube gives as the reason if the answer is no `Status`. The message is then the whole answer.
    const NO_STATUS: &str = "Failed to parse error data";
    let kube::core::Status { code, message, reason, .. } = status;
    match &**message {
        "" => format!("the API server answers {code}"),
        // Printed like a string of Rust, which escapes control characters.
        page if reason == NO_STATUS => format!("the API server answers {code}: {:?}", shorten(page)),
        message => format!("{} ({code})", shorten_to(message, LONGEST_REFUSAL)),
    }
}

/// A decoder's message without the value it found, which may be a password.
#[cfg(feature = "memory")]
fn without_found(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // Messages about syntax errors and missing fields quote nothing.
    if !error.is_data() || text.starts_with("missing field ") || text.starts_with("duplicate field ") {
        return text;
    }
    // serde's own messages: first what was found, then what was expected.
    let found = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant "];
    if found.iter().any(|found| text.starts_with(found)) {
        // Split at the last `, expected `: the value found may contain these words.
        return match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {}", plain(expected)),
            None => "is not a valid value".to_owned(),
        };
    }
    // A type's own message may quote anything. The decoder appends the position.
    let place = text.rfind(" at line ").map(|at| &text[at..]).unwrap_or_default();
    format!("is not a valid value{place}")
}

/// Decodes an object. On failure, the field, which is empty for the whole object, and a message, which quotes no value.
///
/// From a string, as in kube and everywhere else: for each other type of input, the program would have one more decoder of each
/// type, and that of a pod takes half a megabyte.
#[cfg(feature = "memory")]
pub(crate) fn decode<'de, K: Deserialize<'de>>(json: &'de str) -> Result<K, (String, String)> {
    serde_json::from_str(json).map_err(|error| {
        let field = path::of_error(json.as_bytes(), &error);
        let text = without_found(&error);
        // Drop the position, which is relative to the object.
        let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
        (field, format!("cannot be decoded: {text}"))
    })
}

/// Rust's and serde's names for what was expected, in words.
fn plain(expected: &str) -> String {
    let (what, place) = expected.find(" at line ").map_or((expected, ""), |at| expected.split_at(at));
    let what = match what {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a mapping",
        // A Rust type.
        _ if what.starts_with("struct ") || what.starts_with(|first: char| first.is_ascii_uppercase()) => {
            "a mapping"
        }
        _ => what,
    };
    format!("{what}{place}")
}

/// What is wrong with a YAML file, without quoting it: it may hold secrets.
#[cfg(any(feature = "api-server", feature = "manifest", feature = "records"))]
pub(crate) fn yaml_problem(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error as E;
    use serde_saphyr::{MessageFormatter, UserMessageFormatter};
    match error.without_snippet() {
        E::SerdeInvalidType { expected, .. } => format!("expected {}", plain(expected)),
        E::DuplicateMappingKey { .. } => "a key is repeated".to_owned(),
        // These messages may quote anything.
        E::Message { .. }
        | E::AliasError { .. }
        | E::NonFiniteFloat { .. }
        | E::QuotingRequired { .. }
        | E::SerdeInvalidValue { .. }
        | E::SerdeInvalidLength { .. }
        | E::SerdeUnknownVariant { .. }
        | E::SerdeVariantId { .. }
        | E::TaggedEnumMismatch { .. } => "is not a valid value".to_owned(),
        error => {
            let message = UserMessageFormatter.format_message(error);
            message.replace("sequence start", "a list").replace("mapping start", "a mapping")
        }
    }
}

/// Joins the parts of an error chain without repetition: many errors repeat their source. A part that
/// `better` can reword ends the chain.
fn joined(
    error: &(dyn Error + 'static),
    better: impl Fn(&(dyn Error + 'static)) -> Option<String>,
) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        if let Some(better) = better(error) {
            return text.replace(&part, &better);
        }
        next = error.source();
    }
    text
}

#[cfg(all(test, feature = "manifest"))]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only its errors are of interest")]
    struct Typed {
        number: Option<i32>,
        list: Option<Vec<String>>,
        time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        One,
    }

    #[test]
    fn decoder_messages_are_kept_without_the_value_found() {
        for (json, expected) in [
            (r#"{"number": "hunter2"}"#, "expected a whole number at line 1"),
            (r#"{"list": "hunter2, expected nothing"}"#, "expected a list at line 1"),
            (r#"{"time": "hunter2"}"#, "is not a valid value at line 1"),
            (r#"{"kind": "hunter2"}"#, "expected `One` at line 1"),
            (r#"{"number": 1, "hunter2"#, "EOF while parsing a string"),
            (r#"{"number": hunter2"#, "expected value at line 1"),
        ] {
            let error = serde_json::from_str::<Typed>(json).unwrap_err();
            let said = without_found(&error);
            assert!(said.starts_with(expected), "{error}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        for (yaml, expected) in [
            ("number: hunter2", "invalid"),
            ("list: hunter2", "expected a list"),
            ("hunter2", "expected a mapping"),
            ("time: hunter2", "is not a valid value"),
            ("kind: hunter2", "is not a valid value"),
            ("number: 1\nhunter2: 1\nhunter2: 2", "a key is repeated"),
            ("list: [hunter2", ""),
            ("list: *hunter2", ""),
            ("list: \"hunter2", ""),
            ("hunter2: a: b", ""),
        ] {
            let said = yaml_problem(&serde_saphyr::from_str::<Typed>(yaml).unwrap_err());
            assert!(said.starts_with(expected), "{yaml}: {said}");
            assert!(!said.contains("hunter2"), "{yaml}: {said}");
        }
    }

    #[cfg(feature = "api-server")]
    #[test]
    fn kubes_wrapper_of_an_error_is_left_out() {
        let wrapped = |error: Box<dyn Error + Send + Sync>| kube::Error::Service(error);
        let error = wrapped(Box::new(wrapped("connection refused".into())));
        assert_eq!(api_causes(&error), "connection refused");
    }

    /// Something other than an API server may answer: a proxy, a login page.
    #[cfg(feature = "api-server")]
    #[test]
    fn what_a_server_says_is_shortened_and_without_control_characters_if_it_is_no_status() {
        use kube::core::Status;

        // As kube does with a body that is no `Status`.
        let page = format!("<html>\r\n\u{1b}[2J\u{202e}{}", "x".repeat(1_000_000));
        let status = Status::failure(&page, "Failed to parse error data").with_code(503);
        let said = api_causes(&kube::Error::Api(status.boxed()));
        assert!(said.starts_with(r#"the API server answers 503: "<html>\r\n\u{1b}[2J"#), "{said}");
        assert!(said.len() < 300 && !said.contains(|c: char| c.is_control() || c == '\u{202e}'), "{said}");
        let empty = Status::failure("", "Failed to parse error data").with_code(502);
        assert_eq!(api_causes(&kube::Error::Api(empty.boxed())), "the API server answers 502");

        let denied = Status::failure(&"ä".repeat(1_000_000), "Forbidden").with_code(403);
        let said = api_causes(&kube::Error::Api(denied.boxed()));
        assert_eq!(said, format!("{}… (403)", "ä".repeat(512)));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_boundary() {
        assert_eq!(shorten("short"), "short");
        let cut = shorten(&"ä".repeat(1_000_000));
        assert_eq!(cut, format!("{}…", "ä".repeat(64)));
    }
}
