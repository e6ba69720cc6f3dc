//! A byte stream that its owner can close, and that limits what an unauthenticated peer may send.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Stream of a connection to a machine or through a jump host.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Closes a stream when dropped. The protocol runs in a task of its own, which would otherwise
/// outlive an attempt to connect that was given up.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    closed: CancellationToken,
    authenticated: Arc<AtomicBool>,
}

impl StreamGuard {
    /// Lifts the limit of received bytes.
    pub(crate) fn set_authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

pub(crate) struct GuardedStream {
    inner: Box<dyn ByteStream>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    authenticated: Arc<AtomicBool>,
    /// Bytes that may still be received before authentication.
    allowance: u64,
}

impl GuardedStream {
    pub(crate) fn new(inner: Box<dyn ByteStream>, allowance: u64) -> (Self, StreamGuard) {
        let closed = CancellationToken::new();
        let authenticated = Arc::new(AtomicBool::new(false));
        let guard =
            StreamGuard { closed: closed.clone(), authenticated: Arc::clone(&authenticated) };
        let closed = Box::pin(closed.cancelled_owned());
        (GuardedStream { inner, closed, authenticated, allowance }, guard)
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed here")),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_closed(context)?;
        let before = buffer.filled().len();
        let poll = Pin::new(&mut *self.inner).poll_read(context, buffer);
        if poll.is_ready() && !self.authenticated.load(Ordering::Relaxed) {
            let received = (buffer.filled().len() - before) as u64;
            let Some(left) = self.allowance.checked_sub(received) else {
                let reason = "too much data before authentication";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
            };
            self.allowance = left;
        }
        poll
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_closed(context)?;
        Pin::new(&mut *self.inner).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_closed(context)?;
        Pin::new(&mut *self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(context)
    }
}
