//! A byte stream that its owner can close, and that limits what an unauthenticated peer may send.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Reason for the end of a connection to a peer that sent more than it may.
pub(crate) const EXCEEDED: &str = "it sent too much data before authentication";

/// Stream of a connection to a machine or through a jump host.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Closes a stream when dropped. The protocol runs in a task of its own, which would otherwise
/// outlive an attempt to connect that was given up.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    closed: CancellationToken,
    state: Arc<StreamState>,
}

#[derive(Debug, Default)]
struct StreamState {
    authenticated: AtomicBool,
    /// The peer sent more than it may.
    exceeded: AtomicBool,
}

impl StreamGuard {
    /// Lifts the limit of received bytes.
    pub(crate) fn set_authenticated(&self) {
        self.state.authenticated.store(true, Ordering::Relaxed);
    }

    /// True if the peer sent too much before it was authenticated.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.state.exceeded.load(Ordering::Relaxed)
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
    state: Arc<StreamState>,
    /// Bytes that may still be received before authentication.
    allowance: u64,
}

impl GuardedStream {
    pub(crate) fn new(inner: Box<dyn ByteStream>, allowance: u64) -> (Self, StreamGuard) {
        let closed = CancellationToken::new();
        let state = Arc::<StreamState>::default();
        let guard = StreamGuard { closed: closed.clone(), state: Arc::clone(&state) };
        let closed = Box::pin(closed.cancelled_owned());
        (GuardedStream { inner, closed, state, allowance }, guard)
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
        if poll.is_ready() && !self.state.authenticated.load(Ordering::Relaxed) {
            let received = (buffer.filled().len() - before) as u64;
            let Some(left) = self.allowance.checked_sub(received) else {
                self.state.exceeded.store(true, Ordering::Relaxed);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, EXCEEDED)));
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
