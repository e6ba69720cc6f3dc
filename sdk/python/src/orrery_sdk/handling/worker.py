"""The thread of one agent: its operations, one after the other, and its cache."""

from __future__ import annotations

import functools
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from inmanta.agent.cache import AgentCache
from orrery_sdk.handling.execute import HostedAgent, run_operation
from orrery_sdk.handling.operation import Operation
from orrery_sdk.wire import Closed

# Upper bound of a wait: the number of workers may have grown meanwhile.
_NAP_MAX_S = 5.0


@dataclass(frozen=True)
class NewerVersion:
    """Message that a new version is deployed: values bound to older ones are closed."""

    number: int


class Worker:
    """Runs the operations of its queue until it is retired or idle for too long.

    :param idle_limit: the idle limit in seconds for a number of cached values.
    :param may_leave: called when idle; returns true, and removes the worker, if it may end.
    """

    def __init__(
        self,
        name: str,
        environment: str | None,
        idle_limit: Callable[[int], float],
        may_leave: Callable[[Worker], bool],
        finished: Callable[[Operation], None],
        predecessor: threading.Thread | None,
    ) -> None:
        self.name = name
        self._environment = environment
        self._idle_limit = idle_limit
        self._may_leave = may_leave
        self._finished = finished
        self._predecessor = predecessor
        self._agent = HostedAgent(name, "local:", environment)
        self._cache = AgentCache(self._agent)
        self.inbox: queue.SimpleQueue[Operation | NewerVersion | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=f"agent-{name}", daemon=True)

    def _run(self) -> None:
        if self._predecessor is not None:
            # The same agent has just been retired: its connections are closed before new ones are opened.
            self._predecessor.join()
        try:
            self._serve()
        except Closed:
            pass
        finally:
            self._agent.stopped = True
            self._run_logged(self._cache.close)

    def _serve(self) -> None:
        idle_since = time.monotonic()
        while True:
            try:
                operation = self.inbox.get(timeout=self._nap(idle_since))
            except queue.Empty:
                self._run_logged(self._cache.clean_stale_entries)
                idle = time.monotonic() - idle_since
                if idle >= self._idle_limit(len(self._cache)) and self._may_leave(self):
                    return
                continue
            if operation is None:
                # Retired. Operations queued after that still run.
                if self._may_leave(self):
                    return
                continue
            if isinstance(operation, NewerVersion):
                close = functools.partial(self._cache.close_versions_before, operation.number)
                self._run_logged(close)
                continue
            self._agent.uri = operation.uri
            try:
                run_operation(operation, self._agent, self._cache)
            except Closed:
                raise
            except BaseException:
                # Not a failure of the handler, which would have been reported; the agent continues.
                traceback.print_exc(file=sys.stderr)
                operation.report("failed", "nochange", {}, [])
            finally:
                self._finished(operation)
            idle_since = time.monotonic()

    def _nap(self, idle_since: float) -> float:
        left = max(0.0, self._idle_limit(len(self._cache)) - (time.monotonic() - idle_since))
        stale_in = self._cache.next_expiry()
        # A moment later than the expiry, so that waking up finds it expired.
        return min(left if stale_in is None else min(left, stale_in + 0.05), _NAP_MAX_S)

    def _run_logged(self, function: Callable[[], None]) -> None:
        """Runs a callback of a handler; exceptions are only logged."""
        try:
            function()
        except BaseException:
            traceback.print_exc(file=sys.stderr)
