"""The manifest: the plugins, classes and handlers of module code, for the core."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from inmanta.ast import CompilerException
from inmanta.compiler import Finalizers, Function
from inmanta.export import Exporter, Manager
from inmanta.plugins import Plugin, PluginArgument, PluginMeta
from inmanta.references import mutator, reference
from inmanta.resources import ManagedResource, Resource, resource
from orrery_sdk.compiling.annotations import Annotations, Node
from orrery_sdk.compiling.loading import entities_of
from orrery_sdk.loading import HostedModule, Problem

LOGGER = logging.getLogger(__name__)

# Fields with getters of the base class: the core implements the same rules.
_FLAGS: dict[str, type[Resource]] = {
    "send_event": Resource,
    "receive_events": Resource,
    "report_only": Resource,
    "managed": ManagedResource,
}
_COLLECTED = ("references", "mutators")
# Names under which handlers get the files and programs of their agent's machine.
_IO_NAMES = frozenset({"_io", "get_io"})


@dataclasses.dataclass
class HostedPlugin:
    """A plugin and its parsed annotations."""

    plugin: Plugin
    params: list[tuple[PluginArgument, str, Node]]
    returns: Node


@dataclasses.dataclass
class ResourceClass:
    """A resource class and its entity."""

    entity: str
    cls: type[Resource]
    agent: str
    id: str


class Manifest:
    """Loaded objects, in the order of the core."""

    def __init__(self, modules: Sequence[HostedModule], namespace: Callable[[str], Any]) -> None:
        self.plugins: list[HostedPlugin] = []
        self.resources: list[ResourceClass] = []
        self.dataclasses: dict[str, type[object]] = {}
        self.managers: list[Manager] = []
        self.finalizers: list[Function] = []
        self.warnings: list[str] = []
        self._field_types: dict[type[Any], dict[str, Node]] = {}
        self._modules = modules
        self._namespace = namespace
        self._entities: dict[str, set[str]] = {}
        self._declared_dataclasses: set[str] = set()
        for module in modules:
            for name, found in entities_of(module).items():
                self._entities.setdefault(name, set()).update(found)
                self._declared_dataclasses |= {f"{name}::{one}" for one, is_data in found.items() if is_data}
        self.annotations = Annotations(self._is_entity, self._warn)

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _is_entity(self, cls: type[Any]) -> bool:
        if not cls.__module__.startswith("inmanta_plugins."):
            return False
        return cls.__name__ in self._entities.get(cls.__module__.partition(".")[2].replace(".", "::"), ())

    def _belongs(self, module: str) -> bool:
        """True if code belongs to this compile, not only to an earlier one in this process."""
        if not module.startswith("inmanta_plugins."):
            return True
        return any(module == one.package or module.startswith(f"{one.package}.") for one in self._modules)

    def collect(self, problems: list[Problem]) -> dict[str, Any]:
        """Collects all registered objects; returns the message `loaded`."""
        plugins = [
            self._plugin(cls) for cls in PluginMeta.get_functions().values() if self._belongs(cls.__module__)
        ]
        resources = [
            self._resource(name, cls)
            for name, cls in resource.get_resources()
            if self._belongs(cls.__module__)
        ]
        classes = self._dataclasses()
        self.managers = [one for one in Exporter.dependency_managers() if self._belongs(one.__module__)]
        self.finalizers = [one for one in Finalizers.functions() if self._belongs(one.__module__)]
        exporters = [
            name for name, one in Exporter.export_functions().items() if self._belongs(one.__module__)
        ]
        return {
            "k": "loaded",
            "problems": problems,
            "warnings": self.warnings,
            "plugins": plugins,
            "resources": resources,
            "handlers": _handlers(),
            "machine_handlers": _machine_handlers(),
            "references": [name for name, _ in reference.get_references()],
            "mutators": [name for name, _ in mutator.get_mutators()],
            "dataclasses": classes,
            "managers": len(self.managers),
            "finalizers": len(self.finalizers),
            "exporters": exporters,
        }

    # Plugins

    def _plugin(self, cls: type[Plugin]) -> dict[str, Any]:
        """A plugin entry; one that the language cannot call keeps its position, with the reason."""
        namespace = self._namespace(cls.__fq_plugin_name__.rpartition("::")[0])
        file, line = _source(cls.__function__)
        entry: dict[str, Any] = {
            "name": cls.__fq_plugin_name__,
            "params": [],
            "returns": "any",
            "allow_unknown": bool(cls.opts["allow_unknown"]),
            "deprecated": (cls.replaced_by or "") if cls.deprecated else None,
            "context": False,
            "file": file,
            "line": line,
            "problem": None,
        }
        try:
            plugin = cls(namespace)
            params = self._params(plugin)
            returns = self.annotations.read(plugin.return_type.type_expression)
        except CompilerException as error:
            self.plugins.append(HostedPlugin(_Unusable(cls, error), [], Node("any", "any")))
            return {**entry, "problem": error.get_message()}
        self.plugins.append(HostedPlugin(plugin, params, returns))
        entry["params"] = [_param(argument, kind, node) for argument, kind, node in params]
        entry["returns"] = returns.text
        entry["context"] = plugin.context_name is not None
        return entry

    def _params(self, plugin: Plugin) -> list[tuple[PluginArgument, str, Node]]:
        listed = [(argument, "normal") for argument in plugin.args]
        if plugin.var_args is not None:
            listed.append((plugin.var_args, "varargs"))
        listed += [(argument, "keyword") for argument in plugin.kwargs.values()]
        if plugin.var_kwargs is not None:
            listed.append((plugin.var_kwargs, "varkwargs"))
        return [(argument, kind, self.annotations.read(argument.arg_type)) for argument, kind in listed]

    # Resources

    def _resource(self, name: str, cls: type[Resource]) -> dict[str, Any]:
        _, options = resource.get_class(name)
        assert options is not None
        found = ResourceClass(name, cls, options["agent"], options["name"])
        self.resources.append(found)
        problem = None
        try:
            resource.validate_class(cls)
        except Exception as error:
            problem = error.get_message() if isinstance(error, CompilerException) else str(error)
        fields = [field for field in getattr(cls, "fields", ()) if field not in _COLLECTED]
        flags = [field for field in fields if _is_base_getter(cls, field)]
        candidates = fields if found.id in fields else [*fields, found.id]
        getters = [field for field in candidates if field not in flags and _has_getter(cls, field)]
        return {
            "entity": name,
            "module": _module_of(cls),
            "agent": found.agent,
            "id": found.id,
            "fields": list(getattr(cls, "fields", ())),
            "getters": getters,
            "flags": flags,
            "problem": problem,
        }

    # Dataclasses

    def _dataclasses(self) -> list[dict[str, Any]]:
        entries = []
        for namespace in sorted(self._entities):
            python = "inmanta_plugins." + namespace.replace("::", ".")
            module = sys.modules.get(python)
            for name in sorted(self._entities[namespace]):
                entity = f"{namespace}::{name}"
                is_declared = entity in self._declared_dataclasses
                if module is None:
                    if is_declared:
                        problem = {"kind": "no_module", "detail": python}
                        entries.append({"entity": entity, "problem": problem})
                    continue
                cls = vars(module).get(name)
                if cls is not None and (is_declared or dataclasses.is_dataclass(cls)):
                    entries.append(self._dataclass(entity, cls))
        return entries

    def _dataclass(self, entity: str, cls: Any) -> dict[str, Any]:
        file, line = _source(cls) if isinstance(cls, type) else (None, 0)
        entry: dict[str, Any] = {"entity": entity, "fields": [], "problem": None, "file": file, "line": line}
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
            return {**entry, "problem": {"kind": "not_dataclass"}}
        if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return {**entry, "problem": {"kind": "not_frozen"}}
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except Exception as error:
            return {**entry, "problem": {"kind": "bad_annotation", "detail": str(error)}}
        entry["fields"] = [
            [field.name, self._field_type(hints.get(field.name, field.type))]
            for field in dataclasses.fields(cls)
        ]
        self.dataclasses[entity] = cls
        return entry

    def _field_type(self, annotation: object) -> str | None:
        """The model type of a field; None if it has none, such as a list without an item type."""
        try:
            node = self.annotations.read(annotation)
        except CompilerException:
            return None
        return None if _has_bare_list(node) else node.text

    def field_types(self, cls: type[Any]) -> dict[str, Node]:
        """Parsed annotations of a dataclass; fields without a valid annotation accept anything."""
        if cls not in self._field_types:
            reader = Annotations(self._is_entity, lambda _: None)
            types: dict[str, Node] = {}
            for name, hint in typing.get_type_hints(cls, include_extras=True).items():
                try:
                    types[name] = reader.read(hint)
                except CompilerException:
                    continue
            self._field_types[cls] = types
        return self._field_types[cls]

    def type_text(self, annotation: object, where: str) -> str | None:
        """A Python type in model syntax; None, and a log line, if it has none."""
        try:
            return Annotations(self._is_entity, lambda _: None).read(annotation).text
        except CompilerException as error:
            LOGGER.debug("the type of %s cannot be written in a model: %s", where, error)
            return None


class _Unusable(Plugin):
    """Placeholder for a plugin that the language cannot call."""

    __fq_plugin_name__ = ""
    __function_name__ = ""

    def __init__(self, cls: type[Plugin], error: CompilerException) -> None:
        self._context = -1
        self.context_name = None
        self._name = cls.__fq_plugin_name__
        self._error = error
        self.opts = dict(cls.opts)

    def get_full_name(self) -> str:
        return self._name

    def call(self, *args: object, **kwargs: object) -> object:
        raise self._error


def _param(argument: PluginArgument, kind: str, node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": argument.arg_name, "type": node.text, "kind": kind}
    if argument.has_default_value():
        default = argument.default_value
        entry["default"] = {"value": default} if _is_plain(default) else {}
    return entry


def _is_plain(value: object) -> bool:
    if value is None or type(value) in (str, bool):
        return True
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is float:
        return value - value == 0
    if type(value) is list:
        return all(_is_plain(item) for item in value)
    return False


def _has_getter(cls: type[Resource], field: str) -> bool:
    return hasattr(cls, f"get_{field}") or field in getattr(cls, "map", {})


def _is_base_getter(cls: type[Resource], field: str) -> bool:
    base = _FLAGS.get(field)
    if base is None or not hasattr(cls, f"get_{field}"):
        return False
    return getattr(cls, f"get_{field}") is getattr(base, f"get_{field}")


def _module_of(cls: type[Any]) -> str | None:
    """The module that contains a class; None for code outside of modules."""
    namespace, _, rest = cls.__module__.partition(".")
    return rest.partition(".")[0] if namespace == "inmanta_plugins" and rest else None


def _handlers() -> list[str]:
    """The resource types that have a handler here."""
    handler = sys.modules.get("inmanta.agent.handler")
    if handler is None:
        return []
    return sorted(handler.Commander._providers)


def _machine_handlers() -> list[str]:
    """The resource types with a handler that uses the files and programs of its agent's machine."""
    handler = sys.modules.get("inmanta.agent.handler")
    if handler is None:
        return []
    providers = handler.Commander._providers
    return sorted(entity for entity, classes in providers.items() if any(map(_uses_io, classes.values())))


