//! Splits standard input into batches of whole lines.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::Value;

/// Longer lines are cut. No identity is this long, so the agent also rejects the cut line.
const LONGEST_LINE: u64 = 64 * 1024 + 1;
/// Bytes to read at once, and about the maximum size of a batch.
const BATCH: usize = 256 * 1024;

/// Passes whole lines to `send` as soon as they are read. Stops when the input ends or `send` returns `false`.
pub(super) fn batches(input: impl Read, mut send: impl FnMut(Vec<u8>) -> bool) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BATCH, input);
    loop {
        let mut batch = Vec::new();
        loop {
            let start = batch.len();
            input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut batch)?;
            if (batch.len() - start) as u64 == LONGEST_LINE && !batch.ends_with(b"\n") {
                input.skip_until(b'\n')?;
                batch.push(b'\n');
            }
            // Waits only for the first line.
            if !input.buffer().contains(&b'\n') {
                break;
            }
        }
        if batch.is_empty() || !send(batch) {
            return Ok(());
        }
    }
}

/// The lines as the agent reads them: `QUERY at=TIME`. The time of a line is in this field, if any; the others are the
/// query. A line without such a field has no time. A line of JSON has both by name.
pub(super) fn queries(batch: Vec<u8>, time_field: Option<u8>) -> Vec<u8> {
    let lines = || batch.split_inclusive(|byte| *byte == b'\n');
    if time_field.is_none() && !lines().any(|line| line.starts_with(b"{")) {
        return batch;
    }
    let mut queries = Vec::with_capacity(batch.len() + batch.len() / 8);
    for line in lines() {
        match (json(line), time_field) {
            (Some(query), _) => queries.extend_from_slice(query.as_bytes()),
            (None, Some(field)) => with_time(line, field, &mut queries),
            (None, None) => queries.extend_from_slice(line.trim_ascii_end()),
        }
        if line.ends_with(b"\n") {
            queries.push(b'\n');
        }
    }
    queries
}

/// The query of `{"query": …, "at": …}`. `None`: the line is no such object.
fn json(line: &[u8]) -> Option<String> {
    if !line.starts_with(b"{") {
        return None;
    }
    let line: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| match &line[name] {
        Value::String(text) => Some(text.replace('\n', " ")),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let at = text("at").map(|at| format!(" at={at}"));
    Some(text("query")? + &at.unwrap_or_default())
}

/// Appends the line with its time moved from this field to its end.
fn with_time(line: &[u8], field: u8, to: &mut Vec<u8>) {
    let fields = || line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let nth = usize::from(field) - 1;
    for (_, rest) in fields().enumerate().filter(|(at, _)| *at != nth) {
        to.extend_from_slice(rest);
        to.push(b' ');
    }
    if let Some(time) = fields().nth(nth) {
        to.extend_from_slice(b"at=");
        to.extend_from_slice(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes per read.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let (now, later) = self.0.split_at(self.1.min(self.0.len()).min(to.len()));
            to[..now.len()].copy_from_slice(now);
            self.0 = later;
            Ok(now.len())
        }
    }

    fn read(input: &[u8], at_once: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let send = |batch| {
            all.push(batch);
            true
        };
        batches(Drops(input, at_once), send).unwrap();
        all
    }

    #[test]
    fn batches_are_whole_lines_however_the_input_arrives() {
        let input = b"one\n\ntwo\r\n\xff\nthree";
        for at_once in 1..20 {
            let all = read(input, at_once);
            assert_eq!(all.concat(), input, "{at_once}");
            let (last, whole) = all.split_last().unwrap();
            assert_eq!(last, b"three");
            assert!(whole.iter().all(|batch| batch.ends_with(b"\n")), "{whole:?}");
        }
        assert_eq!(read(b"one\ntwo\n", 100), [b"one\ntwo\n"], "in one batch");
        assert_eq!(read(b"", 1), [b""; 0]);
    }

    #[test]
    fn the_time_of_a_line_moves_to_its_end() {
        for (field, line, expected) in [
            (
                0,
                "{\"query\":\"shop/web\",\"at\":\"2026-11-22T10:00:00Z\",\"more\":1}\nx\n",
                "shop/web at=2026-11-22T10:00:00Z\nx\n",
            ),
            (0, "{\"query\":4711}\n{\"no\":1}\r\n{", "4711\n{\"no\":1}\n{"),
            (0, "{\"query\":\"a\\nb\",\"at\":5}", "a b at=5"),
            (2, "{\"query\":\"a\"}\n10.0.0.7 5\n", "a\n10.0.0.7 at=5\n"),
            (1, "5 10.0.0.7\n", "10.0.0.7 at=5\n"),
            (2, "10.0.0.7  2026-11-22T10:00:00Z\r\n\n", "10.0.0.7 at=2026-11-22T10:00:00Z\n\n"),
            (3, "10.0.0.7 5", "10.0.0.7 5 "),
            (1, "5 a b", "a b at=5"),
        ] {
            let field = Some(field).filter(|field| *field > 0);
            assert_eq!(queries(line.into(), field), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let input = [&b"x".repeat(3 * BATCH + 7)[..], b"\nafter\n"].concat();
        for at_once in [1000, BATCH, usize::MAX] {
            let sent = read(&input, at_once).concat();
            let lines: Vec<_> = sent.split(|byte| *byte == b'\n').collect();
            assert_eq!(lines[1..], [&b"after"[..], b""]);
            assert_eq!(lines[0].len() as u64, LONGEST_LINE);
        }
    }
}
