//! Answers on standard output: a table for people, JSON or YAML for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::Output;
use crate::api::table::{self, escaped, sanitized};
use crate::config::failure::Failure;

/// Prints a response. `table` is the human-readable form.
pub(crate) fn answer<T: Serialize>(
    output: Output,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    print(&text(output, value, table)?)
}

/// The text of a response.
pub(crate) fn text<T: Serialize>(
    output: Output,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    Ok(match output {
        Output::Table | Output::Wide | Output::Name => table(value),
        Output::Json => {
            serde_json::to_string_pretty(value).map_err(|error| Failure::unable("JSON", error))? + "\n"
        }
        Output::Yaml => yaml(value)?,
    })
}

/// Prints one batch of items after the other, in one form.
pub(crate) struct Printer {
    pub(crate) output: Output,
    /// The widths of the table's columns so far. They only grow. Empty before the headings.
    widths: Vec<usize>,
    /// The columns of the terminal. `None`: whole lines.
    terminal: Option<usize>,
}

impl Printer {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, widths: Vec::new(), terminal: None }
    }

    /// Cuts the lines of a table that are longer than those of the terminal. A pipe gets whole lines.
    pub(crate) fn within_the_terminal(mut self) -> Self {
        let size = if io::stdout().is_terminal() { crossterm::terminal::size().ok() } else { None };
        self.terminal = size.map(|(columns, _)| columns.into());
        self
    }

    /// Formats these items. A table leaves out the items without a row. The headings precede its first row.
    pub(crate) fn text<'a, T: Serialize + 'a>(
        &mut self,
        items: impl Iterator<Item = &'a T>,
        headings: Option<Vec<String>>,
        row: impl Fn(&T) -> Option<Vec<String>>,
    ) -> Result<String, Failure> {
        let json = |item| serde_json::to_string(item).map_err(|error| Failure::unable("JSON", error));
        match self.output {
            Output::Json => items.map(|item| Ok(json(item)? + "\n")).collect(),
            Output::Yaml => items.map(|item| Ok("---\n".to_owned() + &yaml(item)?)).collect(),
            Output::Table | Output::Wide | Output::Name => {
                let rows: Vec<_> = items.filter_map(row).collect();
                let headings = headings.filter(|_| self.widths.is_empty() && !rows.is_empty());
                let text =
                    table::lines(&mut self.widths, &headings.into_iter().chain(rows).collect::<Vec<_>>());
                Ok(match self.terminal {
                    Some(columns) => table::cut(&text, columns),
                    None => text,
                })
            }
        }
    }
}

/// As YAML; as JSON, which is YAML as well, if the text has characters that only a quoted string can escape.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(value).map_err(|error| Failure::unable("YAML", error))?;
    if safe(&text) == text {
        return Ok(text);
    }
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::unable("YAML", error))?;
    Ok(safe(&json).into_owned() + "\n")
}

/// The text with the characters [`escaped`] that a terminal may interpret, except tabs and ends of lines.
fn safe(text: &str) -> Cow<'_, str> {
    // Almost all text is like this.
    let is_plain = text.bytes().fold(true, |is, byte| is & matches!(byte, b' '..=b'~' | b'\n' | b'\t'));
    if is_plain { text.into() } else { escaped(text, &['\n', '\t']) }
}

/// Prints to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes()).map(|_| ())
}

/// As [`print`], for bytes. Escapes what a terminal may interpret; JSON stays valid. `false`: the pipe is closed.
pub(crate) fn write(bytes: &[u8]) -> Result<bool, Failure> {
    let text = String::from_utf8_lossy(bytes);
    let mut out = io::stdout().lock();
    match out.write_all(safe(&text).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unable("standard output", error)),
    }
}

/// Prints a line on standard error, in which nothing controls a terminal. That nobody reads it is no reason to end.
pub(crate) fn note(line: &str) {
    // `eprintln!` panics if the pipe is closed.
    let _ = writeln!(io::stderr(), "{}", sanitized(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_place_from_one_batch_to_the_next() {
        let mut printer = Printer::new(Output::Table);
        let mut table = |names: &[&str]| {
            let headings = ["NAME", "UID"].map(str::to_owned).into();
            let row = |name: &&str| (*name != "left out").then(|| vec![(*name).to_owned(), "u".to_owned()]);
            printer.text(names.iter(), Some(headings), row).unwrap()
        };
        assert_eq!(table(&["left out"]), "");
        assert_eq!(table(&["a long name", "left out"]), "NAME         UID\na long name  u\n");
        assert_eq!(table(&["web"]), "web          u\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn no_output_controls_the_terminal_and_each_keeps_its_meaning() {
        let value = ["a\tb\n\u{1b}[2J\u{85}\u{202e}é"];
        let is_safe = |text: &str| text.chars().all(|c| matches!(c, '\n' | '\t' | ' '..='~' | 'é'));
        let yaml = yaml(&value).unwrap();
        assert!(is_safe(&yaml), "{yaml:?}");
        assert_eq!(serde_saphyr::from_str::<[String; 1]>(&yaml).unwrap(), value);
        let json = serde_json::to_string_pretty(&value).unwrap();
        assert!(is_safe(&safe(&json)), "{json:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&safe(&json)).unwrap(), value);
        assert_eq!(super::yaml(&["é"]).unwrap(), "- é\n");
    }
}
