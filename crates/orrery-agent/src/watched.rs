//! A connection on which silence is noticed. Every byte that arrives is a sign of life, also in the middle of a long message on a slow line.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Reading fails with `TimedOut` when nothing has arrived for too long. Written bytes do not count: they may be on their way to nobody.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: TcpStream,
    silence_max: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl Watched {
    pub(crate) fn new(inner: TcpStream, silence_max: Duration) -> Self {
        Watched { inner, silence_max, deadline: Box::pin(sleep(silence_max)) }
    }

    pub(crate) fn set_silence_max(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
        self.heard();
    }

    fn heard(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + self.silence_max);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // First what is there: who did not listen for a while must not take that for silence.
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if polled.is_ready() {
            self.heard();
            return polled;
        }
        self.deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
