"""Registry of handlers, and the cache decorator. Modules import all from `inmanta.agent.handler`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from inmanta.agent.executor import AgentInstance
    from inmanta.agent.handler import HandlerAPI
    from inmanta.resources import Resource

PUBLIC_MODULE = "inmanta.agent.handler"

T = TypeVar("T")
T_FUNC = TypeVar("T_FUNC", bound=Callable[..., Any])


class HandlerNotAvailableException(Exception):
    """No handler, or more than one, is available for a resource."""

    __module__ = PUBLIC_MODULE


class provider:
    """Registers a handler class for a type of resources.

    :param resource_type: the full name of the entity.
    :param name: distinguishes several handlers of one type; only used if they implement `available`.
    """

    __module__ = PUBLIC_MODULE

    def __init__(self, resource_type: str, name: str | None = None) -> None:
        self._resource_type = resource_type
        self._name = name

    def __call__(self, function: type[T]) -> type[T]:
        Commander.add_provider(self._resource_type, function, self._name)  # type: ignore[arg-type]
        return function


class Commander:
    """Registry of handler classes by resource type."""

    __module__ = PUBLIC_MODULE

    _providers: dict[str, dict[str, type[HandlerAPI[Any]]]] = {}

    @classmethod
    def add_provider(cls, resource: str, provider: type[HandlerAPI[Any]], name: str | None = None) -> None:
        """Registers a class; a later one replaces an earlier one of the same name."""
        key = name or f"{provider.__module__}.{provider.__qualname__}"
        known = cls._providers.setdefault(resource, {})
        known.pop(key, None)
        known[key] = provider

    @classmethod
    def get_provider(cls, agent: AgentInstance, resource: Resource, io: object = None) -> HandlerAPI[Any]:
        """A handler object for a resource.

        The class that was registered last, unless one of them has a method `available`. Then it is called on all, and
        exactly one must return true.
        """
        resource_type = resource.id.entity_type
        known = cls._providers.get(resource_type)
        if not known:
            raise HandlerNotAvailableException(
                f"No resource handler registered for resource of type {resource_type}"
            )
        if not any(callable(getattr(found, "available", None)) for found in known.values()):
            return _instantiate(list(known.values())[-1], agent, io)
        willing: list[HandlerAPI[Any]] = []
        for found in known.values():
            handler = _instantiate(found, agent, io)
            available = getattr(handler, "available", None)
            if available is None or available(resource):
                willing.append(handler)
            else:
                handler.close()
        if len(willing) != 1:
            for handler in willing:
                handler.close()
            how_many = "no" if not willing else "more than one"
            raise HandlerNotAvailableException(f"There is {how_many} handler available for {resource.id}")
        return willing[0]

    @classmethod
    def get_handlers(cls) -> dict[str, type[HandlerAPI[Any]]]:
        """For each type the class that was registered last."""
        return {name: list(known.values())[-1] for name, known in cls._providers.items()}

    @classmethod
    def get_providers(cls) -> Iterator[tuple[str, type[HandlerAPI[Any]]]]:
        """All types with all their classes."""
        for name, known in cls._providers.items():
            for found in known.values():
                yield name, found

    @classmethod
    def get_provider_class(cls, resource_type: str, name: str) -> type[HandlerAPI[Any]] | None:
        """The class of a type that was registered under a name, else the last one."""
        known = cls._providers.get(resource_type)
        if not known:
            return None
        return known.get(name, list(known.values())[-1])

    @classmethod
    def reset(cls) -> None:
        """Removes all classes."""
        cls._providers = {}

    @classmethod
    def close(cls) -> None:
        """Does nothing: there are no open resources."""


def _instantiate(found: type[HandlerAPI[Any]], agent: AgentInstance, io: object) -> HandlerAPI[Any]:
    return found(agent, io=io) if io is not None and _takes_io(found) else found(agent)


@functools.cache
def _takes_io(found: type[HandlerAPI[Any]]) -> bool:
    """True if a constructor has the parameter `io`; newer handlers need not."""
    code = getattr(found.__init__, "__code__", None)
    if code is None:
        return False
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes_any_name = bool(code.co_flags & 0x08)
    return "io" in names or takes_any_name


def cache(
    func: T_FUNC | None = None,
    ignore: list[str] = [],
    timeout: int | None = None,
    for_version: bool | None = None,
    cache_none: bool = True,
    cacheNone: bool | None = None,
    call_on_delete: Callable[[Any], None] | None = None,
    evict_after_creation: float = 0.0,
    evict_after_last_access: float = 0.0,
) -> Any:
    """Caches the result of a handler method by its arguments, across operations of the agent.

    :param ignore: arguments that are not part of the key.
    :param timeout: seconds until a value is evicted.
    :param for_version: whether a value belongs to the version in the argument `version`, if there is one.
    :param cache_none: whether None is cached. `cacheNone` is its deprecated name.
    :param call_on_delete: called with an evicted value.
    :param evict_after_creation: seconds until a value is evicted.
    :param evict_after_last_access: seconds without access until a value is evicted.
    """
    keep_none = cache_none if cacheNone is None else cacheNone
    ignored = frozenset(ignore)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def signature() -> Any:
            # Lazy: `inspect` is slow to import, and hosts should start fast.
            import inspect

            return inspect.signature(function)

        # Keyed by the function and not by the handler's class: inherited methods are shared, others of the same
        # name is not.
        name = f"{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def wrapper(self: HandlerAPI[Any], *args: Any, **kwargs: Any) -> Any:
            bound = signature().bind(self, *args, **kwargs)
            bound.apply_defaults()
            arguments = dict(list(bound.arguments.items())[1:])
            return self._orrery_cache_in_use().get_or_make(
                name,
                lambda: function(*bound.args, **bound.kwargs),
                arguments,
                ignore=ignored,
                timeout=timeout,
                for_version=for_version,
                cache_none=keep_none,
                call_on_delete=call_on_delete,
                evict_after_creation=evict_after_creation,
                evict_after_last_access=evict_after_last_access,
            )

        return wrapper

    return decorate if func is None else decorate(func)


cache.__module__ = PUBLIC_MODULE
