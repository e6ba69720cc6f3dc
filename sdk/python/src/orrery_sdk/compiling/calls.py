"""Calls of plugins: conversion of model values to arguments, and of results to model values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inmanta.ast import Locatable, Location, Namespace, Range, RuntimeException
from inmanta.ast.entity import Entity
from inmanta.execute.proxy import DynamicProxy, ProxyContext
from inmanta.execute.runtime import Instance, QueueScheduler, Resolver, ResultVariable
from inmanta.execute.util import NoneValue, Unknown
from inmanta.plugins import Context
from inmanta.references import Reference
from orrery_sdk.compiling import failures
from orrery_sdk.compiling.annotations import Node
from orrery_sdk.compiling.manifest import HostedPlugin
from orrery_sdk.wire import Message, WireError

if TYPE_CHECKING:
    from orrery_sdk.compiling.host import CompileHost


class Caller(Locatable):
    """The calling statement, with its namespace and source location."""

    def __init__(self, name: str, namespace: Namespace, location: Location) -> None:
        self.name = name
        self.namespace = namespace
        self.set_location(location)

    def get_namespace(self) -> Namespace:
        return self.namespace

    def __str__(self) -> str:
        return f"{self.name}(...)"


class Calls:
    """Executes the calls that the core requests."""

    def __init__(self, host: CompileHost) -> None:
        self._host = host
        self._converted_entities: dict[tuple[str, str], Entity | None] = {}

    def one(self, message: Message) -> Message:
        """Answers `call`, and each part of `calls`."""
        try:
            hosted = self._host.manifest.plugins[message["p"]]
        except (KeyError, IndexError, TypeError):
            raise WireError(f"there is no plugin {message.get('p')!r}") from None
        try:
            args, kwargs = self._arguments(hosted, message)
            plugin = hosted.plugin
            if plugin.context_name is not None:
                context = self._context(hosted, message)
                if plugin._context >= 0:
                    args.insert(plugin._context, context)
                else:
                    kwargs[plugin.context_name] = context
            plugin.check_requirements()
            result = plugin.call(*args, **kwargs)
            return {"k": "result", "v": self._host.values.encode(result)}
        except KeyboardInterrupt:
            raise
        # SystemExit too: a plugin must not end the compile silently.
        except BaseException as error:
            if isinstance(error, WireError) or type(error).__module__ == "orrery_sdk.wire":
                raise
            answer = failures.answer(error, self._host.values)
            if answer["k"] == "error":
                self._host.raised.append(error)
            return answer

    def _arguments(self, hosted: HostedPlugin, message: Message) -> tuple[list[object], dict[str, object]]:
        given = message.get("a") or []
        if len(given) != len(hosted.params):
            raise WireError(
                f"{hosted.plugin.get_full_name()} has {len(hosted.params)} parameters, got {len(given)}"
            )
        omitted = set(message.get("o") or ())
        decode = self._host.values.decode
        args: list[object] = []
        kwargs: dict[str, object] = {}
        for position, ((argument, kind, node), wire) in enumerate(zip(hosted.params, given, strict=True)):
            if kind == "varargs":
                args += [
                    self._convert(decode(item), node, f"{argument.arg_name}[{index}]", hosted)
                    for index, item in enumerate(wire)
                ]
            elif kind == "varkwargs":
                # The names are those of the model: a dict with a member `$` arrives tagged.
                for name, value in decode(wire).items():
                    kwargs[name] = self._convert(value, node, f"{argument.arg_name}[{name!r}]", hosted)
            else:
                # Defaults are Python values: they are neither checked nor converted.
                value = (
                    argument.default_value
                    if position in omitted
                    else self._convert(decode(wire), node, argument.arg_name, hosted)
                )
                if kind == "keyword":
                    kwargs[argument.arg_name] = value
                else:
                    args.append(value)
        return args, kwargs

    # Values to Python

    def _convert(self, value: object, node: Node, path: str, hosted: HostedPlugin) -> Any:
        if isinstance(value, Unknown):
            return value
        if value is None or type(value) in (str, int, float, bool):
            return value
        converter = self._converter(node, hosted.plugin.namespace.get_full_name())
        if converter is not None:
            return converter(value, path)
        return DynamicProxy.return_value(value, context=ProxyContext(path=path))

    def _converter(self, node: Node, namespace: str) -> Callable[[object, str], object] | None:
        """Converter of values to Python objects for an annotation; None if none is needed."""
        if node.kind == "dataclass":
            return self._to_dataclass
        if node.kind == "reference":
            # The object that the instance was created from, a dataclass or a reference to one.
            return self._to_object if node.inner[0].kind == "dataclass" else None
        if node.kind == "text":
            return self._text_converter(node.text, namespace)
        if node.kind not in ("list", "dict", "union"):
            return None
        inner = [self._converter(one, namespace) for one in node.inner]
        wanted = [one for one in inner if one is not None]
        if not wanted:
            return None
        convert = wanted[0]
        if node.kind == "list":
            return lambda value, path: _each_of_list(value, path, convert)
        if node.kind == "dict":
            return lambda value, path: _each_of_dict(value, path, convert)
        if len(wanted) == 1:
            return convert
        # The core has checked that one of the options matches; the shape of the value determines which.
        lists = [c for c, one in zip(inner, node.inner, strict=True) if c is not None and _is_list(one)]
        dicts = [c for c, one in zip(inner, node.inner, strict=True) if c is not None and one.kind == "dict"]
        takes_reference = any(one.kind == "reference" for one in node.inner)

        def choose(value: object, path: str) -> object:
            if isinstance(value, list) and lists:
                return lists[0](value, path)
            if isinstance(value, dict) and dicts:
                return dicts[0](value, path)
            return self._to_object(value, path) if takes_reference else self._to_dataclass(value, path)

        return choose

    def _text_converter(self, text: str, namespace: str) -> Callable[[object, str], object] | None:
        if text.endswith("?"):
            return self._text_converter(text[:-1], namespace)
        if text.endswith("[]"):
            convert = self._text_converter(text[:-2], namespace)
            return None if convert is None else lambda value, path: _each_of_list(value, path, convert)
        key = (namespace, text)
        if key not in self._converted_entities:
            found = self._host.types.seen_from(text, namespace)
            paired = isinstance(found, Entity) and found.get_paired_dataclass() is not None
            self._converted_entities[key] = found if paired else None  # type: ignore[assignment]
        return None if self._converted_entities[key] is None else self._to_dataclass

    def _to_dataclass(self, value: object, path: str) -> object:
        """The Python object of an instance, which must not be a reference."""
        made = self._to_object(value, path)
        if isinstance(made, Reference):
            raise _unwanted_reference(str(value.type) if isinstance(value, Instance) else path)
        return made

    def _to_object(self, value: object, path: str) -> object:
        if not isinstance(value, Instance):
            return DynamicProxy.return_value(value, context=ProxyContext(path=path))
        if value.made_of is None:
            cls = value.type.get_paired_dataclass()
            if cls is None:
                return DynamicProxy.return_value(value, context=ProxyContext(path=path))
            types = self._host.manifest.field_types(cls)
            fields: dict[str, object] = {}
            for field in dataclasses.fields(cls):  # type: ignore[arg-type]
                read = value.read(field.name)
                node = types.get(field.name)
                if _holds_reference(read) and (node is None or not node.has_reference()):
                    attribute = value.type.get_attribute(field.name)
                    raise _unwanted_reference(
                        str(attribute.type).removesuffix("?") if attribute else field.name
                    )
                fields[field.name] = _plain(read, field.name)
                misfit = None if node is None else node.misfit(fields[field.name])
                if misfit is not None:
                    raise failures.ArgumentMismatch(path, value, misfit)
            value.made_of = cls(**fields)
        return value.made_of

    # The context

    def _context(self, hosted: HostedPlugin, message: Message) -> Context:
        file, line = (message.get("at") or ["", 0])[:2]
        column = (message.get("at") or [])[2:3]
        start = column[0] if column else 1
        owner = Caller(
            hosted.plugin.get_full_name(),
            self._host.types.namespace(message.get("ns") or "__config__"),
            Range(file, line, start, line, start),
        )
        return Context(
            resolver=CallerScope(self._host),
            queue=QueueScheduler(self._host.compiler),
            owner=owner,
            plugin=hosted.plugin,
            result=ResultVariable(),
        )


class CallerScope(Resolver):
    """The names visible to the caller, requested from the core. Final values are cached."""

    def __init__(self, host: CompileHost) -> None:
        self._host = host

    def lookup(self, name: str, root: object = None) -> ResultVariable:
        return self._host.lookup(name)


def _is_list(node: Node) -> bool:
    return node.kind == "list" or (node.kind == "text" and node.text.rstrip("?").endswith("[]"))


def _each_of_list(value: object, path: str, convert: Callable[[object, str], object]) -> object:
    if not isinstance(value, list):
        return convert(value, path)
    return [convert(item, f"{path}[{position}]") for position, item in enumerate(value)]


def _each_of_dict(value: object, path: str, convert: Callable[[object, str], object]) -> object:
    if not isinstance(value, dict):
        return convert(value, path)
    return {key: convert(item, f"{path}[{key!r}]") for key, item in value.items()}


def _holds_reference(value: object) -> bool:
    if isinstance(value, list):
        return any(_holds_reference(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_reference(item) for item in value.values())
    return isinstance(value, Reference)


def _plain(value: object, field: str) -> object:
    """A value inside a dataclass: lists and dicts are Python's own there."""
    if isinstance(value, NoneValue):
        return None
    if isinstance(value, Unknown):
        raise RuntimeException(
            None,
            f"Encountered unknown in field {field!r}. Unknowns are not currently supported in dataclass instances in "
            "the Python domain.",
        )
    if isinstance(value, list):
        return [_plain(item, field) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, field) for key, item in value.items()}
    return value


def _unwanted_reference(what: str) -> RuntimeException:
    return RuntimeException(
        None,
        f"References are not allowed for values of type `{what}`. To work with references, explicitly declare support "
        "with a `... | Reference[...]` annotation.",
    )
