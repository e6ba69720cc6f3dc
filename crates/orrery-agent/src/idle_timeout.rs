//! A stream with an idle timeout. Bytes count as activity, not messages: a large message on a slow
//! link is active all the time. Agents and gateways both use it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Any bidirectional stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Idle timeout, by the activity that resets it.
#[derive(Clone, Copy, Debug)]
pub enum IdleTimeout {
    /// Traffic in either direction.
    AnyTraffic(Duration),
    /// Received bytes, and progress of a blocked write. A write that does not block says nothing:
    /// its bytes may be on their way to a dead machine.
    Received(Duration),
}

impl IdleTimeout {
    fn limit(self) -> Duration {
        match self {
            IdleTimeout::AnyTraffic(limit) | IdleTimeout::Received(limit) => limit,
        }
    }
}

impl fmt::Debug for IdleTimeoutStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleTimeoutStream")
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

/// A stream that fails after an idle period.
pub struct IdleTimeoutStream {
    inner: Box<dyn Stream>,
    idle_timeout: IdleTimeout,
    last: Instant,
    /// One timer per direction: two tasks may use them, and each must be woken.
    reading: Pin<Box<Sleep>>,
    writing: Pin<Box<Sleep>>,
    /// The last write was blocked.
    is_full: bool,
}

impl IdleTimeoutStream {
    pub fn new(inner: Box<dyn Stream>, idle_timeout: IdleTimeout) -> Self {
        let last = Instant::now();
        let sleep = || Box::pin(tokio::time::sleep_until(last + idle_timeout.limit()));
        IdleTimeoutStream {
            inner,
            idle_timeout,
            last,
            reading: sleep(),
            writing: sleep(),
            is_full: false,
        }
    }

    /// Replaces the idle timeout, and restarts it.
    pub fn set_idle_timeout(&mut self, idle_timeout: IdleTimeout) {
        self.idle_timeout = idle_timeout;
        self.last = Instant::now();
        // A timer that fires early is reset then; one that fires late would be too late.
        self.reading.as_mut().reset(self.last + idle_timeout.limit());
        self.writing.as_mut().reset(self.last + idle_timeout.limit());
    }

    fn after_read<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.last = Instant::now();
            return polled;
        }
        poll_timeout(&mut self.reading, self.last + self.idle_timeout.limit(), context)
    }

    fn after_write<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.is_full || matches!(self.idle_timeout, IdleTimeout::AnyTraffic(_)) {
                self.last = Instant::now();
            }
            self.is_full = false;
            return polled;
        }
        self.is_full = true;
        poll_timeout(&mut self.writing, self.last + self.idle_timeout.limit(), context)
    }
}

/// Fails at the deadline, which may have moved since the timer was set.
fn poll_timeout<T>(
    alarm: &mut Pin<Box<Sleep>>,
    at: Instant,
    context: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    while alarm.as_mut().poll(context).is_ready() {
        if at <= Instant::now() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        alarm.as_mut().reset(at);
    }
    Poll::Pending
}

impl AsyncRead for IdleTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Read first: a reader that was not polled for a while must not report a timeout.
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.after_read(context, polled)
    }
}

impl AsyncWrite for IdleTimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.after_write(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.after_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An idle connection is flushed repeatedly: that is not activity, unless the flush had to
        // wait.
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        if polled.is_ready() && !self.is_full {
            return polled;
        }
        self.after_write(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn run(work: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work);
    }

    /// Less than the limit; four times are more.
    async fn wait_below_limit() {
        tokio::time::sleep(LIMIT.mul_f64(0.3)).await;
    }

    #[test]
    fn bytes_of_a_large_message_reset_the_timeout() {
        run(async {
            let (near, mut far) = duplex(64);
            let (mut reader, mut writer) = tokio::io::split(IdleTimeoutStream::new(
                Box::new(near),
                IdleTimeout::Received(LIMIT),
            ));
            // Received: a few bytes now and then.
            let slow = tokio::spawn(async move {
                for _ in 0..4 {
                    wait_below_limit().await;
                    far.write_all(b"x").await.unwrap();
                }
                // Sent: the peer reads slowly and sends nothing meanwhile.
                let mut taken = [0; 32];
                for _ in 0..4 {
                    wait_below_limit().await;
                    far.read_exact(&mut taken).await.unwrap();
                }
                far
            });
            let mut received = [0; 4];
            reader.read_exact(&mut received).await.unwrap();
            let reading = tokio::spawn(async move { reader.read_u8().await });
            writer.write_all(&[0; 128]).await.unwrap();
            let _far = slow.await.unwrap();
            let ended = reading.await.unwrap().unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "then nothing moved");
        });
    }

    #[test]
    fn unblocked_writes_do_not_reset_the_timeout() {
        run(async {
            let (near, _far) = duplex(1024);
            let (mut reader, mut writer) = tokio::io::split(IdleTimeoutStream::new(
                Box::new(near),
                IdleTimeout::Received(LIMIT),
            ));
            let writing = tokio::spawn(async move {
                while writer.write_all(b"ping").await.is_ok() {
                    wait_below_limit().await;
                }
            });
            let ended = reader.read_u8().await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            assert!(!writing.is_finished(), "there was room all the time");
            writing.abort();
        });
    }

    #[test]
    fn a_new_timeout_starts_at_once() {
        run(async {
            let (near, _far) = duplex(64);
            let mut watched =
                IdleTimeoutStream::new(Box::new(near), IdleTimeout::Received(10 * LIMIT));
            let began = Instant::now();
            let early = tokio::time::timeout(LIMIT.mul_f64(0.1), watched.read_u8()).await;
            assert!(early.is_err(), "nothing has arrived, and it is too early to say so");
            watched.set_idle_timeout(IdleTimeout::Received(LIMIT));
            let ended = watched.read_u8().await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() < 5 * LIMIT, "the former patience does not count");
        });
    }

    #[test]
    fn any_traffic_resets_the_timeout() {
        run(async {
            let (near, _far) = duplex(1024);
            let mut watched =
                IdleTimeoutStream::new(Box::new(near), IdleTimeout::AnyTraffic(LIMIT));
            for _ in 0..4 {
                wait_below_limit().await;
                watched.write_all(b"event").await.unwrap();
            }
            assert!(watched.read_u8().await.is_err());
        });
    }
}
