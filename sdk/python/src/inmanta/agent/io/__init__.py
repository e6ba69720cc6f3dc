"""Access to the machine of an agent, for handlers of the first generation: `local:`, `ssh://user@host:port`, a name.

Handlers get an object of these classes when they are created. It connects on first use, so that
handlers that do not use it cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from inmanta.agent.cache import AgentCache
    from inmanta.agent.io.local import IOBase

# Idle time after which a connection is closed.
_IDLE_S = 60.0

# Set by the host: raises if the agent of the running operation is not this machine.
check_machine: Callable[[], None] | None = None


class MachineUnavailable(BaseException):
    """The agent has no machine here. Not an Exception, so that handlers do not catch it."""


def get_io(cache: AgentCache | None, uri: str, version: int = 0) -> IOBase:
    """The object for an address, cached until it is idle for a while."""
    if check_machine is not None and parse_address(uri) is None:
        check_machine()
    if cache is None:
        return _open(uri)
    return cache.get_or_make(
        "inmanta.agent.io.get_io",
        lambda: _open(uri),
        {"uri": uri},
        evict_after_last_access=_IDLE_S,
        call_on_delete=lambda found: found.close(),
    )


def parse_address(uri: str) -> dict[str, Any] | None:
    """The parts of an address; None for this machine."""
    if uri in ("", "local:", "localhost") or uri.startswith("local:"):
        return None
    if "://" not in uri:
        uri = f"ssh://{uri}"
    parts = urlsplit(uri)
    if parts.scheme != "ssh":
        raise ValueError(
            f"an agent's address has to be `local:`, `ssh://…` or the name of a host, not {uri!r}"
        )
    if not parts.hostname:
        raise ValueError(f"the address {uri!r} has no host")
    if parts.hostname == "localhost" and parts.port is None and parts.username is None:
        return None
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = set(options) - {"python", "retries", "retry_wait"}
    if unknown:
        raise ValueError(f"the address {uri!r} has unknown options: {', '.join(sorted(unknown))}")
    return {
        "host": parts.hostname,
        "user": parts.username or "root",
        "port": parts.port,
        "python": options.get("python", "python3"),
        "retries": int(options.get("retries", 10)),
        "retry_wait": float(options.get("retry_wait", 30)),
    }


def _open(uri: str) -> IOBase:
    address = parse_address(uri)
    if address is None:
        from inmanta.agent.io.local import LocalIO

        return LocalIO()
    from inmanta.agent.io.remote import SshIO

    return SshIO(**address)


class LazyIO:
    """Lazy proxy for the object of an address.

    :param refuse: called before each use; raises if there is no machine.
    """

    def __init__(self, uri: str, cache: AgentCache | None, refuse: Callable[[], None] | None = None) -> None:
        self._uri = uri
        self._cache = cache
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._refuse is not None:
            self._refuse()
        return getattr(get_io(self._cache, self._uri), name)

    def close(self) -> None:
        """Does nothing: the connection stays cached for other handlers."""
