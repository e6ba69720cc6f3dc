//! Stream through a jump host, read independently of writes.
//!
//! The connection inside a tunnel reads nothing while it writes, and the connection to the jump host
//! reads nothing, including permission to send more, while a channel of it has unread packets. Each
//! would wait for the other during a large upload. So a task takes what arrives at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::guarded_stream::ByteStream;

/// Maximum size of one part.
const PART_MAX: usize = 32 * 1024;

/// Tunnel whose received bytes are buffered, up to a limit.
pub(crate) struct TunnelStream<S> {
    writer: WriteHalf<S>,
    received: mpsc::UnboundedReceiver<io::Result<Part>>,
    current: Part,
    _reading: AbortOnDropHandle<()>,
}

/// Received bytes, which count for the limit until they are read.
struct Part {
    bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<S: ByteStream + 'static> TunnelStream<S> {
    /// Starts to read. At `unread_max` bytes, a peer that sends more than it was allowed to is no
    /// longer read.
    pub(crate) fn new(stream: S, unread_max: usize) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let (sender, received) = mpsc::unbounded_channel();
        let space = Arc::new(Semaphore::new(unread_max.max(PART_MAX)));
        let reading = AbortOnDropHandle::new(tokio::spawn(read_all(reader, sender, space)));
        let current = Part { bytes: Bytes::new(), _permit: None };
        TunnelStream { writer, received, current, _reading: reading }
    }
}

async fn read_all<S: ByteStream>(
    mut reader: ReadHalf<S>,
    sender: mpsc::UnboundedSender<io::Result<Part>>,
    space: Arc<Semaphore>,
) {
    let mut buffer = vec![0; PART_MAX];
    loop {
        let part = match reader.read(&mut buffer).await {
            // The receiver sees the end of the stream.
            Ok(0) => return,
            Ok(count) => {
                let permits = u32::try_from(count).unwrap_or(u32::MAX);
                let permit = Arc::clone(&space).acquire_many_owned(permits).await.ok();
                let bytes = buffer.get(..count).unwrap_or_default();
                Ok(Part { bytes: Bytes::copy_from_slice(bytes), _permit: permit })
            }
            Err(error) => Err(error),
        };
        let has_failed = part.is_err();
        if sender.send(part).is_err() || has_failed {
            return;
        }
    }
}

impl<S: ByteStream> AsyncRead for TunnelStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.current.bytes.is_empty() {
            match ready!(self.received.poll_recv(context)) {
                Some(part) => self.current = part?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = buffer.remaining().min(self.current.bytes.len());
        buffer.put_slice(&self.current.bytes.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: ByteStream> AsyncWrite for TunnelStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn what_arrives_is_taken_before_it_is_read_up_to_a_limit() {
        run(async {
            let (near, mut far) = tokio::io::duplex(1024);
            let mut tunnel = TunnelStream::new(near, 4 * PART_MAX);
            let sent: Vec<u8> = (0..=255).cycle().take(3 * PART_MAX).collect();
            // Nothing is read meanwhile.
            far.write_all(&sent).await.unwrap();
            let writing = tokio::spawn(async move {
                far.write_all(&vec![7; 2 * PART_MAX]).await.unwrap();
            });
            while tunnel.received.len() < 4 * PART_MAX / 1024 {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!writing.is_finished(), "the limit is reached");
            let mut all = Vec::new();
            tunnel.read_to_end(&mut all).await.unwrap();
            assert_eq!(all.len(), 5 * PART_MAX);
            assert_eq!(all[..sent.len()], sent);
            writing.await.unwrap();
        });
    }
}
