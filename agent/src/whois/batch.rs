//! The queries of one request, while they are answered.

use std::borrow::Cow;

use pod_index::Snapshot;
use pod_index_kubelet::records::Record;

use super::Whois;
use super::answer::{NO_ATTRIBUTES, Retry, Shown};
use super::lookups::Outcomes;
use super::matched::Match;
use super::processes::Placements;
use super::read_ahead::ReadAhead;
use super::request::{AnswerOptions, Queries};
use super::search_budget::SearchBudget;
use super::sought::Sought;
use super::unknown::Unknown;

/// Answers repeat at most this many bytes of a query. Paths of cgroups and logs are shorter.
pub(super) const ECHO: usize = 4096;
/// The response is sent in parts of about this many bytes.
pub(super) const CHUNK: usize = 64 * 1024;
/// Bytes of the answers to one request, after which queries get an error.
pub(super) const ANSWERS: usize = 64 << 20;
const TOO_LARGE: &str =
    "the answers to one request are limited to 64 MiB; send this query in another request";
/// Why the agent knows nothing of an earlier time.
const CLOCK_WAS_SET: &str = ": the wall clock was set then";
const BEGAN: &str =
    ": it or its source began anew then, or it has forgotten what was before (--keep-removed)";

/// Queries that are being answered.
#[derive(Clone)]
pub(super) struct Batch {
    /// Those that are left.
    queries: Queries,
    options: AnswerOptions,
    /// The bytes that are left of `ANSWERS`.
    bytes_left: usize,
    searches: SearchBudget,
}

/// Answers to some queries.
#[derive(Default)]
pub(super) struct Answered {
    /// A line for each query.
    pub(super) lines: Vec<u8>,
    /// Whether the same queries may soon have another answer.
    pub(super) may_change: bool,
    /// Not counted yet: a query that waits is looked up more than once, and is one lookup.
    pub(super) outcomes: Outcomes,
}

impl Batch {
    pub(super) fn new(queries: Queries, options: AnswerOptions) -> Self {
        Self { queries, options, bytes_left: ANSWERS, searches: SearchBudget::default() }
    }

    /// The queries that are not answered yet.
    pub(super) fn queries(&self) -> &Queries {
        &self.queries
    }

    /// Whether every query is answered.
    pub(super) fn is_answered(&self) -> bool {
        self.queries.is_empty()
    }

    /// Answers all queries at once: they are few.
    pub(super) fn answer_all(
        mut self,
        whois: &Whois,
        snapshot: &Snapshot<Record>,
        placements: &Placements,
    ) -> Answered {
        let part = Part::new(&self, whois, snapshot, placements);
        let mut answered = Answered::default();
        for query in self.queries {
            part.answer(&query, &mut self.searches, &mut answered);
        }
        answered
    }

    /// Answers the next queries: about `CHUNK` bytes, and a few searches. It is bounded work, a fraction of a millisecond on a usual
    /// node.
    pub(super) fn answer_part(
        &mut self,
        whois: &Whois,
        snapshot: &Snapshot<Record>,
        ahead: &mut ReadAhead,
    ) -> Answered {
        let part = Part::new(self, whois, snapshot, &ahead.placements);
        let mut answered = Answered::default();
        let mut queries = 0;
        self.searches.begin_part(part.pods);
        for query in self.queries.by_ref().take(ahead.queries()) {
            queries += 1;
            part.answer(&query, &mut self.searches, &mut answered);
            if answered.lines.len() >= CHUNK || self.searches.ends_part() {
                break;
            }
        }
        ahead.use_up(queries);
        self.bytes_left = self.bytes_left.saturating_sub(answered.lines.len());
        answered
    }
}

/// What the queries of one part of the answers have in common.
struct Part<'a> {
    whois: &'a Whois,
    snapshot: &'a Snapshot<Record>,
    /// The number of its pods.
    pods: usize,
    placements: &'a Placements,
    options: AnswerOptions,
    /// Whether the answers may still take bytes. If not, each is an error.
    has_room: bool,
}

impl<'a> Part<'a> {
    fn new(
        batch: &Batch,
        whois: &'a Whois,
        snapshot: &'a Snapshot<Record>,
        placements: &'a Placements,
    ) -> Self {
        let pods = snapshot.pods().len();
        Self { whois, snapshot, pods, placements, options: batch.options, has_room: batch.bytes_left > 0 }
    }

    /// Appends the answer to a query.
    fn answer(&self, query: &[u8], searches: &mut SearchBudget, to: &mut Answered) {
        let before = to.lines.len();
        searches.begin_query(self.pods);
        match self.sought(query) {
            Ok(sought) => match sought.find(self.snapshot, self.whois.tolerance, searches) {
                Ok(found) => self.answer_found(query, &found, to),
                Err(unknown) => self.answer_unknown(query, unknown, to),
            },
            Err(unknown) => self.answer_unknown(query, unknown, to),
        }
        searches.end_query(to.lines.len() - before);
    }

    /// What a query asks for.
    fn sought<'q>(&self, query: &'q [u8]) -> Result<Sought<'q>, Unknown> {
        if self.has_room {
            Sought::parse(query, self.options.at, self.placements, self.whois.processes.roots())
        } else {
            Err(Unknown { retry: Retry::Now, ..Unknown::invalid(TOO_LARGE) })
        }
    }

    /// Appends the pod that was found.
    fn answer_found(&self, query: &[u8], found: &Match<'_>, to: &mut Answered) {
        to.outcomes.found += 1;
        to.may_change |= found.may_be_succeeded();
        if self.options.only_attributes {
            found.write_attributes(self.snapshot, &mut to.lines);
        } else {
            let shown = Shown { details: self.options.is_detailed, attributes: self.whois.has_attributes };
            found.write(&echo(query), self.snapshot, &self.whois.owners, shown, &mut to.lines);
        }
    }

    /// Appends that no pod was found.
    fn answer_unknown(&self, query: &[u8], mut unknown: Unknown, to: &mut Answered) {
        if self.has_room {
            to.outcomes.failed(unknown.kind.is_some());
        }
        to.may_change |= unknown.is_missing;
        if self.options.only_attributes {
            to.lines.extend_from_slice(NO_ATTRIBUTES);
            to.lines.push(b'\n');
        } else {
            self.add_reasons(&mut unknown);
            unknown.write(&echo(query), &mut to.lines);
        }
    }

    /// Adds to an error what the agent knows of itself.
    fn add_reasons(&self, unknown: &mut Unknown) {
        let readiness = &self.whois.readiness;
        if unknown.is_missing && !readiness.is_ready() {
            unknown.error.push_str("; not every source has been read");
        }
        if let Some(since) = unknown.known_since {
            unknown.error.push_str(if readiness.began_with_the_clock(since) { CLOCK_WAS_SET } else { BEGAN });
        }
    }
}

/// The query as its answer repeats it.
fn echo(query: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&query[..query.len().min(ECHO)])
}
