//! Lines for the terminal: safe to print and of known width.
//!
//! This module knows columns and colours. Text reaches the terminal only through a [`Span`], and a span has no control
//! characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::api::table::harmless;

/// The style of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    /// The selected view.
    Chosen,
}

/// A text with one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    text: String,
    tone: Tone,
}

impl Span {
    pub(super) fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: harmless(text.as_ref()).into_owned(), tone }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn tone(&self) -> Tone {
        self.tone
    }
}

/// Spans side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<Span>);

impl Line {
    /// The line with another span appended.
    pub(super) fn and(mut self, text: impl AsRef<str>, tone: Tone) -> Self {
        self.0.push(Span::new(text, tone));
        self
    }

    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|span| span.text.width()).sum()
    }

    /// The line with `end` right-aligned to `width` columns. Drops `end` if it does not fit.
    pub(super) fn with_end(mut self, end: Self, width: usize) -> Self {
        let room = width.saturating_sub(self.width());
        if let Some(between) = room.checked_sub(end.width()).filter(|between| *between > 1) {
            self.0.push(Span::new(" ".repeat(between), Tone::Plain));
            self.0.extend(end.0);
        }
        self
    }

    /// The part of the line that fits.
    pub(super) fn within(self, width: usize) -> Self {
        let mut left = width;
        let mut line = Self::default();
        for span in self.0 {
            let text = clipped(&span.text, left);
            let is_whole = text.len() == span.text.len();
            left -= text.width().min(left);
            line.0.push(Span { text, tone: span.tone });
            if !is_whole {
                break;
            }
        }
        line
    }

    pub(super) fn spans(&self) -> &[Span] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn plain(&self) -> String {
        self.0.iter().map(Span::text).collect()
    }
}

/// The number of columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The part of the text that fits into `width` columns. An ellipsis marks a cut.
pub(super) fn clipped(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut clipped = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else { break };
        left = rest;
        clipped.push(c);
    }
    if width > 0 {
        clipped.push('…');
    }
    clipped
}

/// A text cut or padded to exactly `width` columns.
pub(super) fn fitted(text: &str, width: usize) -> String {
    let mut text = clipped(text, width);
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
    text
}

/// A text wrapped to at most `width` columns, between words where possible.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let space = usize::from(used > 0);
        if used > 0 && used + space + word.width() > width {
            lines.push(String::new());
            used = 0;
        }
        for (i, c) in word.chars().enumerate() {
            let wide = c.width().unwrap_or(0);
            if used + wide + usize::from(i == 0 && used > 0) > width {
                lines.push(String::new());
                used = 0;
            }
            let Some(line) = lines.last_mut() else { break };
            if i == 0 && used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push(c);
            used += wide;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_contains_terminal_control_characters() {
        let line = Line::default().and("a\x1b]0;title\x07\u{9b}31m\r\n\u{202e}b", Tone::Plain);
        assert_eq!(line.plain(), "a\u{fffd}]0;title\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}b");
    }

    #[test]
    fn a_text_is_clipped_by_columns_and_not_by_characters() {
        for (text, columns, expected) in [
            ("pods", 4, "pods"),
            ("pods", 3, "po…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("pods", 1, "…"),
            ("pods", 0, ""),
        ] {
            assert_eq!(clipped(text, columns), expected, "{text} in {columns}");
            assert_eq!(width(&fitted(text, columns)), columns, "{text} in {columns}");
        }
        let line = Line::default().and("ab", Tone::Strong).and("cd", Tone::Plain).and("ef", Tone::Plain);
        assert_eq!(line.clone().within(5).plain(), "abcd…");
        assert_eq!(line.clone().within(3).plain(), "ab…");
        assert_eq!(line.within(6).plain(), "abcdef");
    }

    #[test]
    fn a_text_is_broken_between_words_and_a_word_only_where_it_must() {
        assert_eq!(wrapped("three small words", 11), ["three small", "words"]);
        assert_eq!(wrapped("a-very-long-word x", 8), ["a-very-l", "ong-word", "x"]);
        assert_eq!(wrapped("", 8), [""]);
    }
}