def _uses_io(cls: type[Any]) -> bool:
    """True if code of a handler class, or of a base class in a module, names the provided `io`."""
    own = [base for base in cls.__mro__ if base is not object and not _is_of_sdk(base)]
    return any(_names_io(code) for base in own for code in _codes_of(base))


def _is_of_sdk(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] in ("inmanta", "orrery_sdk", "abc", "typing")


def _codes_of(cls: type[Any]) -> Iterator[CodeType]:
    for member in vars(cls).values():
        members = (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,)
        for one in members:
            function = one.__func__ if isinstance(one, (staticmethod, classmethod)) else one
            if isinstance(function, FunctionType):
                # Behind decorators, such as that of a cache.
                yield inspect.unwrap(function).__code__


def _names_io(code: CodeType) -> bool:
    if not _IO_NAMES.isdisjoint(code.co_names):
        return True
    return any(_names_io(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def _has_bare_list(node: Node) -> bool:
    return (node.kind == "text" and node.text == "list") or any(_has_bare_list(inner) for inner in node.inner)


def _source(item: Any) -> tuple[str | None, int]:
    """The file and line where a function or class begins; line 0 if it is unknown."""
    if isinstance(item, type):
        try:
            return inspect.getsourcefile(item), inspect.getsourcelines(item)[1]
        except (OSError, TypeError):
            return None, 0
    code = getattr(inspect.unwrap(item), "__code__", None)
    # The first line of a function is its decorator's.
    return (None, 0) if code is None else (code.co_filename, code.co_firstlineno + 1)
