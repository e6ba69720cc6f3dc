"""Annotations of plugins: their types in the model, and the conversion of arguments.

A string is a type of the language, verbatim. Python's own types are translated.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any

from inmanta.ast import TypingException
from inmanta.execute.proxy import DynamicProxy
from inmanta.references import Reference

_PLAIN: dict[object, str] = {
    str: "string",
    int: "int",
    float: "float",
    bool: "bool",
    numbers.Number: "number",
    object: "any",
    Any: "any",
    None: "null",
    type(None): "null",
}
# Type checks of values. Elsewhere a float accepts integers; a field of a dataclass does not.
_CHECKED: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_LISTS = (list, collections.abc.Sequence)
_DICTS = (dict, collections.abc.Mapping)
_SPECIAL_WORDS = {"any", "expression"}


@dataclasses.dataclass(frozen=True)
class Node:
    """A parsed annotation.

    :param kind: `text`, `list`, `dict`, `union`, `reference`, `dataclass`, `proxy` or `any`.
    :param text: the type for the core.
    """

    kind: str
    text: str
    inner: tuple[Node, ...] = ()
    python: type[Any] | None = None

    def has_reference(self) -> bool:
        """True if it, or a part of it, may be a reference."""
        return self.kind == "reference" or any(one.has_reference() for one in self.inner)

    def misfit(self, value: object) -> str | None:
        """The mismatch of a dataclass field's value; None if it has this type."""
        if isinstance(value, Reference):
            return None
        if self.kind == "list" and isinstance(value, list):
            return next(filter(None, map(self.inner[0].misfit, value)), None)
        if self.kind == "dict" and isinstance(value, dict):
            return next(filter(None, map(self.inner[0].misfit, value.values())), None)
        if self.kind == "union":
            if value is None and self.text.endswith("?"):
                return None
            wrong = [inner.misfit(value) for inner in self.inner]
            if None in wrong:
                return None
            return wrong[0] if len(wrong) == 1 else self._expected(value)
        fits = {
            "list": isinstance(value, list),
            "dict": isinstance(value, dict),
            "text": self.text not in _CHECKED or _CHECKED[self.text](value),
        }
        return None if fits.get(self.kind, True) else self._expected(value)

    def _expected(self, value: object) -> str:
        return f"Invalid value '{value}', expected {self.text}"


_ANY = Node("any", "any")


class Annotations:
    """Parses annotations.

    :param is_entity: whether a dataclass belongs to an entity; others are plain objects.
    :param warn: called for annotations without an equivalent in the language.
    """

    def __init__(self, is_entity: Callable[[type[Any]], bool], warn: Callable[[str], None]) -> None:
        self._is_entity = is_entity
        self._warn = warn

    def read(self, annotation: object) -> Node:
        """Parses an annotation. Raises TypingException if plugins may not have it."""
        if isinstance(annotation, str):
            return _text(annotation)
        if isinstance(annotation, collections.abc.Hashable) and annotation in _PLAIN:
            return Node("any" if _PLAIN[annotation] == "any" else "text", _PLAIN[annotation])
        alias = getattr(typing, "TypeAliasType", None)
        if alias is not None and isinstance(annotation, alias):
            return self.read(annotation.__value__)
        if isinstance(annotation, typing.NewType):
            return self.read(annotation.__supertype__)
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            return self._annotated(annotation)
        if origin is typing.Union or origin is types.UnionType:
            return self._union([self.read(option) for option in typing.get_args(annotation)])
        return self._class(annotation, origin)

    def _annotated(self, annotation: object) -> Node:
        from inmanta.plugins import ModelType

        arguments = typing.get_args(annotation)
        for extra in reversed(arguments[1:]):
            if isinstance(extra, ModelType):
                keeps_proxy = isinstance(arguments[0], type) and issubclass(arguments[0], DynamicProxy)
                return Node("proxy", extra.model_type) if keeps_proxy else _text(extra.model_type)
        return self.read(arguments[0])

    def _union(self, options: list[Node]) -> Node:
        rest = [option for option in options if option.text != "null"]
        if not rest:
            return Node("text", "null")
        texts = list(dict.fromkeys(option.text for option in rest))
        if len(rest) == 1:
            node = rest[0]
        else:
            node = Node("union", texts[0] if len(texts) == 1 else f"Union[{','.join(texts)}]", tuple(rest))
        if len(rest) == len(options):
            return node
        return Node("union", f"{_guarded(node)}?", (node,))

    def _class(self, annotation: object, origin: object) -> Node:
        cls = origin if origin is not None else annotation
        arguments = typing.get_args(annotation)
        if cls in _LISTS:
            if not arguments:
                return Node("text", "list")
            inner = self.read(arguments[0])
            return Node("list", f"{_guarded(inner)}[]", (inner,))
        if cls in _DICTS:
            return self._dict(annotation, arguments)
        if not isinstance(cls, type):
            return self._unheard(annotation)
        if issubclass(cls, Reference):
            return self._reference(cls, arguments)
        if origin is not None:
            self._refuse_collections(annotation, cls)
        if dataclasses.is_dataclass(cls) and self._is_entity(cls):
            return Node("dataclass", entity_name(cls), python=cls)
        return self._unheard(annotation)

    def _dict(self, annotation: object, arguments: tuple[Any, ...]) -> Node:
        if not arguments:
            return Node("dict", "dict[string, any]", (_ANY,))
        if arguments[0] is not str:
            raise TypingException(
                None,
                f"invalid type {annotation}, the keys of any dict should be 'str', got {arguments[0]} instead",
            )
        inner = self.read(arguments[1])
        return Node("dict", f"dict[string, {inner.text}]", (inner,))

    def _reference(self, cls: type[Any], arguments: tuple[Any, ...]) -> Node:
        target = arguments[0] if arguments else None
        if target is None and cls is not Reference:
            target = cls.get_reference_type()
        inner = _ANY if target is None or isinstance(target, typing.TypeVar) else self.read(target)
        if inner.kind == "dataclass":
            # In the model it is an ordinary instance.
            return Node("reference", inner.text, (inner,))
        return Node("reference", f"Reference[{inner.text}]", (inner,))

    def _refuse_collections(self, annotation: object, cls: type[Any]) -> None:
        """Rejects collections that would need a conversion."""
        if issubclass(cls, collections.abc.Set):
            raise TypingException(
                None, f"invalid type {annotation}, set is not supported on the plugin boundary"
            )
        if issubclass(cls, collections.abc.Mapping):
            wanted = "dict or collections.abc.Mapping"
        elif issubclass(cls, collections.abc.Sequence) and not issubclass(cls, (tuple, str)):
            wanted = "list or collections.abc.Sequence"
        else:
            return
        raise TypingException(None, f"invalid type {annotation}, use {wanted} instead")

    def _unheard(self, annotation: object) -> Node:
        self._warn(
            f"InmantaWarning: Python type {annotation} was implicitly cast to 'Any' because no matching type was "
            "found in the Inmanta DSL. Please refer to the documentation for an overview of supported types at the "
            "plugin boundary."
        )
        return _ANY


def _text(text: str) -> Node:
    """A type of the language. Whitespace is ignored."""
    bare = text.strip()
    return _ANY if bare in _SPECIAL_WORDS else Node("text", bare)


def _guarded(node: Node) -> str:
    """A type before `?` or `[]`."""
    text = node.text
    return f"({text})" if text.endswith("]") and not text.endswith("[]") else text


def entity_name(cls: type[Any]) -> str:
    """The name of the entity for a class of a module."""
    return "::".join([*cls.__module__.split(".")[1:], cls.__name__])
