"""The line transport of the host protocol: JSON objects over one Unix stream socket.

Handlers share this process, and some close descriptors that are not theirs. So the socket is moved to a high
number, out of reach of the usual "close 3 to 255", and before each use it is compared with its identity at the
start. If it was closed, and possibly replaced by another file, the process ends with an error instead of
writing the protocol into that file.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import sys
import threading
from typing import Any

LINE_MAX = 16 * 1024 * 1024
DEPTH_MAX = 256
EXIT_LOST_SOCKET = 70
EXIT_NO_MEMORY = 71
EXIT_PROTOCOL = 76

_DESCRIPTOR_WANTED = 4000
_CHUNK = 256 * 1024

Message = dict[str, Any]


class WireError(Exception):
    """The other side broke a rule of the protocol, or this side was about to."""


class Closed(Exception):
    """The stream has ended: the core wants this process to end."""


def encode(message: Message) -> bytes:
    """One line; raises WireError if it exceeds the limit, and ValueError for values without a JSON form."""
    line = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # UTF-8 has no lone surrogates; they come from file names in other encodings.
    data = line.encode("utf-8", "replace") + b"\n"
    if len(data) > LINE_MAX:
        raise WireError(
            f"a message of kind {message.get('k')!r} has {len(data)} bytes; at most {LINE_MAX} are allowed"
        )
    return data


def decode(line: bytes) -> Message:
    """Parses one line; raises WireError if it is not an object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a line that is not JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("k"), str):
        raise WireError("a message has to be an object with a member `k`")
    return message


class Wire:
    """Both directions of the connection. `send` may be called by any thread, `receive` by one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._scanned = 0
        self._identity = self._fingerprint()
        # A forked process must neither use nor keep the connection.
        os.register_at_fork(after_in_child=self.close)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Wire:
        """Takes over an inherited descriptor: moved high, closed when other programs are started."""
        high = _move_high(descriptor)
        return cls(socket.socket(fileno=high))

    def _fingerprint(self) -> tuple[int, int]:
        status = os.fstat(self._socket.fileno())
        return status.st_dev, status.st_ino

    def _check(self) -> None:
        try:
            same = self._fingerprint() == self._identity
        except OSError:
            same = False
        if not same:
            die(EXIT_LOST_SOCKET, "the connection to the core was closed by code that runs in this process")

    def send(self, message: Message) -> None:
        """Sends one message, whole; blocks while the core does not read."""
        self.send_bytes(encode(message))

    def send_bytes(self, data: bytes) -> None:
        """Sends lines that were encoded before."""
        with self._sending:
            self._check()
            try:
                self._socket.sendall(data)
            except OSError as error:
                self._check()
                raise Closed(str(error)) from error

    def receive(self) -> Message:
        """The next message; raises Closed at the end of the stream."""
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._scanned = 0
                return decode(line)
            self._scanned = len(self._buffer)
            if self._scanned >= LINE_MAX:
                raise WireError(f"a line of more than {LINE_MAX} bytes")
            self._check()
            try:
                chunk = self._socket.recv(_CHUNK)
            except InterruptedError:
                continue
            except OSError as error:
                self._check()
                raise Closed(str(error)) from error
            if not chunk:
                raise Closed("the core has closed the connection")
            self._buffer += chunk

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def _move_high(descriptor: int) -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTOR_WANTED if soft == resource.RLIM_INFINITY else min(_DESCRIPTOR_WANTED, soft - 16)
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(wanted, 3))
    os.close(descriptor)
    return high


def die(status: int, reason: str) -> None:
    """Ends the process at once, without running any hosted code."""
    try:
        os.write(2, f"orrery host: {reason}\n".encode())
    except OSError:
        pass
    try:
        sys.stdout.flush()
    except Exception:
        pass
    os._exit(status)
