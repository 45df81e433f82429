//! Closes a connection whose peer reads too slowly or not at all.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Maximum time in which the peer reads nothing.
pub(super) const STALL: Duration = Duration::from_secs(10);
/// Minimum bytes per second while there are bytes to send.
pub(super) const RATE: u32 = 64 * 1024;
/// How far the peer may fall behind that rate. The half minute covers the socket's buffer of several megabytes, which
/// hides steady progress: it accepts more only when a third of it is empty.
pub(super) const CREDIT: Duration = Duration::from_secs(30);

/// Fails a write whose peer is slower than the limits. Counts only the time during which a write is pending. The rest
/// passes through: reads, and flushing and shutting down, for which a socket does not wait.
///
/// Waiting uses up credit. Each byte read restores the time that the minimum rate grants it.
pub(crate) struct StallGuard<S> {
    stream: S,
    credit: Duration,
    /// `None` if no write is pending; `deadline` is then meaningless.
    waiting_since: Option<Instant>,
    deadline: Pin<Box<Sleep>>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, credit: CREDIT, waiting_since: None, deadline: Box::pin(sleep(STALL)) }
    }

    /// Passes on the result of a write. Fails the write if it was pending for too long.
    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = written {
            let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            let bytes = done.as_ref().map_or(0, |bytes| u32::try_from(*bytes).unwrap_or(u32::MAX));
            let earned = Duration::from_secs(bytes.into()) / RATE;
            self.credit = CREDIT.min(self.credit.saturating_sub(waited) + earned);
            return Poll::Ready(done);
        }
        if self.waiting_since.is_none() {
            let now = Instant::now();
            self.waiting_since = Some(now);
            self.deadline.as_mut().reset(now + STALL.min(self.credit));
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer reads too slowly or not at all")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Bytes in a second at the minimum rate.
    const SECOND: usize = RATE as usize;

    /// The two ends of a connection with a buffer of this many bytes.
    fn guarded(bytes: usize) -> (StallGuard<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(bytes);
        (StallGuard::new(ours), theirs)
    }

    /// Reads this many bytes per interval to the end. Returns the total.
    async fn take(mut stream: DuplexStream, bytes: usize, every: Duration) -> usize {
        let (mut all, mut buf) = (0, vec![0; bytes]);
        loop {
            sleep(every).await;
            match stream.read(&mut buf).await {
                Ok(read) if read > 0 => all += read,
                _ => return all,
            }
        }
    }

    /// The seconds until the writer gives up.
    async fn given_up(guarded: &mut StallGuard<DuplexStream>, bytes: usize) -> u64 {
        let started = Instant::now();
        let error = guarded.write_all(&vec![0; bytes]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        started.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_disconnected() {
        let (mut guarded, _theirs) = guarded(16);
        assert_eq!(given_up(&mut guarded, 17).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_a_byte_now_and_then_is_disconnected() {
        let (mut guarded, theirs) = guarded(16);
        tokio::spawn(take(theirs, 1, Duration::from_secs(9)));
        assert_eq!(given_up(&mut guarded, 1000).await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_at_half_the_minimum_rate_is_disconnected_after_its_credit() {
        let (mut guarded, theirs) = guarded(SECOND);
        tokio::spawn(take(theirs, SECOND, Duration::from_secs(2)));
        // The first half of each second is idle.
        let seconds = given_up(&mut guarded, 1000 * SECOND).await;
        assert!((58..=62).contains(&seconds), "{seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_at_the_minimum_rate_is_served_completely() {
        let (mut guarded, theirs) = guarded(9 * SECOND);
        let taking = tokio::spawn(take(theirs, 9 * SECOND, Duration::from_secs(9)));
        guarded.write_all(&vec![7; 1000 * SECOND]).await.unwrap();
        drop(guarded);
        assert_eq!(taking.await.unwrap(), 1000 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_does_not_count() {
        let (mut guarded, mut theirs) = guarded(16);
        for _ in 0..100 {
            guarded.write_all(&[0; 16]).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            theirs.read_exact(&mut [0; 16]).await.unwrap();
        }
    }
}
