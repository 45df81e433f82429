//! Tables in Markdown, and number formats.

use std::fmt::Write;

/// The latency bench's name for the loop that only reads the clock.
pub const CONTROL: &str = "control: only the clock";

pub fn header(text: &mut String, first: &str, columns: &[impl AsRef<str>]) {
    row(text, first, columns);
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
}

pub fn row(text: &mut String, first: &str, cells: &[impl AsRef<str>]) {
    let _ = write!(text, "| {first} |");
    for cell in cells {
        let _ = write!(text, " {} |", cell.as_ref());
    }
    text.push('\n');
}

/// The words of a paragraph or of an item of a list, in lines of at most 120 characters.
pub fn wrapped(text: &str) -> String {
    let indent = if text.starts_with("- ") { "  " } else { "" };
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > 120 {
            lines += &format!("\n{indent}");
            length = indent.len();
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += width;
    }
    lines.push('\n');
    lines
}

/// Three significant digits.
pub fn short(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value.abs() < 10.0 => format!("{value:.2}"),
        _ if value.abs() < 100.0 => format!("{value:.1}"),
        _ => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is a positive figure"
            )]
            let whole = value.round().abs() as usize;
            grouped(whole)
        }
    }
}

/// `100,000` instead of `100000`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
