//! `pod-index whois`: queries from the command line or from standard input.

mod printer;

use std::io::{self, BufRead, BufReader, Read};

use form_urlencoded::Serializer;

use self::printer::Printer;
use crate::cli::client::Server;
use crate::cli::{Output, WhoisArgs, runtime_apart};
use crate::config::failure::Failure;

/// The fields that the agent sends with `details=true`.
const DETAILS: [&str; 4] = ["podIP", "phase", "image", "annotations"];
/// Longer lines are cut. No identity is this long, so the agent also rejects the cut line.
const LONGEST_LINE: u64 = 64 * 1024 + 1;
/// Bytes to read at once. With the longest line, a batch is shorter than the agent's limit of a body.
const BATCH: usize = 60 * 1024;

/// Looks up all queries. Fails if a pod was not found.
pub(crate) fn ask(server: &Server, asked: &WhoisArgs, output: Output) -> Result<(), Failure> {
    // Connections are kept by another thread: this one may be blocked in a read.
    let runtime = runtime_apart()?;
    let mut printer = Printer::new(output, &asked.fields);
    let details = asked.fields.iter().any(|field| DETAILS.contains(&&**field)).then_some(("details", "true"));
    let path = |query: Option<&str>| {
        let (at, query) = (asked.at.iter().map(|at| ("at", &**at)), query.map(|query| ("q", query)));
        let pairs = at.chain(details).chain(query);
        format!("/whois?{}", Serializer::new(String::new()).extend_pairs(pairs).finish())
    };
    if matches!(&asked.anything[..], [] | [_]) && asked.anything.iter().all(|only| only == "-") {
        let path = path(None);
        batches(io::stdin().lock(), |batch| {
            printer.print(&runtime.block_on(server.post(&path, batch.into()))?)
        })?;
    } else {
        let mut answers = Vec::new();
        for text in &asked.anything {
            answers.extend_from_slice(&runtime.block_on(server.get(&path(Some(text))))?);
        }
        printer.print(&answers)?;
    }
    // Each error has been printed.
    if printer.all_found { Ok(()) } else { Err(Failure::No(None)) }
}

/// Passes whole lines to `send` as soon as they are read. Stops when the input ends or `send` returns `false`.
fn batches(input: impl Read, mut send: impl FnMut(Vec<u8>) -> Result<bool, Failure>) -> Result<(), Failure> {
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
            // Waits only for the first line.
            if !input.buffer().contains(&b'\n') {
                break;
            }
        }
        if batch.is_empty() || !send(batch)? {
            return Ok(());
        }
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
            Ok(true)
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
