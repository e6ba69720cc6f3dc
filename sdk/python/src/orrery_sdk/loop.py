"""A shared event loop for asynchronous code, in a separate thread that starts on first use."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_guard = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None

# Called periodically by a waiting thread; raises if the wait must end.
checkpoint: Callable[[], None] | None = None

_NAP_S = 0.2


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use."""
    global _loop
    import asyncio

    with _guard:
        if _loop is None or _loop.is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(loop,), name="event-loop", daemon=True).start()
            _loop = loop
        return _loop


def _run(loop: Any) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    loop.run_forever()


def run_and_wait(function: Callable[[], Awaitable[T]], timeout: float | None = None) -> T:
    """Runs a coroutine function and returns its result. Raises TimeoutError."""
    import asyncio
    import time
    from concurrent.futures import wait

    async def call() -> T:
        return await function()

    future = asyncio.run_coroutine_threadsafe(call(), running_loop())
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while not wait([future], _NAP_S if end is None else min(_NAP_S, end - time.monotonic())).done:
            if checkpoint is not None:
                checkpoint()
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the answer did not come within {timeout} s")
    except BaseException:
        future.cancel()
        raise
    return future.result()
