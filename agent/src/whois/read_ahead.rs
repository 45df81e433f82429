//! Reads the processes among the next queries, before these are answered.
//!
//! A look at `/proc` may block, and an answer must not wait for each. So the processes of many queries are read at once, for the
//! several short parts in which these are answered.

use hyper::body::Bytes;

use super::Whois;
use super::processes::Placements;
use super::query_text::{self, Process};
use super::request::Queries;
use crate::api::client::ClientLimits;

/// The processes of so many queries are read at once.
pub(super) const READ_AT_ONCE: usize = 256;

/// The processes among the next queries.
pub(super) struct ReadAhead {
    pub(super) placements: Placements,
    /// So many queries are left whose processes were read.
    queries: usize,
}

impl ReadAhead {
    /// Reads the processes among the first of these queries.
    pub(super) async fn of(queries: &Queries, whois: &Whois, client: &ClientLimits) -> Self {
        let process = |query: Bytes| -> Option<Process> { query_text::process(str::from_utf8(&query).ok()?) };
        let processes = queries.clone().take(READ_AT_ONCE).filter_map(process).collect();
        Self { placements: whois.processes.get(client, processes).await, queries: READ_AT_ONCE }
    }

    /// How many queries may be answered before more processes must be read.
    pub(super) fn queries(&self) -> usize {
        self.queries
    }

    /// So many queries were answered.
    pub(super) fn use_up(&mut self, queries: usize) {
        self.queries -= queries;
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;

    use super::*;
    use crate::api::client::Clients;
    use crate::whois::processes::Processes;
    use crate::whois::tests::{batch_of_lines, whois};

    /// Each look at `/proc` may take long, and a batch of words has many short parts.
    #[tokio::test]
    async fn a_process_is_read_once_however_short_the_parts_before_it_are() {
        const PODS: usize = 2_000;
        let (whois, mut index) = whois();
        index.fill(PODS, "");
        let words = 20;
        let processes = 100;
        let numbers = (1..=processes).map(|number| format!("{number}\n"));
        let lines = iter::repeat_n("web\n".to_owned(), words).chain(numbers).collect();
        let reads = Arc::new(AtomicUsize::new(0));
        let whois = Arc::into_inner(whois).unwrap();
        let whois = Arc::new(Whois { processes: Processes::counting(Arc::clone(&reads)), ..whois });
        let client = Clients::new().named("client");
        let body = whois.answer_in_parts(client, batch_of_lines(lines), None).await.into_body();
        let body = body.collect().await.unwrap().to_bytes();
        let answers = str::from_utf8(&body).unwrap().lines().count();
        assert_eq!((answers, reads.load(Ordering::Relaxed)), (words + processes, processes));
    }
}
