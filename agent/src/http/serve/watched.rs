//! A stream that tells a connection's [`Activity`] what passes, and that ends so that the client can read the last response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;

/// How long a closed connection waits for the client to close it, too. If it were closed for both directions at once, and the
/// client were sending, the client's system would discard the response and report a reset.
const LINGER: Duration = Duration::from_secs(1);
/// What is read and discarded meanwhile.
const DISCARDED: usize = 1 << 20;

/// The stream of requests and responses: after TLS, if there is TLS.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    closing: Closing,
}

enum Closing {
    /// The connection is open, or its last bytes are being sent.
    No,
    /// The end was sent. The rest of what the client sends is discarded.
    Lingering { until: Pin<Box<Sleep>>, discarded: usize },
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity, closing: Closing::No }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        self.activity.set_writing(written.is_pending());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, closing, .. } = &mut *self;
        if let Closing::No = closing {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            *closing = Closing::Lingering { until: Box::pin(sleep(LINGER)), discarded: 0 };
        }
        let Closing::Lingering { until, discarded } = closing else { return Poll::Ready(Ok(())) };
        let mut buffer = [0; 4096];
        while until.as_mut().poll(cx).is_pending() && *discarded < DISCARDED {
            let mut buffer = ReadBuf::new(&mut buffer);
            // An error, or no bytes: the client has closed it.
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => *discarded += buffer.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    /// What takes longer hangs.
    const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_client_but_not_for_ever() {
        let activity = Arc::new(Activity::new());
        let (ours, mut theirs) = duplex(64);
        let mut stream = Watched::new(ours, Arc::clone(&activity));
        // The client is sending, and reads the end of the response.
        let client = tokio::spawn(async move {
            theirs.write_all(&[7; 1000]).await.unwrap();
            let mut response = Vec::new();
            theirs.read_to_end(&mut response).await.unwrap();
            response
        });
        stream.write_all(b"response").await.unwrap();
        let began = tokio::time::Instant::now();
        timeout(DEADLINE, stream.shutdown()).await.expect("it waits for ever").unwrap();
        let response = timeout(DEADLINE, client).await.expect("the client waits for ever");
        assert_eq!(response.unwrap(), b"response");
        assert!(began.elapsed() < LINGER, "the client has closed it");

        let (ours, theirs) = duplex(64);
        let began = tokio::time::Instant::now();
        let mut silent = Watched::new(ours, activity);
        timeout(DEADLINE, silent.shutdown()).await.expect("it waits for ever").unwrap();
        assert!((LINGER..2 * LINGER).contains(&began.elapsed()));
        drop(theirs);
    }
}
