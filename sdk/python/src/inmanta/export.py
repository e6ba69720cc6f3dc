"""The export of resources from a complete model, and its hooks for module code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from inmanta.ast import Namespace, UnknownException
from inmanta.execute.proxy import DynamicProxy
from inmanta.resources import Id, Resource
from inmanta.util import hash_file
from orrery_sdk import files

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity

__all__ = [
    "DependencyCycleException",
    "Exporter",
    "ModelDict",
    "ProxiedType",
    "ResourceDict",
    "code_manager",
    "dependency_manager",
    "export",
    "hash_file",
    "unknown_parameters",
]

# Values that were requested and are unknown; reported to the server.
unknown_parameters: list[dict[str, Any]] = []

ModelDict = dict[str, "Entity"]
ResourceDict = dict[Id, Resource]
ProxiedType = dict[str, Sequence[Any]]

Manager = Callable[[ModelDict, ResourceDict], None]


class DependencyCycleException(Exception):
    """Resources that require each other."""

    def __init__(self, start: Resource) -> None:
        super().__init__()
        self.start = start
        self.cycle = [start]
        self.done = False

    def add_to_cycle(self, node: Resource) -> None:
        if node == self.start:
            self.done = True
        elif not self.done:
            self.cycle.insert(0, node)

    def __str__(self) -> str:
        return f"Cycle in dependencies: {self.cycle}"


class Exporter:
    """Interface for serializers and exporters: upload of file contents, and access to the model."""

    __export_functions: ClassVar[dict[str, tuple[tuple[str, ...], Callable[..., None]]]] = {}
    __dep_manager: ClassVar[list[Manager]] = []

    def __init__(self, options: object = None) -> None:
        self.options = options
        self.types: Mapping[str, Any] | None = None
        self.scopes: Namespace | None = None
        self.resources: ResourceDict = {}

    # Registration

    @classmethod
    def clear(cls) -> None:
        cls.__export_functions = {}
        cls.__dep_manager = []

    @classmethod
    def add(cls, name: str, types: Sequence[str], function: Callable[..., None]) -> None:
        """Adds an export function that gets the instances of these types."""
        cls.__export_functions[name] = (tuple(types), function)

    @classmethod
    def add_dependency_manager(cls, function: Manager) -> None:
        if function not in cls.__dep_manager:
            cls.__dep_manager.append(function)

    @classmethod
    def dependency_managers(cls) -> list[Manager]:
        return list(cls.__dep_manager)

    @classmethod
    def export_functions(cls) -> dict[str, Callable[..., None]]:
        """The export functions by name."""
        return {name: function for name, (_, function) in cls.__export_functions.items()}

    @classmethod
    def forget(cls, is_gone: Callable[[str], bool]) -> None:
        """Removes the functions of unloaded modules."""
        cls.__dep_manager = [one for one in cls.__dep_manager if not is_gone(one.__module__)]
        cls.__export_functions = {
            name: found for name, found in cls.__export_functions.items() if not is_gone(found[1].__module__)
        }

    # Called by the host

    def run_dependency_managers(
        self, managers: Sequence[Manager], types: Mapping[str, Any], resources: ResourceDict
    ) -> None:
        """Runs dependency managers, which add requirements. Exceptions for unknowns are ignored."""
        for function in managers:
            try:
                function(types, resources)  # type: ignore[arg-type]
            except UnknownException:
                continue

    def run_export_plugin(self, name: str) -> None:
        """Runs an export function."""
        if name not in self.__export_functions:
            raise Exception(f"Export function {name} does not exist.")
        types, function = self.__export_functions[name]
        if types:
            function(self, types=self._get_instance_proxies_of_types(types))
        else:
            function(self)

    def _get_instance_proxies_of_types(self, types: Sequence[str]) -> ProxiedType:
        known = self.types or {}
        return {
            name: [DynamicProxy.return_value(instance) for instance in known[name].get_all_instances()]
            if name in known
            else []
            for name in types
        }

    # Called by modules

    def upload_file(self, content: str | bytes, other: str | bytes | None = None) -> str:
        """Uploads a content for handlers; returns its id, the SHA-1.

        With two arguments, the first is the id of the content.
        """
        if other is None:
            return files.put(content)
        if not isinstance(content, str):
            raise TypeError("the id of a file has to be a text")
        return files.put(other, content)

    def add_resource(self, resource: Resource) -> None:
        """Adds a resource without an instance."""
        self.resources[resource.id] = resource

    def get_environment_id(self) -> str:
        from inmanta.config import Config

        return str(Config.get("config", "environment", None))


class dependency_manager:
    """Registers a function that adds requirements: `@dependency_manager def f(model, resources)`."""

    def __init__(self, function: Manager) -> None:
        Exporter.add_dependency_manager(function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class code_manager:
    """Exists for API compatibility; has no effect."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function


class export:
    """Makes a function an export function: `@export("name", "m::Type", ...)`."""

    def __init__(self, name: str, *args: str) -> None:
        self.name = name
        self.types = args

    def __call__(self, function: Callable[..., None]) -> Callable[..., None]:
        Exporter.add(self.name, self.types, function)
        return function
