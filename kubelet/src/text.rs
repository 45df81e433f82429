//! Words for people who read errors: texts cut short, and what lies behind an error.
//!
//! It must not know what the texts are about.

use std::error::Error;

/// `text`, cut after 128 bytes: an error about a UID of ten megabytes must not be ten megabytes long.
pub(crate) fn shorten(text: &str) -> String {
    shorten_to(text, 128)
}

/// `text`, cut at a character after so many bytes at most; what was cut ends in `…`.
pub(crate) fn shorten_to(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

/// An error and what lies behind it.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    joined(error, |_| None)
}

/// As `causes`, of an error of kube's. What the API server says is for people; kube's account of it, which says it twice and
/// then shows the whole object, is not.
#[cfg(feature = "api-server")]
pub fn api_causes(error: &(dyn Error + 'static)) -> String {
    joined(error, |error| match error.downcast_ref()? {
        kube::Error::Api(status) => Some(format!("{} ({})", status.message, status.code)),
        _ => None,
    })
}

/// The parts of an error, each once: many say what lies behind them, too. A part with `better` words for it is the last.
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

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(shorten("short"), "short");
        let cut = shorten(&"ä".repeat(1_000_000));
        assert_eq!(cut, format!("{}…", "ä".repeat(64)));
    }
}
