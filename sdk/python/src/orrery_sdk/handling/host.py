"""The role `handlers`: reads messages of the core, and runs a thread for each agent.

Threads: this one reads and answers pings, so that the core can distinguish a busy host from a dead one; the clock sends
log lines that are due and enforces deadlines; each agent has a worker.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import threading
import time
from typing import Any

from inmanta import references
from inmanta.agent import io as agent_io
from inmanta.agent.handler import Commander
from inmanta.config import Config
from orrery_sdk import loop, server
from orrery_sdk.handling import operation as operations
from orrery_sdk.handling.operation import Operation, current
from orrery_sdk.handling.redact import clean_output
from orrery_sdk.handling.worker import NewerVersion, Worker
from orrery_sdk.session import Session
from orrery_sdk.wire import EXIT_NO_MEMORY, Closed, Message, Wire, WireError, die

IDLE_S = 60.0

# With more workers than this, idle ones end earlier: a thread for each of ten thousand agents is too many.
_WORKERS_MAX = 256
_IDLE_OF_MANY_S = 2.0

# Grace period for running operations after the core is gone.
_FAREWELL_S = 2.0


class HandlerHost:
    """One host process in this role."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._session = session
        self._idle_s = float(Config.get("handlers", "retire_after", IDLE_S))
        self._guard = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._leaving: dict[str, threading.Thread] = {}
        self._operations: dict[int, Operation] = {}
        self._calls: dict[int, _Pending] = {}
        self._next_call = 0
        self._closing = False
        self._lost = False
        self._clock = _Clock(self)

    def run(self) -> int:
        """Serves until the core ends the host or disconnects."""
        server.use_carrier(self._call_core)
        references._on_resolved = self._record_secret
        references._on_resolving = _hold_lines
        operations.out_of_memory = self._out_of_memory
        loop.checkpoint = _checkpoint
        agent_io.check_machine = _check_machine
        problems = self._session.load()
        self._wire.send(
            {
                "k": "loaded",
                "problems": problems,
                "handlers": sorted(Commander.get_handlers()),
                "versions": True,
                "references": sorted(name for name, _cls in references.reference.get_references()),
                "mutators": sorted(name for name, _cls in references.mutator.get_mutators()),
            }
        )
        try:
            while True:
                self._dispatch(self._wire.receive())
        except Closed:
            self._handle_disconnect()
            return 0

    def _dispatch(self, message: Message) -> None:
        kind = message["k"]
        if kind == "op":
            self._start(message)
        elif kind == "cancel":
            with self._guard:
                operation = self._operations.get(message.get("c", -1))
            if operation is not None:
                operation.cancel("cancel")
        elif kind == "version":
            version = message.get("version")
            if not isinstance(version, int):
                raise WireError("a `version` has to have a number `version`")
            with self._guard:
                for worker in self._workers.values():
                    worker.inbox.put(NewerVersion(version))
        elif kind == "retire":
            with self._guard:
                worker = self._workers.get(message.get("agent", ""))
                if worker is not None:
                    worker.inbox.put(None)
        elif kind == "reply":
            with self._guard:
                pending = self._calls.pop(message.get("q", -1), None)
            if pending is not None:
                pending.answer(int(message.get("code", 500)), message.get("result"))
        elif kind == "ping":
            self._wire.send({"k": "pong", "n": message.get("n")})
        elif kind == "pong":
            pass
        elif kind == "shutdown":
            self._shut_down()
        else:
            raise WireError(f"a message of the unknown kind `{kind}`")

    # Operations.

    def _start(self, message: Message) -> None:
        if not isinstance(message.get("c"), int) or not isinstance(message.get("resource"), dict):
            raise WireError("an `op` has to have a number `c` and an object `resource`")
        operation = Operation(message, self._wire.send_bytes, self._clock.wake)
        with self._guard:
            self._operations[operation.number] = operation
            worker = self._workers.get(operation.agent)
            if worker is None:
                worker = Worker(
                    operation.agent,
                    self._session.environment,
                    self._idle_limit,
                    self._may_leave,
                    self._finished,
                    self._leaving.pop(operation.agent, None),
                )
                self._workers[operation.agent] = worker
                worker.thread.start()
            worker.inbox.put(operation)
            if self._closing:
                worker.inbox.put(None)

    def _idle_limit(self, cached: int) -> float:
        """Idle time limit of a worker: short if there are many, zero if its cache is empty."""
        if len(self._workers) <= _WORKERS_MAX:
            return self._idle_s
        return min(self._idle_s, _IDLE_OF_MANY_S if cached else 0.0)

    def _may_leave(self, worker: Worker) -> bool:
        with self._guard:
            if not worker.inbox.empty():
                return False
            if self._workers.get(worker.name) is worker:
                del self._workers[worker.name]
                self._leaving[worker.name] = worker.thread
                for name in [name for name, thread in self._leaving.items() if not thread.is_alive()]:
                    del self._leaving[name]
            return True

    def _finished(self, operation: Operation) -> None:
        with self._guard:
            self._operations.pop(operation.number, None)

    def active(self) -> list[Operation]:
        """The running and queued operations."""
        with self._guard:
            return list(self._operations.values())

    def _sole_operation(self) -> Operation | None:
        """The only operation, to which a thread started by a handler must belong; None if there are several."""
        active = self.active()
        return active[0] if len(active) == 1 else None

    def _out_of_memory(self) -> None:
        """Ends the process on memory exhaustion; the core repeats each operation in a separate process."""
        active = self.active()
        if len(active) > 1:
            for operation in active:
                operation.flush()
            die(EXIT_NO_MEMORY, "there is no more memory for this process")

    def _record_secret(self, value: object) -> None:
        operation = current.get()
        # In a thread started by a handler, the operation is unknown.
        for found in self.active() if operation is None else [operation]:
            found.secrets.add(value)

    # Calls of the core.

    def _call_core(self, method: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        operation = current.get() or self._sole_operation()
        pending = _Pending()
        with self._guard:
            if self._lost:
                raise ConnectionRefusedError(f"the core is gone; {method} cannot be called")
            self._next_call += 1
            number = self._next_call
            self._calls[number] = pending
        message: Message = {"k": "server", "q": number, "method": method, "args": arguments}
        if operation is not None:
            message["c"] = operation.number
        try:
            self._wire.send(message)
            while not pending.wait(0.2):
                if operation is not None:
                    operation.checkpoint()
        finally:
            with self._guard:
                self._calls.pop(number, None)
        return pending.result()

    # The end.

    def _shut_down(self) -> None:
        with self._guard:
            if self._closing:
                return
            self._closing = True
            for worker in self._workers.values():
                worker.inbox.put(None)
        # This thread continues to read: operations that finish may still call the core.
        threading.Thread(target=self._leave, name="shutdown", daemon=True).start()

    def _leave(self) -> None:
        while threads := self._threads():
            for thread in threads:
                thread.join()
        end_process(0)

    def _threads(self) -> list[threading.Thread]:
        with self._guard:
            threads = [worker.thread for worker in self._workers.values()]
            threads.extend(self._leaving.values())
        return [thread for thread in threads if thread.is_alive()]

    def _handle_disconnect(self) -> None:
        """Shuts down after the core is gone: closes connections if that is quick, and starts nothing."""
        with self._guard:
            self._lost = True
            calls = list(self._calls.values())
            operations = list(self._operations.values())
            for worker in self._workers.values():
                worker.inbox.put(None)
        for operation in operations:
            operation.cancel("cancel")
        for call in calls:
            call.fail()
        end = time.monotonic() + _FAREWELL_S
        for thread in self._threads():
            thread.join(max(0.0, end - time.monotonic()))


def _checkpoint() -> None:
    """Raises in the thread of a cancelled operation."""
    operation = current.get()
    if operation is not None:
        operation.checkpoint()


def _check_machine() -> None:
    """Raises if this machine is not that of the current operation's agent."""
    operation = current.get()
    if operation is not None:
        operation.check_machine()


class _Pending:
    """A call of the core that waits for its response."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: tuple[int, Any] | None = None

    def wait(self, timeout: float) -> bool:
        return self._done.wait(timeout)

    def answer(self, code: int, result: Any) -> None:
        self._answer = (code, result)
        self._done.set()

    def fail(self) -> None:
        self._done.set()

    def result(self) -> tuple[int, Any]:
        if self._answer is None:
            raise ConnectionResetError("the core went away before it answered")
        return self._answer


class _Clock:
    """Sends log lines that are due, and cancels overdue operations."""

    def __init__(self, host: HandlerHost) -> None:
        self._host = host
        self._changed = threading.Condition()
        self._next = float("inf")
        self._thread: threading.Thread | None = None

    def wake(self, _operation: Operation, moment: float) -> None:
        """Schedules a wake-up."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
                self._thread.start()
            if moment < self._next:
                self._next = moment
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (left := self._next - time.monotonic()) > 0:
                    self._changed.wait(None if left == float("inf") else left)
                self._next = float("inf")
            try:
                soonest = self._look()
            except Closed:
                return
            with self._changed:
                self._next = min(self._next, soonest)

    def _look(self) -> float:
        now = time.monotonic()
        soonest = float("inf")
        for operation in self._host.active():
            if operation.ends_at is not None:
                if operation.ends_at <= now:
                    operation.cancel("deadline")
                    operation.ends_at = None
                else:
                    soonest = min(soonest, operation.ends_at)
            due = operation.flush_due
            if due is not None:
                if due <= now:
                    operation.flush()
                else:
                    soonest = min(soonest, due)
        return soonest


def _hold_lines(begins: bool) -> None:
    operation = current.get()
    if operation is not None:
        operation.resolving(begins)


def end_process(status: int) -> None:
    """Ends the process at once, whatever runs in it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(status)


def run(wire: Wire, session: Session) -> int:
    """Runs the role until the core ends it."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        # The output of handlers is logged line by line, and never fails on an unencodable character.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")
    clean_output()
    # An interrupt at the terminal is handled by the core, which ends its hosts. A function that does
    # nothing, and not "ignore", which programs that handlers start would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    return HandlerHost(wire, session).run()
