"""The cache of one agent's handlers across operations: connections, responses of slow services.

Everything here happens on the thread of the agent: entries are created, used and evicted there, because their
values (mostly connections) are often bound to a thread. Threads that handlers start may use it, too; so loops use
copies.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inmanta.agent.executor import AgentInstance
    from inmanta.resources import Resource

LOGGER = logging.getLogger(__name__)

DEFAULT_LIFE_S = 5000.0
DEFAULT_IDLE_S = 60.0


class CacheItem:
    """A cached value, its lifetime, and its eviction callback."""

    __slots__ = (
        "call_on_delete",
        "created",
        "deleted",
        "evict_after_creation",
        "evict_after_last_access",
        "key",
        "last_used",
        "value",
        "version",
    )

    def __init__(
        self,
        key: str,
        value: Any,
        call_on_delete: Callable[[Any], None] | None,
        evict_after_last_access: float,
        evict_after_creation: float,
        version: int | None = None,
        now: float | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self.call_on_delete = call_on_delete
        self.evict_after_last_access = evict_after_last_access
        self.evict_after_creation = evict_after_creation
        self.version = version
        self.created = time.monotonic() if now is None else now
        self.last_used = self.created
        self.deleted = False

    def refresh(self, now: float) -> None:
        """Marks the value as used now."""
        self.last_used = now

    def expires_at(self) -> float:
        """The time at which it becomes stale."""
        moment = float("inf")
        if self.evict_after_creation > 0:
            moment = self.created + self.evict_after_creation
        if self.evict_after_last_access > 0:
            moment = min(moment, self.last_used + self.evict_after_last_access)
        return moment

    def delete(self) -> None:
        """Runs the callback once. Exceptions are logged, including SystemExit."""
        if self.deleted:
            return
        self.deleted = True
        if self.call_on_delete is None:
            return
        try:
            self.call_on_delete(self.value)
        except BaseException:
            LOGGER.exception("The callback for the cached value of %s failed", self.key)

    def __del__(self) -> None:
        # A cache that was never closed.
        if not getattr(self, "deleted", True):
            self.delete()


def retention(
    for_version: bool | None,
    timeout: float | None,
    evict_after_last_access: float,
    evict_after_creation: float,
    has_version: bool,
) -> tuple[float, float]:
    """Lifetime of an entry after its last use and after its creation; 0 for no limit."""
    if for_version is False:
        return 0.0, float(evict_after_creation or timeout or DEFAULT_LIFE_S)
    if for_version is True:
        # For values bound to a version, the timeout is a second limit: whichever comes first.
        life = evict_after_creation or (timeout if has_version and timeout else 0.0)
        return float(evict_after_last_access or DEFAULT_IDLE_S), float(life)
    if evict_after_last_access > 0 or evict_after_creation > 0:
        return float(evict_after_last_access), float(evict_after_creation)
    if timeout:
        return 0.0, float(timeout)
    return DEFAULT_IDLE_S, 0.0


class _Lock:
    """The lock of a key, and the number of threads that hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0


