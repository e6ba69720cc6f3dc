"""Clients of the orchestrator's API. Calls use the existing connection of the host."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from inmanta.protocol.common import Result
from orrery_sdk import server

# Parameter order of methods that modules call with positional arguments.
_POSITIONAL: dict[str, tuple[str, ...]] = {
    "list_params": ("tid", "query"),
    "get_param": ("tid", "id", "resource_id"),
    "set_param": ("tid", "id", "source", "value", "resource_id", "metadata", "recompile", "expires"),
    "delete_param": ("tid", "id", "resource_id"),
    "get_facts": ("tid", "rid"),
    "get_environment": ("id", "versions", "resources"),
    "create_token": ("tid", "client_types", "idempotent"),
    "get_file": ("id",),
    "stat_file": ("id",),
    "upload_file": ("id", "content"),
    "resource_did_dependency_change": ("tid", "rvid"),
    "discovered_resource_create_batch": ("tid", "discovered_resources"),
}


def _named(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if not args:
        return kwargs
    names = _POSITIONAL.get(method, ())
    if len(args) > len(names):
        raise TypeError(
            f"{method}() takes at most {len(names)} arguments without a name, but {len(args)} were given"
        )
    named = dict(zip(names, args, strict=False))
    for name in named:
        if name in kwargs:
            raise TypeError(f"{method}() got multiple values for argument '{name}'")
    return {**named, **kwargs}


class _Call:
    """A call that is sent when it is awaited."""

    def __init__(self, method: str, arguments: dict[str, Any]) -> None:
        self._method = method
        self._arguments = arguments

    def __await__(self) -> Generator[Any, None, Result]:
        return self._run().__await__()

    async def _run(self) -> Result:
        import asyncio
        import contextvars

        # The calling thread must know its operation.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        code, result = await loop.run_in_executor(
            None, context.run, server.call, self._method, self._arguments
        )
        return Result(code, result)

    async def value(self) -> Any:
        """The data of the response; raises if the call failed."""
        return (await self._run()).value()


class Client:
    """The API for coroutines: each method returns an awaitable."""

    def __init__(self, name: str = "compiler", timeout: int = 120, **_others: object) -> None:
        self.name = name
        self.timeout = timeout

    def __getattr__(self, method: str) -> Callable[..., _Call]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> _Call:
            return _Call(method, _named(method, args, kwargs))

        return call

    def close(self) -> None:
        """Does nothing: the connection belongs to the host."""


class SyncClient:
    """The synchronous API: each method returns the result."""

    def __init__(
        self,
        name: str | None = None,
        timeout: int = 120,
        client: Client | None = None,
        ioloop: object = None,
    ) -> None:
        if name is None and client is None:
            raise Exception("Either name or client needs to be provided.")
        self.name = name if name is not None else client.name  # type: ignore[union-attr]
        self.timeout = timeout

    def __getattr__(self, method: str) -> Callable[..., Result]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> Result:
            code, result = server.call(method, _named(method, args, kwargs))
            return Result(code, result)

        return call
