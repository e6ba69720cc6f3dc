"""The conversation with the core while it compiles: one thread, responses in the reverse order of requests.

While the host answers a request it may send requests itself, and so may the core while it answers those.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

from orrery_sdk.wire import Message, Wire, WireError

Handler = Callable[[Message], Message | None]


class Conversation:
    """Sends, requests and responds over one connection."""

    def __init__(self, wire: Wire, answer: Handler) -> None:
        self._wire = wire
        self._answer = answer
        # Plugins may use threads. Only one request is open at a time.
        self._asking = threading.Lock()
        self.output = Output(self)

    def tell(self, message: Message) -> None:
        """Sends a message without a response."""
        self.output.flush()
        self._wire.send(message)

    def ask(self, message: Message, *kinds: str) -> Message:
        """Sends a request and returns its response, which must have one of these kinds."""
        with self._asking:
            self.tell(message)
            while True:
                reply = self._wire.receive()
                if reply["k"] in kinds:
                    return reply
                # Callbacks may use threads, too.
                self._asking.release()
                try:
                    self._serve(reply)
                finally:
                    self._asking.acquire()

    def serve_until(self, stop: Callable[[], bool]) -> None:
        """Answers requests until the condition is true."""
        while not stop():
            self._serve(self._wire.receive())

    def serve(self) -> None:
        """Answers requests; ends with wire.Closed when the core closes the connection."""
        self.serve_until(lambda: False)

    def _serve(self, message: Message) -> None:
        kind = message["k"]
        if kind == "ping":
            self._wire.send({"k": "pong", "n": message.get("n")})
            return
        if kind == "pong":
            return
        answer = self._answer(message)
        if answer is not None:
            self.tell(answer)


class Output(io.TextIOBase):
    """Standard output of module code: each line goes to the core at once, in order."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        lines, newline, rest = (self._rest + text).rpartition("\n")
        self._rest = rest
        if newline:
            self._send(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Sends a line that has not ended yet."""
        if self._rest:
            text, self._rest = self._rest, ""
            self._send(text)

    def _send(self, text: str) -> None:
        self._conversation._wire.send({"k": "print", "text": text})

    def isatty(self) -> bool:
        return False


def member(message: Message, name: str, kind: type[Any]) -> Any:
    """A required member."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise WireError(f"`{message.get('k')}` has no usable member `{name}`")
    return value
