"""The values of a model as plugins see them: plain Python values, and read-only proxies for the rest.

These are ordinary classes on purpose. Modules subclass them, and replace their methods while they work; all reads
go through `_return_value`, so that they see everything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

from inmanta.ast import (
    MultiUnsetException,
    NotFoundException,
    OptionalValueException,
    RuntimeException,
    UnexpectedReference,
    UnknownException,
    UnsetException,
)
from inmanta.execute.runtime import Instance
from inmanta.execute.util import NoneValue, Unknown
from inmanta.references import Reference
from inmanta.util import JSONSerializable

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity

__all__ = [
    "CallProxy",
    "DictProxy",
    "DynamicProxy",
    "DynamicUnwrapContext",
    "ExportContext",
    "IteratorProxy",
    "MultiUnsetException",
    "NoneValue",
    "OptionalValueException",
    "ProxyContext",
    "ProxyMode",
    "SequenceProxy",
    "UnknownException",
    "UnsetException",
    "exportcontext",
    "get_inmanta_type_for_dataclass",
    "global_proxy_mode",
]


class ProxyMode(enum.Enum):
    """The reader: a plugin, which must declare support for references, or the export, which supports them."""

    PLUGIN = 1
    EXPORT = 2


global_proxy_mode: ContextVar[ProxyMode] = ContextVar("global_proxy_mode", default=ProxyMode.PLUGIN)


class ExportContext:
    """Context manager in which proxies are read for the export."""

    def __init__(self) -> None:
        self._tokens: list[Token[ProxyMode]] = []

    def __enter__(self) -> ExportContext:
        self._tokens.append(global_proxy_mode.set(ProxyMode.EXPORT))
        return self

    def __exit__(self, *_: object) -> None:
        global_proxy_mode.reset(self._tokens.pop())


exportcontext = ExportContext()

UNEXPECTED_REFERENCE = (
    "Encountered unexpected reference value during plugin execution. Plugins are only allowed to access reference"
    " values when declared explicitly. Either use a dataclass entity that supports references (e.g."
    " `int | Reference[int]` attribute annotation), or explicitly allow references on attribute access with the"
    " `inmanta.plugins.allow_reference_values()` wrapper."
)


# Types without a proxy; nearly all reads return one of these.
_PLAIN = frozenset((str, int, float, bool, tuple, type(None)))


class ProxyContext:
    """The path of a proxy, and its permission to read references.

    :param path: for messages.
    :param validated: the annotation of a plugin has been checked against this value and all that it contains.
    :param allow_reference_values: the explicit choice of the code; None if there is none.
    """

    __slots__ = ("allow_reference_values", "path", "validated")

    def __init__(
        self, *, path: str, validated: bool = True, allow_reference_values: bool | None = None
    ) -> None:
        self.path = path
        self.validated = validated
        self.allow_reference_values = allow_reference_values

    def nested(self, *, relative_path: str) -> ProxyContext:
        """The context of a value that was read through this one."""
        return ProxyContext(path=self.path + relative_path, validated=self.validated)

    def allow_references(self) -> ProxyContext:
        """The same path, for code that supports references."""
        return ProxyContext(path=self.path, validated=self.validated, allow_reference_values=True)

    def should_allow_references(self) -> bool:
        if self.allow_reference_values is not None:
            return self.allow_reference_values
        return self.validated or global_proxy_mode.get() is ProxyMode.EXPORT


class DynamicUnwrapContext:
    """Context for converting Python objects to instances, only available at the end of a plugin call."""

    def __init__(self, resolver: object, queue: object, location: object, type_resolver: object) -> None:
        self.resolver = resolver
        self.queue = queue
        self.location = location
        self.type_resolver = type_resolver


class DynamicProxy:
    """A read-only view of an instance."""

    def __init__(self, instance: Any, *, context: ProxyContext | None = None) -> None:
        if context is None:
            context = ProxyContext(path=object.__repr__(instance))
        if isinstance(instance, Instance) and context.validated:
            # The attributes of an instance that is passed to a plugin are not checked.
            context = ProxyContext(
                path=context.path, validated=False, allow_reference_values=context.allow_reference_values
            )
        object.__setattr__(self, "__instance", instance)
        object.__setattr__(self, "__context", context)

    def _get_instance(self) -> Any:
        """The instance behind the proxy."""
        return object.__getattribute__(self, "__instance")

    def _get_context(self) -> ProxyContext:
        return object.__getattribute__(self, "__context")

    def _allow_references(self) -> Self:
        """The same value, through which references may be read."""
        return type(self)(self._get_instance(), context=self._get_context().allow_references())

    @classmethod
    def unwrap(cls, item: object, *, dynamic_context: DynamicUnwrapContext | None = None) -> object:
        """Converts plugin values to model values: proxies are unwrapped, lists and dicts copied."""
        if item is None:
            return NoneValue()
        if isinstance(item, DynamicProxy):
            return item._get_instance()
        if isinstance(item, list):
            return [cls.unwrap(x, dynamic_context=dynamic_context) for x in item]
        if isinstance(item, dict):
            for key, value in item.items():
                if not isinstance(key, str):
                    raise RuntimeException(
                        None,
                        f"dict keys should be strings, got {key} of type {type(key)} with dict value {value}",
                    )
            return {key: cls.unwrap(value, dynamic_context=dynamic_context) for key, value in item.items()}
        if dynamic_context is None:
            entity = get_inmanta_type_for_dataclass(type(item))
            if entity is not None:
                raise RuntimeException(
                    None,
                    f"{item} is a dataclass of type {entity}. "
                    "It can only be converted to an inmanta entity at the plugin boundary",
                )
        return item

    @classmethod
    def return_value(cls, value: object, *, context: ProxyContext | None = None) -> Any:
        """Converts model values to plugin values."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is NoneValue:
            return None
        if context is None:
            context = ProxyContext(path=object.__repr__(value))
        if kind is Instance:
            return DynamicProxy(value, context=context)
        if kind is list:
            return SequenceProxy(value, context=context)  # type: ignore[arg-type]
        if isinstance(value, dict):
            return DictProxy(value, context=context)
        if isinstance(value, Unknown):
            raise UnknownException(value)
        if isinstance(value, (DynamicProxy, Reference, str, int, float, tuple)):
            return value
        if hasattr(value, "__len__"):
            return SequenceProxy(value, context=context)  # type: ignore[arg-type]
        if callable(value):
            return CallProxy(value, context=context)
        return DynamicProxy(value, context=context)

    def _return_value(self, value: object, *, relative_path: str) -> Any:
        """Converts the result of a read through this proxy."""
        if type(value) in _PLAIN:
            return value
        context = self._get_context()
        if isinstance(value, Reference) and not context.should_allow_references():
            path = context.path + relative_path
            raise UnexpectedReference(
                reference=value, message=f"{UNEXPECTED_REFERENCE} Encountered at {path} (= `{value!r}`)."
            )
        return DynamicProxy.return_value(value, context=context.nested(relative_path=relative_path))

    def __getattr__(self, attribute: str) -> Any:
        instance = self._get_instance()
        if isinstance(instance, Instance):
            try:
                value = instance.read(attribute)
            except NotFoundException as error:
                raise AttributeError(error.stmt, error.name) from error
        else:
            try:
                value = instance.get_attribute(attribute).get_value()
            except NotFoundException as error:
                raise AttributeError(error.stmt, error.name) from error
        return self._return_value(value, relative_path=f".{attribute}")

    def __setattr__(self, attribute: str, value: object) -> None:
        raise Exception("Readonly object")

    def _type(self) -> Entity:
        """The entity of the instance."""
        return self._get_instance().type

    def is_unknown(self) -> bool:
        return isinstance(self._get_instance(), Unknown)

    def __hash__(self) -> int:
        return hash(self._get_instance())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DynamicProxy):
            return self._get_instance() == other
        return self._get_instance() == other._get_instance()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, DynamicProxy):
            return self._get_instance() < other
        return self._get_instance() < other._get_instance()

    def __repr__(self) -> str:
        return f"@{self._get_instance()!r}"


