//! Answers a batch in parts, while the client reads them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hyper::body::Bytes;
use pod_index::{OwnedSnapshot, Reader};
use pod_index_kubelet::records::Record;
use tokio::time::Instant;

use super::Whois;
use super::batch::Batch;
use super::body::HeldBody;
use super::read_ahead::ReadAhead;
use super::routes::HEAD;
use crate::api::client::ClientLimits;

/// For so long, all answers to a request are of one moment. A client that takes longer gets the rest of a later one: the
/// snapshot of the first keeps replaced pods in memory.
pub(super) const ONE_MOMENT: Duration = Duration::from_secs(10);

impl Whois {
    /// Answers queries in parts, while the client reads them. `body`: that the queries are in.
    ///
    /// The first part is computed before the response begins. Most batches have no other: their response has a length, and
    /// leaves with its head in one write.
    pub(super) async fn answer_in_parts(
        self: Arc<Self>,
        limits: Arc<ClientLimits>,
        batch: Batch,
        body: Option<HeldBody>,
    ) -> Response {
        let mut answering = Answering { whois: self, limits, batch, ahead: None, moment: None, body };
        match answering.next_part().await {
            Ok(only) if answering.batch.is_answered() => (HEAD, only).into_response(),
            first => (HEAD, answering.into_body(first)).into_response(),
        }
    }
}

/// A batch that is being answered in parts.
struct Answering {
    whois: Arc<Whois>,
    limits: Arc<ClientLimits>,
    batch: Batch,
    /// The processes among the next queries, if they are read.
    ahead: Option<ReadAhead>,
    /// The one of the last part.
    moment: Option<TakenSnapshot>,
    /// The body that the queries are in.
    body: Option<HeldBody>,
}

impl Answering {
    /// A body that begins with `first`, and goes on with what is not answered yet.
    fn into_body(self, first: io::Result<Vec<u8>>) -> Body {
        let others = stream::try_unfold(self, async |mut answering| {
            if answering.batch.is_answered() {
                return Ok(None);
            }
            Ok(Some((answering.next_part().await?, answering)))
        });
        Body::from_stream(stream::iter([first]).chain(others).map_ok(Bytes::from))
    }

    /// The next answers.
    async fn next_part(&mut self) -> io::Result<Vec<u8>> {
        self.body.as_ref().map_or(Ok(()), HeldBody::check)?;
        let mut ahead = self.next_ahead().await;
        // After the processes, which may take long to read.
        let moment = self.next_moment();
        let answer = || self.batch.answer_part(&self.whois, &moment.snapshot, &mut ahead);
        let answered = self.limits.in_short_turn(answer).await;
        let answered = answered.ok_or_else(|| io::Error::other("the agent ends"))?;
        self.whois.lookups.count(answered.outcomes);
        self.ahead = Some(ahead);
        self.moment = Some(moment);
        Ok(answered.lines)
    }

    /// The processes among the next queries: those of the last part, if some of them are left. They are as old as the moment at
    /// most, because a process ID is used again.
    async fn next_ahead(&mut self) -> ReadAhead {
        let is_young = self.moment.as_ref().is_some_and(TakenSnapshot::is_young);
        match self.ahead.take().filter(|ahead| is_young && ahead.queries() > 0) {
            Some(ahead) => ahead,
            None => ReadAhead::of(self.batch.queries(), &self.whois, &self.limits).await,
        }
    }

    /// The snapshot of the last part, unless it is too old.
    fn next_moment(&mut self) -> TakenSnapshot {
        let of_last_part = self.moment.take().filter(TakenSnapshot::is_young);
        of_last_part.unwrap_or_else(|| TakenSnapshot::now(&self.whois.reader))
    }
}

/// A snapshot, and since when it answers queries.
struct TakenSnapshot {
    snapshot: OwnedSnapshot<Record>,
    since: Instant,
}

impl TakenSnapshot {
    fn now(reader: &Reader<Record>) -> Self {
        Self { snapshot: reader.snapshot(), since: Instant::now() }
    }

    fn is_young(&self) -> bool {
        self.since.elapsed() < ONE_MOMENT
    }
}
