//! Shortened texts for errors.

/// `text`, cut after 128 bytes: an error about a UID of ten megabytes must stay short.
pub(crate) fn shorten(text: &str) -> String {
    const MOST: usize = 128;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let end = (0..=MOST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn a_long_text_is_cut_at_a_character_boundary() {
        assert_eq!(shorten("short"), "short");
        let cut = shorten(&"ä".repeat(1_000_000));
        assert_eq!(cut, format!("{}…", "ä".repeat(64)));
    }
}
