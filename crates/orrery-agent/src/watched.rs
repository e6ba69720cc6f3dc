//! A connection that fails when it shows no sign of life for too long. Bytes are the signs, not messages: a large message on a slow way is life all the time.
//! Agents and gateways both look at their connections like this.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Any kind of connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What counts as a sign of life, and how long one may be missing.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Anything that moves, in either direction.
    Moves(Duration),
    /// What is heard, and room for what had to wait to be sent. What is sent while there is room says nothing: it may be on its way to a machine
    /// that is gone.
    Heard(Duration),
}

impl Life {
    fn patience(self) -> Duration {
        match self {
            Life::Moves(patience) | Life::Heard(patience) => patience,
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("life", &self.life).finish_non_exhaustive()
    }
}

/// A connection that fails when there is no sign of life for too long.
pub struct Watched {
    inner: Box<dyn Stream>,
    life: Life,
    last: Instant,
    /// One for each direction: they may be used by two tasks, and each has to be woken.
    reading: Pin<Box<Sleep>>,
    writing: Pin<Box<Sleep>>,
    /// There was no room for what is to be sent.
    is_full: bool,
}

impl Watched {
    pub fn new(inner: Box<dyn Stream>, life: Life) -> Self {
        let last = Instant::now();
        let sleep = || Box::pin(tokio::time::sleep_until(last + life.patience()));
        Watched { inner, life, last, reading: sleep(), writing: sleep(), is_full: false }
    }

    /// From now on something else counts as life; what was before is forgotten.
    pub fn set_life(&mut self, life: Life) {
        self.life = life;
        self.last = Instant::now();
        // An alarm that is too early is set again when it comes; one that is too late would not come.
        self.reading.as_mut().reset(self.last + life.patience());
        self.writing.as_mut().reset(self.last + life.patience());
    }

    fn heard<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.last = Instant::now();
            return polled;
        }
        late(&mut self.reading, self.last + self.life.patience(), context)
    }

    fn sent<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.is_full || matches!(self.life, Life::Moves(_)) {
                self.last = Instant::now();
            }
            self.is_full = false;
            return polled;
        }
        self.is_full = true;
        late(&mut self.writing, self.last + self.life.patience(), context)
    }
}

/// Fails when the time has come, which may have moved since the alarm was set.
fn late<T>(
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

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // First what is there: who did not listen for a while must not take that for silence.
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.heard(context, polled)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.sent(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.sent(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An idle connection is flushed again and again: that is no sign of life, unless it had to wait.
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        if polled.is_ready() && !self.is_full {
            return polled;
        }
        self.sent(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn run(work: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work);
    }

    /// Less than the patience; four times are more.
    async fn pass() {
        tokio::time::sleep(PATIENCE.mul_f64(0.3)).await;
    }

    #[test]
    fn bytes_of_a_large_message_on_a_slow_way_are_life() {
        run(async {
            let (near, mut far) = duplex(64);
            let (mut reader, mut writer) =
                tokio::io::split(Watched::new(Box::new(near), Life::Heard(PATIENCE)));
            // Heard: a few bytes now and then.
            let slow = tokio::spawn(async move {
                for _ in 0..4 {
                    pass().await;
                    far.write_all(b"x").await.unwrap();
                }
                // Sent: it is taken slowly, and nothing is said meanwhile.
                let mut taken = [0; 32];
                for _ in 0..4 {
                    pass().await;
                    far.read_exact(&mut taken).await.unwrap();
                }
                far
            });
            let mut heard = [0; 4];
            reader.read_exact(&mut heard).await.unwrap();
            let reading = tokio::spawn(async move { reader.read_u8().await });
            writer.write_all(&[0; 128]).await.unwrap();
            let _far = slow.await.unwrap();
            let ended = reading.await.unwrap().unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "then nothing moved");
        });
    }

    #[test]
    fn what_is_sent_to_a_machine_that_is_gone_is_no_life() {
        run(async {
            let (near, _far) = duplex(1024);
            let (mut reader, mut writer) =
                tokio::io::split(Watched::new(Box::new(near), Life::Heard(PATIENCE)));
            let writing = tokio::spawn(async move {
                while writer.write_all(b"ping").await.is_ok() {
                    pass().await;
                }
            });
            let ended = reader.read_u8().await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            assert!(!writing.is_finished(), "there was room all the time");
            writing.abort();
        });
    }

    #[test]
    fn a_new_patience_counts_from_then_on() {
        run(async {
            let (near, _far) = duplex(64);
            let mut watched = Watched::new(Box::new(near), Life::Heard(10 * PATIENCE));
            let began = Instant::now();
            let early = tokio::time::timeout(PATIENCE.mul_f64(0.1), watched.read_u8()).await;
            assert!(early.is_err(), "nothing has arrived, and it is too early to say so");
            watched.set_life(Life::Heard(PATIENCE));
            let ended = watched.read_u8().await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() < 5 * PATIENCE, "the former patience does not count");
        });
    }

    #[test]
    fn a_stream_of_events_is_life_by_itself() {
        run(async {
            let (near, _far) = duplex(1024);
            let mut watched = Watched::new(Box::new(near), Life::Moves(PATIENCE));
            for _ in 0..4 {
                pass().await;
                watched.write_all(b"event").await.unwrap();
            }
            assert!(watched.read_u8().await.is_err());
        });
    }
}
