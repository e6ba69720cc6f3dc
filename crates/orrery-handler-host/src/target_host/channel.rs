//! Connection between a server and a target host: messages with bytes, and passing of sockets to
//! the host.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use orrery_host::framing::{Reader, WireError, Writer, parse};

/// One end of a socket that is read and written concurrently.
#[derive(Clone, Debug)]
pub(super) struct SocketHalf(Arc<UnixStream>);

impl Read for SocketHalf {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Write for SocketHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Arc<UnixStream>,
    reader: Reader<SocketHalf>,
    writer: Writer<SocketHalf>,
    /// A line with incomplete bytes, and the bytes so far.
    pending: Option<(Vec<u8>, Vec<u8>)>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        let stream = Arc::new(stream);
        let half = || SocketHalf(Arc::clone(&stream));
        let (reader, writer) = (Reader::new(half()), Writer::new(half()));
        Channel { stream, reader, writer, pending: None }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns another writer of the same connection. Only one may be used at a time.
    pub(super) fn writer(&self) -> Writer<SocketHalf> {
        Writer::new(SocketHalf(Arc::clone(&self.stream)))
    }

    pub(super) fn send(&mut self, message: &impl Serialize, bytes: &[u8]) -> Result<(), WireError> {
        self.writer.send_with_bytes(message, bytes)
    }

    /// Receives the next message with its bytes; `length` returns their number or rejects them.
    /// After `TimedOut` a further call resumes.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        length: impl Fn(&T) -> Result<usize, WireError>,
    ) -> Result<(T, Vec<u8>), WireError> {
        let (line, mut bytes) = match self.pending.take() {
            Some(pending) => pending,
            None => (self.reader.read_line()?.to_vec(), Vec::new()),
        };
        let message: T = parse(&line)?;
        let count = length(&message)?;
        match self.reader.read_bytes(&mut bytes, count) {
            Ok(()) => Ok((message, bytes)),
            Err(error) => {
                self.pending = Some((line, bytes));
                Err(error)
            }
        }
    }
}

/// Sends one end of a new connection to the process at the other end of `control`.
pub(super) fn send_connection(control: &UnixStream, connection: &UnixStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given = [connection.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("a descriptor does not fit into its message"));
    }
    let sent = sendmsg(control, &[IoSlice::new(b"c")], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives the next connection; `None` at the end. Child processes do not inherit it.
pub(super) fn receive_connection(control: impl AsFd) -> io::Result<Option<UnixStream>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let received = recvmsg(
            control.as_fd(),
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        match received {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(message) if message.bytes == 0 => return Ok(None),
            Ok(_) => {}
        }
        let mut found: Vec<OwnedFd> = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(given) = message {
                found.extend(given);
            }
        }
        // Without free descriptors the kernel drops it, and the other side sees it closed.
        if let Some(given) = found.pop() {
            return Ok(Some(UnixStream::from(given)));
        }
    }
}
