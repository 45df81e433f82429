//! The messages of an answer, on their way to a client that may read slowly or not at all.
//!
//! Bytes are handed to the connection only as the client permits it (HTTP/2's flow control). Waiting for that permission uses up
//! credit, and what is read earns some. Without credit, the call ends and everything that it holds is given back, whatever
//! the client does.

use std::future::poll_fn;
use std::time::Duration;

use h2::SendStream;
use hyper::body::Bytes;
use tokio::time::{Instant, timeout};

use super::wire::{Reason, Status};
use crate::api::client::{ClientLimits, Place};

/// How long an answer, or the events that a watch has to send, may wait for the client.
const CREDIT: Duration = Duration::from_secs(30);
/// Bytes per second that a client reads at least, or it uses up its credit.
const RATE: u32 = 64 * 1024;
/// Bytes for which permission is requested at a time.
const PART: usize = 64 * 1024;
/// How long a call waits for a place, and how old an answer is that loses its place to a call that waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whether a call waits is checked this often.
const CHECK: Duration = Duration::from_secs(1);

/// Why a call ends before its last message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this status.
    Status(Status),
    /// The client has ended it, or its connection.
    Gone,
    /// The client does not read.
    Unread,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// An answer that is being sent.
pub(super) struct Answer {
    stream: SendStream<Bytes>,
    credit: Duration,
    held: Option<HeldPlace>,
}

/// The place of an answer that ends by itself: a client may have only so many.
struct HeldPlace {
    place: Place,
    since: Instant,
}

impl Answer {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, credit: CREDIT, held: None }
    }

    /// Waits for a place, and keeps it until the answer is dropped.
    pub(super) async fn take_place(&mut self, limits: &ClientLimits) -> Result<(), End> {
        let waited = self.unless_gone(timeout(2 * PATIENCE, limits.place())).await?;
        let place = waited.ok().flatten().ok_or_else(|| {
            Status::new(Reason::UnreadAnswers, "too many lists and pods of this client have yet to be read")
        })?;
        self.held = Some(HeldPlace { place, since: Instant::now() });
        Ok(())
    }

    /// A watch has nothing to send, so its client has read everything.
    pub(super) fn restore_credit(&mut self) {
        self.credit = CREDIT;
    }

    /// Hands a message, or a part of one, to the connection, as fast as the client permits it.
    pub(super) async fn send(&mut self, mut bytes: Bytes) -> Result<(), End> {
        while !bytes.is_empty() {
            self.stream.reserve_capacity(bytes.len().min(PART));
            let permitted = self.permitted().await?;
            let part = bytes.split_to(permitted.min(bytes.len()));
            let earned = Duration::from_secs(part.len() as u64) / RATE;
            self.credit = CREDIT.min(self.credit + earned);
            self.stream.send_data(part, false).map_err(|_| End::Gone)?;
        }
        Ok(())
    }

    /// Waits until the client permits to send bytes. Returns how many.
    async fn permitted(&mut self) -> Result<usize, End> {
        loop {
            let permitted = self.stream.capacity();
            if permitted > 0 {
                return Ok(permitted);
            }
            let began = Instant::now();
            let more = poll_fn(|context| self.stream.poll_capacity(context));
            let more = timeout(CHECK.min(self.credit), more).await;
            self.credit = self.credit.saturating_sub(began.elapsed());
            match more {
                Ok(Some(Err(_)) | None) => return Err(End::Gone),
                Err(_) if self.credit.is_zero() || self.loses_place() => return Err(End::Unread),
                Ok(Some(Ok(_))) | Err(_) => {}
            }
        }
    }

    fn loses_place(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.since.elapsed() >= PATIENCE && held.place.is_wanted())
    }

    /// The result of `work`, unless the client ends the call before.
    pub(super) async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::select! {
            done = work => Ok(done),
            _ = poll_fn(|context| self.stream.poll_reset(context)) => Err(End::Gone),
        }
    }

    /// Ends the call.
    pub(super) fn end(mut self, end: Result<(), End>) {
        let status = match end {
            Ok(()) => Status::OK,
            Err(End::Status(status)) => status,
            Err(End::Gone) => return,
            // A message may be incomplete. Clients of gRPC take this for RESOURCE_EXHAUSTED.
            Err(End::Unread) => return self.stream.send_reset(h2::Reason::ENHANCE_YOUR_CALM),
        };
        // Fails if the client has ended the call.
        let _ = self.stream.send_trailers(status.trailers());
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Request, Response};
    use tokio::time::sleep;

    use super::*;

    const LENGTH: usize = 8 << 20;

    /// Asks for an answer of `LENGTH` bytes. Permits `window` bytes at a time, and reads no more than that in a `pause`. Returns
    /// how many bytes came.
    async fn read(window: u32, pause: Duration) -> Result<usize, h2::Error> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(ours).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut answer = Answer::new(respond.send_response(Response::new(()), false).unwrap());
                tokio::spawn(async move {
                    let end = answer.send(vec![7; LENGTH].into()).await;
                    answer.end(end);
                });
            }
        });
        let mut client = h2::client::Builder::new();
        let (requests, connection) = client.initial_window_size(window).handshake::<_, Bytes>(theirs).await?;
        tokio::spawn(connection);
        let request = Request::get("http://localhost/").body(()).unwrap();
        let (response, _) = requests.ready().await?.send_request(request, true)?;
        let mut body = response.await?.into_body();
        let mut read = 0;
        while let Some(part) = body.data().await {
            let part = part?;
            read += part.len();
            sleep(pause * u32::try_from(part.len()).unwrap() / window).await;
            body.flow_control().release_capacity(part.len())?;
        }
        Ok(read)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_steadily_gets_all_however_long_it_takes() {
        let began = Instant::now();
        assert_eq!(read(32 * 1024, Duration::from_millis(400)).await.unwrap(), LENGTH);
        assert!(began.elapsed() > 3 * CREDIT, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_is_cut_off_although_it_reads() {
        let began = Instant::now();
        let end = read(1024, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(end.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
        assert!((CREDIT..2 * CREDIT).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
