//! `pod-index whois`: queries from the command line or from standard input.

mod client;
mod printer;

use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use self::client::WhoisClient;
use self::printer::{lines, print};
use crate::cli::client::Server;
use crate::cli::format::{self, Printer};
use crate::cli::{Output, WhoisArgs, help};
use crate::config::failure::Failure;
use crate::config::rule;
use crate::whois::answer::NOT_FOUND;

/// Longer lines are cut. No identity is this long, so the agent also rejects the cut line.
const LONGEST_LINE: u64 = 64 * 1024 + 1;
/// Bytes to read at once, and to send without the last line. With the longest line, a batch is shorter than the agent's
/// limit of a body.
const BATCH: usize = 60 * 1024;
/// The same if the answers have details, which can be long: the agent limits the answers to a request, too.
const DETAILED_BATCH: usize = 4 * 1024;

/// Looks up all queries. Fails if a pod was not found.
pub(crate) fn ask(server: &Server, asked: &WhoisArgs, output: Output) -> Result<(), Failure> {
    let is_input = matches!(&asked.anything[..], [] | [_]) && asked.anything.iter().all(|only| only == "-");
    check(asked, is_input)?;
    let client = WhoisClient::new(server, asked, is_input)?;
    let mut printer = Printer::new(output).within_the_terminal();
    let mut all_found = true;
    let mut print = |answers: &[u8]| {
        all_found &= !lines(answers).any(|answer| answer.starts_with(NOT_FOUND));
        print(&mut printer, &asked.fields, answers)
    };
    if is_input {
        let size = if client.has_details { DETAILED_BATCH } else { BATCH };
        batches(io::stdin().lock(), size, asked.time_field, |batch| print(&client.of_batch(&batch)?))?;
    } else {
        let in_namespace = |text: &String| match &asked.namespace {
            Some(namespace) => format!("{namespace}/{text}"),
            None => text.clone(),
        };
        let queries: Vec<_> = asked.anything.iter().map(in_namespace).collect();
        print(&client.of_arguments(&queries)?)?;
    }
    // Each error has been printed.
    if all_found { Ok(()) } else { Err(Failure::No(None)) }
}

/// Whether the options fit what is looked up. Without anything to look up, prints the help at a terminal.
fn check(asked: &WhoisArgs, is_input: bool) -> Result<(), Failure> {
    rule(asked.time_field.is_none() || is_input, "--time-field is for lines of standard input")?;
    rule(
        asked.namespace.is_none() || !is_input,
        "--namespace is for names on the command line; a line of standard input has NAMESPACE/NAME",
    )?;
    if asked.anything.is_empty() && io::stdin().is_terminal() {
        // Nobody types queries without being told what they are.
        format::print(&help::of("whois"))?;
        return Err(Failure::Usage("give what to look up, or - to type lines".to_owned()));
    }
    Ok(())
}

/// Passes whole lines to `send` as soon as they are read. Stops when the input ends or `send` returns `false`.
fn batches(
    input: impl Read,
    size: usize,
    time_field: Option<u8>,
    mut send: impl FnMut(Vec<u8>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let unable = |error| Failure::unable("standard input", error);
    let mut input = BufReader::with_capacity(BATCH, input);
    loop {
        let mut batch = Vec::new();
        loop {
            let start = batch.len();
            input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut batch).map_err(unable)?;
            if (batch.len() - start) as u64 == LONGEST_LINE && !batch.ends_with(b"\n") {
                input.skip_until(b'\n').map_err(unable)?;
                batch.push(b'\n');
            }
            if let Some(field) = time_field {
                let line = with_time(&batch[start..], field.into());
                batch.splice(start.., line);
            }
            // Waits only for the first line.
            if batch.len() >= size || !input.buffer().contains(&b'\n') {
                break;
            }
        }
        if batch.is_empty() || !send(batch)? {
            return Ok(());
        }
    }
}

/// `QUERY at=TIME`, from a line with its time in this field. A line without such a field, or of JSON, stays as it is.
fn with_time(line: &[u8], field: usize) -> Vec<u8> {
    let mut fields: Vec<_> = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
    if line.starts_with(b"{") || fields.len() < field {
        return line.to_owned();
    }
    let time = [b"at=", fields.remove(field - 1), b"\n"].concat();
    fields.push(&time);
    fields.join(&b' ')
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
            Ok(true)
        };
        batches(Drops(input, at_once), BATCH, None, send).unwrap();
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
            (1, "5 10.0.0.7\n", "10.0.0.7 at=5\n"),
            (2, "10.0.0.7  2026-11-22T10:00:00Z\r\n", "10.0.0.7 at=2026-11-22T10:00:00Z\n"),
            (1, "5 a b", "a b at=5\n"),
            (2, "{\"query\": \"a\"}\n", "{\"query\": \"a\"}\n"),
            (3, "10.0.0.7 5", "10.0.0.7 5"),
            (1, "\n", "\n"),
            (1, "", ""),
        ] {
            assert_eq!(with_time(line.as_bytes(), field), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn a_batch_is_shorter_than_the_agents_limit_of_a_body() {
        let input = ["x\n".repeat(BATCH), "y".repeat(2 * BATCH), "\n".to_owned()].concat();
        let (mut lines, mut longest) = (0, 0);
        let send = |batch: Vec<u8>| {
            lines += batch.split_inclusive(|byte| *byte == b'\n').count();
            longest = longest.max(batch.len());
            Ok(true)
        };
        batches(input.as_bytes(), BATCH, Some(1), send).unwrap();
        assert_eq!(lines, BATCH + 1);
        assert!((BATCH..=BATCH + 65 * 1024).contains(&longest), "{longest}");
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
