"""One operation on one resource: its log, report and cancellation."""

from __future__ import annotations

import datetime
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from inmanta import const, data
from inmanta.agent.handler import HandlerContext
from inmanta.agent.io import MachineUnavailable
from orrery_sdk import server
from orrery_sdk.handling.plain import clip, plain
from orrery_sdk.handling.redact import Redactor
from orrery_sdk.wire import LINE_MAX, Message

if TYPE_CHECKING:
    from inmanta.resources import Resource

LINES_MAX = 64
LINES_WAIT_S = 0.1
DEBUG_LINES_MAX = 10_000

# Far below the limit of a message, so that lines and reports always fit.
_FRAME_BYTES = 1024 * 1024
_LINE_BYTES = LINE_MAX // 4

# Lines that handlers can read back through `ctx.logs`.
_KEPT_LINES = 1000

_LEVELS = {
    "trace": const.LOG_LEVEL_TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

# The operation that the running code belongs to; coroutines that it starts inherit it.
current: ContextVar[Operation | None] = ContextVar("current_operation", default=None)


class OperationCancelled(BaseException):
    """Ends the code of a handler. Not an Exception, so that handlers do not catch it."""


class EffectNotBegun(BaseException):
    """Ends the code of a handler before an effect that must not begin. Not an Exception, for the same reason."""


def level_name(level: int) -> str:
    """The protocol's name of a level."""
    for name in ("critical", "error", "warning", "info"):
        if level >= _LEVELS[name]:
            return name
    return "debug"


# Called when a handler runs out of memory: all operations share the process.
out_of_memory: Callable[[], None] | None = None


class Operation:
    """A request of the core and its results.

    :param send: sends lines that are ready; blocks while the core does not read.
    :param wake: called when lines are queued, with the time at which they must be sent.
    """

    def __init__(
        self, message: Message, send: Callable[[bytes], None], wake: Callable[[Operation, float], None]
    ) -> None:
        self.number: int = message["c"]
        self.kind: str = message.get("op", "deploy")
        self.agent: str = message.get("agent", "")
        self.uri: str = message.get("uri") or "local:"
        # The reason and remedy if there is no machine for handlers; None if there is one.
        self.no_machine: dict[str, str] | None = message.get("no_machine")
        self.asked_for_machine = False
        self.resource: dict[str, Any] = message["resource"]
        self.requires: dict[str, str] = message.get("requires") or {}
        self.changed: list[str] = message.get("changed") or []
        self.deadline: float | None = message.get("deadline")
        self.unknown_effect = bool(message.get("unknown_effect"))
        # True if an unrepeatable effect is known not to have happened; None without such an effect.
        self.effect_undone: bool | None = None
        self.secrets = Redactor()
        self.cancelled: str | None = None
        self.flush_due: float | None = None
        self.ends_at: float | None = None
        self._level = _LEVELS.get(str(message.get("level", "debug")).lower(), logging.DEBUG)
        self._send = send
        self._wake = wake
        self._lock = threading.RLock()
        self._flushed_at = 0.0
        self._waiting: list[bytes] = []
        # Lines logged while a reference is resolved wait until its value can be redacted.
        self._resolving = 0
        self._held: list[tuple[int, str, dict[str, Any], float]] = []
        self._waiting_bytes = 0
        self._lines = 0
        self._debug_lines = 0
        self._dropped = 0
        self._reported = False

    def begin(self) -> None:
        """Starts the deadline."""
        if self.deadline is not None:
            self.ends_at = time.monotonic() + float(self.deadline)
            self._wake(self, self.ends_at)

    def cancel(self, why: str) -> None:
        """Cancels the handler at its next use of the context; the first reason counts."""
        if self.cancelled is None:
            self.cancelled = why

    def checkpoint(self) -> None:
        """Raises if the operation is cancelled."""
        if self.cancelled is not None:
            raise OperationCancelled(self.cancelled)

    def check_machine(self) -> None:
        """Raises if this machine is not that of the handler's agent."""
        if self.no_machine is not None:
            self.asked_for_machine = True
            raise MachineUnavailable(self.no_machine.get("reason", ""))

    def log(self, level: int, text: str, values: dict[str, Any], moment: float) -> None:
        """Queues one log line. Excess DEBUG lines are only counted."""
        if level < self._level:
            return
        with self._lock:
            if self._reported:
                # A leftover thread of the handler; the operation has ended.
                return
            if level <= logging.DEBUG:
                self._debug_lines += 1
                if self._debug_lines > DEBUG_LINES_MAX:
                    self._dropped += 1
                    return
            if self._resolving:
                self._held.append((level, text, values, moment))
                return
            self._add_line(level, text, values, moment)
            if len(self._waiting) >= LINES_MAX or self._waiting_bytes >= _FRAME_BYTES:
                self.flush()
            elif self.flush_due is None:
                now = time.monotonic()
                if now - self._flushed_at > LINES_WAIT_S:
                    # The first line after a pause is sent at once: it may be the last before a crash.
                    self.flush()
                    return
                self.flush_due = now + LINES_WAIT_S
                self._wake(self, self.flush_due)

    def resolving(self, begins: bool) -> None:
        """Marks the start or end of the resolution of a reference."""
        with self._lock:
            self._resolving += 1 if begins else -1
            if self._resolving == 0:
                held, self._held = self._held, []
                for level, text, values, moment in held:
                    self._add_line(level, text, values, moment)
                if held:
                    self.flush()

    def _add_line(self, level: int, text: str, values: dict[str, Any], moment: float) -> None:
        self._lines += 1
        clean = self.secrets.value(plain(values))
        head = [self._lines, round(moment, 6), level_name(level), self.secrets.text(clip(text))]
        line = _encode([*head, clean])
        if len(line) > _LINE_BYTES:
            line = _encode([*head, {"left_out": f"the values of this line have {len(line)} bytes"}])
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def flush(self) -> None:
        """Sends queued lines."""
        with self._lock:
            self.flush_due = None
            if not self._waiting:
                return
            self._flushed_at = time.monotonic()
            lines = b",".join(self._waiting)
            self._waiting = []
            self._waiting_bytes = 0
            self._send(b'{"k":"log","c":%d,"lines":[%s]}\n' % (self.number, lines))

    def report(
        self, state: str, change: str, changes: dict[str, dict[str, Any]], facts: list[tuple[str, Any, bool]]
    ) -> None:
        """Sends queued lines, then the outcome."""
        with self._lock:
            if self._reported:
                return
            if self._dropped:
                text = (
                    f"{self._dropped} more lines of level DEBUG were left out: {DEBUG_LINES_MAX} is the limit"
                )
                self._add_line(logging.WARNING, text, {"count": self._dropped}, time.time())
            self.flush()
            message: Message = {
                "k": "report",
                "c": self.number,
                "state": state,
                "change": change,
                "changes": self.secrets.value(plain(changes)),
                "facts": [
                    [self.secrets.text(clip(str(name))), self.secrets.value(plain(value)), bool(expires)]
                    for name, value, expires in facts
                ],
                "lines": self._lines,
            }
            if self.effect_undone is not None:
                message["effect_undone"] = self.effect_undone
            self._send(self._fitting(message))
            self._reported = True

    def _fitting(self, message: Message) -> bytes:
        """The report as a line; parts that are too large are replaced by a note."""
        encoded = _encode(message) + b"\n"
        for member in ("changes", "facts"):
            if len(encoded) <= LINE_MAX:
                break
            note = f"left out: this report has {len(encoded)} bytes"
            empty: Any = []
            if member == "changes":
                empty = {name: {"current": None, "desired": note} for name in list(message[member])[:1000]}
            encoded = _encode({**message, member: empty}) + b"\n"
            message = {**message, member: empty}
        return encoded


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


class OperationContext(HandlerContext):
    """The context of handlers in a host: sends log lines, and raises when the operation is cancelled."""

    def __init__(self, operation: Operation, resource: Resource) -> None:
        super().__init__(resource, dry_run=operation.kind == "dryrun")
        self._operation = operation
        self._changed_requires = operation.changed
        self._effect_unknown = operation.unknown_effect
        self._last_lines: deque[tuple[int, str, dict[str, Any], float]] = deque(maxlen=_KEPT_LINES)

    @property
    def logs(self) -> list[data.LogLine]:
        """The last log lines."""
        return [
            data.LogLine(
                level=level_name(level).upper(),
                msg=text,
                args=[],
                kwargs=values,
                timestamp=datetime.datetime.fromtimestamp(moment).astimezone(),
            )
            for level, text, values, moment in self._last_lines
        ]

    def _checkpoint(self) -> None:
        self._operation.checkpoint()

    def begin_effect(self) -> None:
        """Records an effect in the core before it begins."""
        super().begin_effect()
        self._operation.effect_undone = False

    def effect_did_not_happen(self) -> None:
        """Marks the effect as not happened in the report."""
        super().effect_did_not_happen()
        if self._effect_begun:
            self._operation.effect_undone = True

    def _record_effect(self, did_not_happen: bool) -> None:
        self._operation.effect_undone = True
        # A thread that the handler started has no separate operation.
        token = current.set(self._operation)
        try:
            code, result = server.call("begin_effect", {"did_not_happen": did_not_happen})
        finally:
            current.reset(token)
        if code != 200:
            reason = (result or {}).get("message", "") if isinstance(result, dict) else ""
            raise EffectNotBegun(reason or f"the core answered with {code}")

    def _out_of_memory(self) -> None:
        if out_of_memory is not None:
            out_of_memory()

    def _emit(self, level: int, text: str, values: dict[str, Any], moment: float, exc_info: bool) -> None:
        self._operation.log(level, text, values, moment)
        self._last_lines.append((level, text, values, moment))
