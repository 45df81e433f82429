//! Answers on standard output: a table for people, JSON or YAML for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::Output;
use crate::config::failure::Failure;

/// Prints a response. `table` is the human-readable form.
pub(crate) fn answer<T: Serialize>(
    output: Output,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let text = match output {
        Output::Table => table(value),
        Output::Json => {
            serde_json::to_string_pretty(value).map_err(|error| Failure::unable("JSON", error))? + "\n"
        }
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| Failure::unable("YAML", error))?,
    };
    print(&text)
}

/// Prints to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes()).map(|_| ())
}

/// As [`print`], for bytes. `false`: the pipe is closed.
pub(crate) fn write(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unable("standard output", error)),
    }
}