class AgentCache:
    """The values of one agent.

    :param clock: monotonic seconds; replaced in tests.
    """

    def __init__(
        self, agent_instance: AgentInstance | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agent_instance = agent_instance
        self._clock = clock
        self._items: dict[str, CacheItem] = {}
        self._used: set[str] = set()
        self._locks: dict[str, _Lock] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def _get_key(self, key: str, resource: Resource | None) -> str:
        return key if resource is None else f"{resource.id.resource_str()}_{key}"

    def _get(self, key: str) -> CacheItem:
        item = self._items[key]
        if item.expires_at() <= self._clock():
            self._evict_item(key)
            raise KeyError(key)
        self._used.add(key)
        return item

    def _evict_item(self, key: str) -> None:
        item = self._items.pop(key, None)
        self._used.discard(key)
        if item is not None:
            item.delete()

    def find(self, key: str, resource: Resource | None = None) -> Any:
        """A fresh value; raises KeyError if there is none."""
        return self._get(self._get_key(key, resource)).value

    def cache_value(
        self,
        key: str,
        value: Any,
        evict_after_last_access: float = DEFAULT_IDLE_S,
        evict_after_creation: float = 0,
        resource: Resource | None = None,
        call_on_delete: Callable[[Any], None] | None = None,
        version: int | None = None,
    ) -> None:
        """Stores a value; raises if the key exists."""
        full = self._get_key(key, resource)
        if full in self._items:
            raise Exception("Added same item twice")
        self._items[full] = CacheItem(
            full, value, call_on_delete, evict_after_last_access, evict_after_creation, version, self._clock()
        )
        self._used.add(full)

    def get_or_make(
        self,
        name: str,
        make: Callable[[], Any],
        arguments: Mapping[str, Any],
        *,
        ignore: Collection[str] = (),
        timeout: float | None = None,
        for_version: bool | None = None,
        cache_none: bool = True,
        call_on_delete: Callable[[Any], None] | None = None,
        evict_after_last_access: float = 0.0,
        evict_after_creation: float = 0.0,
    ) -> Any:
        """The value for a function and its arguments; computed if missing, by one thread at a time."""
        key = make_key(name, arguments, ignore)
        with self._locked_key(key):
            try:
                return self._get(key).value
            except KeyError:
                pass
            value = make()
            if value is None and not cache_none:
                return None
            has_version = "version" in arguments
            idle, life = retention(
                for_version, timeout, evict_after_last_access, evict_after_creation, has_version
            )
            bound = arguments.get("version") if has_version and for_version is not False else None
            version = bound if isinstance(bound, int) and not isinstance(bound, bool) else None
            self.cache_value(key, value, idle, life, None, call_on_delete, version)
            return value

    @contextlib.contextmanager
    def _locked_key(self, key: str) -> Iterator[None]:
        """Holds the lock of a key, which exists while a thread holds it or waits for it."""
        with self._guard:
            held = self._locks.setdefault(key, _Lock())
            held.users += 1
        try:
            with held.lock:
                yield
        finally:
            with self._guard:
                held.users -= 1
                if held.users == 0:
                    self._locks.pop(key, None)

    def get_or_else(
        self,
        key: str,
        function: Callable[..., Any],
        for_version: bool | None = None,
        timeout: int | None = None,
        evict_after_last_access: float = 0.0,
        evict_after_creation: float = 0.0,
        ignore: Collection[str] = frozenset(),
        cache_none: bool = True,
        call_on_delete: Callable[[Any], None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The value of a function for these arguments; it is called if there is none."""
        return self.get_or_make(
            key,
            lambda: function(**kwargs),
            kwargs,
            ignore=ignore,
            timeout=timeout,
            for_version=for_version,
            cache_none=cache_none,
            call_on_delete=call_on_delete,
            evict_after_last_access=evict_after_last_access,
            evict_after_creation=evict_after_creation,
        )

    def touch_used_cache_items(self) -> None:
        """Marks the values that an ended operation used as used now."""
        now = self._clock()
        for key in list(self._used):
            item = self._items.get(key)
            if item is not None:
                item.refresh(now)
        self._used.clear()

    def clean_stale_entries(self) -> None:
        """Evicts stale values."""
        now = self._clock()
        for key in [key for key, item in list(self._items.items()) if item.expires_at() <= now]:
            self._evict_item(key)

    def close_versions_before(self, version: int) -> None:
        """Evicts values bound to versions before this one."""
        stale = [
            key
            for key, item in list(self._items.items())
            if item.version is not None and item.version < version
        ]
        for key in stale:
            self._evict_item(key)

    def next_expiry(self) -> float | None:
        """Seconds until the next value becomes stale; None if none will."""
        moments = [item.expires_at() for item in list(self._items.values())]
        soonest = min(moments, default=float("inf"))
        return None if soonest == float("inf") else max(0.0, soonest - self._clock())

    def close(self) -> None:
        """Evicts all values."""
        for key in list(self._items):
            self._evict_item(key)


def make_key(name: str, arguments: Mapping[str, Any], ignore: Collection[str]) -> str:
    """The key for a function, by its full name, and its arguments. A resource is keyed by its id without version."""
    parts = []
    for argument in sorted(arguments):
        if argument in ignore:
            continue
        value = arguments[argument]
        if argument == "resource" and hasattr(value, "id"):
            parts.append(f"resource={value.id.resource_str()}")
        else:
            parts.append(f"{argument}={value!r}")
    return f"{name}({', '.join(parts)})"