class SequenceProxy(DynamicProxy, JSONSerializable):
    """A read-only view of a list."""

    def __init__(self, iterator: Sequence[object], *, context: ProxyContext | None = None) -> None:
        DynamicProxy.__init__(self, iterator, context=context)

    def __getitem__(self, key: int) -> Any:
        instance = self._get_instance()
        if isinstance(key, str):
            return getattr(self, key)
        return self._return_value(instance[key], relative_path=f"[{key}]")

    def __len__(self) -> int:
        return len(self._get_instance())

    def __iter__(self) -> IteratorProxy:
        _prefetch(self._get_instance())
        return IteratorProxy(enumerate(self._get_instance()), context=self._get_context(), sequence=True)

    def json_serialization_step(self) -> list[Any]:
        return list(self)


class DictProxy(DynamicProxy, Mapping, JSONSerializable):  # type: ignore[type-arg]
    """A read-only view of a dict."""

    def __init__(self, mydict: dict[str, object], *, context: ProxyContext | None = None) -> None:
        DynamicProxy.__init__(self, mydict, context=context)

    __hash__ = DynamicProxy.__hash__

    def __getitem__(self, key: str) -> Any:
        return self._return_value(self._get_instance()[key], relative_path=f"[{key!r}]")

    def __len__(self) -> int:
        return len(self._get_instance())

    def __iter__(self) -> IteratorProxy:
        return IteratorProxy(enumerate(self._get_instance()), context=self._get_context())

    def json_serialization_step(self) -> dict[str, Any]:
        return {key: self[key] for key in self._get_instance()}


class CallProxy(DynamicProxy):
    """A proxy for a callable."""

    def __init__(self, instance: Callable[..., object], *, context: ProxyContext | None = None) -> None:
        DynamicProxy.__init__(self, instance, context=context)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._get_instance()(*args, **kwargs)


class IteratorProxy(DynamicProxy, Iterator):  # type: ignore[type-arg]
    """Iterator over a list or over the keys of a dict, with positions."""

    def __init__(
        self,
        iterator: Iterator[tuple[int, object]],
        *,
        context: ProxyContext | None = None,
        sequence: bool = False,
    ) -> None:
        DynamicProxy.__init__(self, iterator, context=context)
        object.__setattr__(self, "__sequence", sequence)

    def _is_sequence(self) -> bool:
        return object.__getattribute__(self, "__sequence")

    def __iter__(self) -> IteratorProxy:
        return self

    def __next__(self) -> Any:
        position, value = next(self._get_instance())
        path = f"[{position}]" if self._is_sequence() else f".keys()[{position}]"
        return self._return_value(value, relative_path=path)


def _prefetch(values: object) -> None:
    """Fetches the instances of a loop in one request."""
    if isinstance(values, list) and len(values) > 1:
        strangers = [value for value in values if isinstance(value, Instance) and not value.is_told()]
        if len(strangers) > 1:
            strangers[0]._source.fetch(strangers)


# The entity of each dataclass; set by the module loader.
paired_entities: dict[type[object], Entity] = {}


def get_inmanta_type_for_dataclass(for_type: type[object]) -> Entity | None:
    """The entity of this dataclass."""
    return paired_entities.get(for_type)
