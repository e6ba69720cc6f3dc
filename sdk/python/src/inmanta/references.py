"""Late-bound values: their serialization and resolution.

A reference stands in a field of a resource. The export writes null there, and beside it what the reference is
(`references`) and where its value goes (`mutators`). The executor makes the objects again, asks them for their
values and puts those in place, so that handlers see plain values.
"""

from __future__ import annotations

import builtins
import json
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from inmanta._reference_arguments import (
    PYTHON_TYPES,
    Argument,
    ArgumentTypes,
    GetArgument,
    JsonArgument,
    LiteralArgument,
    MutatedJsonArgument,
    MutatorModel,
    PrimitiveTypes,
    PythonTypeArgument,
    ReferenceArgument,
    ReferenceModel,
    ResourceArgument,
    SerializedReferenceLike,
    compute_reference_or_mutator_id,
)
from orrery_sdk import destination

if TYPE_CHECKING:
    from inmanta.agent.handler import LoggerABC
    from inmanta.resources import Resource

__all__ = [
    "Argument",
    "ArgumentTypes",
    "AttributeReference",
    "GetArgument",
    "JsonArgument",
    "LiteralArgument",
    "MaybeReference",
    "MutatedJsonArgument",
    "Mutator",
    "MutatorMissingError",
    "MutatorModel",
    "PrimitiveTypes",
    "PythonTypeArgument",
    "Reference",
    "ReferenceArgument",
    "ReferenceCycleException",
    "ReferenceLike",
    "ReferenceMissingError",
    "ReferenceModel",
    "ReplaceValue",
    "ResourceArgument",
    "SerializedReferenceLike",
    "compute_reference_or_mutator_id",
    "is_reference_of",
    "maybe_reference",
    "mutator",
    "reference",
    "unwrap_reference",
]

T = TypeVar("T", covariant=True)
S = TypeVar("S")
C = TypeVar("C", bound="ReferenceLike")

RefValue = Any
ReferenceType = str
JsonType = dict[str, Any]
StrictJson = Any

DATACLASS_FIELDS = "__dataclass_fields__"

# Called with every resolved value. The handler host redacts these values in its output.
_on_resolved: Callable[[object], None] | None = None
# Called before and after a reference computes its value, because log lines in between may contain it.
_on_resolving: Callable[[bool], None] | None = None


class ReferenceCycleException(Exception):
    """References that need each other's values."""

    def __init__(self, first_ref: Reference[RefValue]) -> None:
        super().__init__()
        self.references: list[ReferenceLike] = [first_ref]
        self.complete = False

    def add(self, element: Reference[Any]) -> None:
        """Adds the reference that needs the first one of the chain, until the cycle is closed."""
        if self.complete:
            return
        if element is self.references[-1]:
            self.complete = True
        self.references.insert(0, element)

    def get_message(self) -> str:
        """The chain, as text."""
        return "Reference cycle detected: " + " -> ".join(str(reference) for reference in self.references)

    def __str__(self) -> str:
        return self.get_message()


class ReferenceMissingError(TypeError):
    """No class is registered for a reference."""


class MutatorMissingError(TypeError):
    """No class is registered for a mutator."""


class MaybeReference(Protocol[T]):
    """An object that may be a reference."""

    def unwrap_reference(self) -> Reference[Any] | None:
        """The reference, if it is one."""


def maybe_reference(value: object) -> bool:
    """True if a value implements MaybeReference."""
    return not isinstance(value, ReferenceLike) and callable(getattr(type(value), "unwrap_reference", None))


def unwrap_reference(value: object) -> Reference[Any] | None:
    """The reference that a value is or wraps; None if there is none."""
    if isinstance(value, Reference):
        return value
    if maybe_reference(value):
        return value.unwrap_reference()  # type: ignore[attr-defined]
    return None


def is_reference_of(instance: object | None, type_class: type[object]) -> bool:
    """True if this is a reference that resolves to that type."""
    if not isinstance(instance, Reference):
        return False
    resolved = instance.get_reference_type()
    return isinstance(resolved, type) and issubclass(resolved, type_class)


class ReferenceLike:
    """Base of references and mutators: serializable arguments."""

    type: typing.ClassVar[str]

    def __init__(self) -> None:
        pass

    @property
    def arguments(self) -> Mapping[str, object]:
        """The public attributes, which are the arguments of the constructor."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @classmethod
    def deserialize(
        cls: builtins.type[C], ref: SerializedReferenceLike, resource: Resource, logger: LoggerABC
    ) -> C:
        """Creates the object from its serialized form."""
        return cls(**{argument.name: argument.get_arg_value(resource, logger) for argument in ref.args})

    def resolve_other(self, value: Reference[S] | S, logger: LoggerABC) -> S:
        """Resolves a value that may be a reference."""
        if isinstance(value, Reference):
            return value.get(logger)
        return value

    def serialize(self) -> SerializedReferenceLike:
        """Its serialized form."""
        raise NotImplementedError()

    def serialize_arguments(self) -> tuple[uuid.UUID, list[Argument]]:
        """The id and the serialized arguments."""
        if self.__dict__.get("_serializing"):
            raise ReferenceCycleException(self)  # type: ignore[arg-type]
        object.__setattr__(self, "_serializing", True)
        try:
            arguments = [
                self._orrery_serialize_argument(name, value) for name, value in self.arguments.items()
            ]
        except ReferenceCycleException as error:
            error.add(self)  # type: ignore[arg-type]
            raise
        finally:
            object.__setattr__(self, "_serializing", False)
        return compute_reference_or_mutator_id(self.type, arguments), arguments

    def _orrery_serialize_argument(self, name: str, value: object) -> Argument:
        if value is None or isinstance(value, str | int | float | bool):
            return LiteralArgument(name=name, value=value)
        reference = unwrap_reference(value)
        if reference is not None:
            return ReferenceArgument(name=name, id=reference.serialize().id)
        if isinstance(value, type) and PYTHON_TYPES.get(value.__name__) is value:
            return PythonTypeArgument(name=name, value=value.__name__)
        if isinstance(value, dict | list) or _is_collection_proxy(value):
            return self._orrery_serialize_json(name, value)
        from inmanta.resources import Resource

        if isinstance(value, Resource):
            return ResourceArgument(name=name, id=value.id.resource_str())
        raise TypeError(f"Unable to serialize argument `{name}` of `{self}` with value {value}")

    def _orrery_serialize_json(self, name: str, value: object) -> Argument:
        from inmanta.resources import ReferenceSubCollector

        found: dict[str, ReferenceArgument] = {}

        class Collector(ReferenceSubCollector):
            def add_reference(self, path: str, reference: Reference[Any]) -> None:
                found[path] = ReferenceArgument(name=path, id=reference.serialize().id)

        plain = Collector().collect_references(value, "$")
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The {name} attribute of {self} is not json serializable: {value}") from error
        if found:
            return MutatedJsonArgument(name=name, value=plain, references=found)
        return JsonArgument(name=name, value=plain)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        assert isinstance(other, ReferenceLike)
        return self.arguments == other.arguments

    __hash__ = None  # type: ignore[assignment]


def _is_collection_proxy(value: object) -> bool:
    from inmanta.execute.proxy import DictProxy, SequenceProxy

    return isinstance(value, SequenceProxy | DictProxy)


class Reference(ReferenceLike, Generic[T]):
    """A value that is resolved on the executor. Subclasses implement `resolve`."""

    # Class attribute, for subclasses that do not call this constructor (dataclasses).
    _reference_value: Any = None
    _reference_value_cached: bool = False

    def __init__(self) -> None:
        super().__init__()

    def resolve(self, logger: LoggerABC) -> T:
        """Computes the value. May be slow, and may fail."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is resolved")

    def get(self, logger: LoggerABC) -> T:
        """The value; computed at most once by each object."""
        if not self._reference_value_cached:
            if _on_resolving is not None:
                _on_resolving(True)
            try:
                value = self.resolve(logger)
                if _on_resolved is not None:
                    _on_resolved(value)
            finally:
                if _on_resolving is not None:
                    _on_resolving(False)
            # Also of frozen dataclasses.
            object.__setattr__(self, "_reference_value", value)
            object.__setattr__(self, "_reference_value_cached", True)
        return self._reference_value

    def serialize(self) -> ReferenceModel:
        """Its serialized form."""
        identifier, arguments = self.serialize_arguments()
        return ReferenceModel(type=self.type, args=arguments, id=identifier)

    @classmethod
    def get_reference_type(cls) -> type[Any] | None:
        """The type that it resolves to, if the class declares it."""
        for base in cls.__mro__:
            for declared in getattr(base, "__orig_bases__", ()) if "__orig_bases__" in vars(base) else ():
                origin = typing.get_origin(declared)
                if isinstance(origin, type) and issubclass(origin, Reference):
                    arguments = typing.get_args(declared)
                    if arguments and not isinstance(arguments[0], TypeVar):
                        return arguments[0]
        return None

    @classmethod
    def is_dataclass_reference(cls) -> bool:
        """True if it resolves to a dataclass."""
        resolved = cls.get_reference_type()
        return resolved is not None and hasattr(resolved, DATACLASS_FIELDS)

    def __bool__(self) -> typing.NoReturn:
        raise NotImplementedError(f"{self} is an inmanta reference, not a boolean.")


class Mutator(ReferenceLike):
    """Changes a resource before its handler sees it."""

    def run(self, logger: LoggerABC) -> None:
        """Applies the change."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it changes")

    def serialize(self) -> MutatorModel:
        """Its serialized form."""
        _identifier, arguments = self.serialize_arguments()
        return MutatorModel(type=self.type, args=arguments)


class reference:
    """Registers a class of references under the name that models and resources use."""

    _reference_classes: typing.ClassVar[dict[str, type[Reference[Any]]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, cls: type[S]) -> type[S]:
        self.add_reference(self.name, cls)  # type: ignore[arg-type]
        return cls

    @classmethod
    def add_reference(cls, name: str, reference_type: type[Reference[Any]]) -> None:
        """Registers a class and sets its name."""
        reference_type.type = name
        cls._reference_classes[name] = reference_type

    @classmethod
    def get_class(cls, name: str) -> type[Reference[Any]]:
        """The class of that name."""
        found = cls._reference_classes.get(name)
        if found is None:
            raise ReferenceMissingError(f"There is no reference class registered with name {name}")
        return found

    @classmethod
    def get_references(cls) -> Iterator[tuple[str, type[Reference[Any]]]]:
        """All of them, by name."""
        return iter(cls._reference_classes.items())

    @classmethod
    def reset(cls) -> None:
        """Removes all but the built-in classes."""
        cls._reference_classes = {
            name: found for name, found in cls._reference_classes.items() if name.startswith("core::")
        }


class mutator:
    """Registers a class of mutators under the name that resources use."""

    _mutator_classes: typing.ClassVar[dict[str, type[Mutator]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, cls: type[S]) -> type[S]:
        self.add_mutator(self.name, cls)  # type: ignore[arg-type]
        return cls

    @classmethod
    def add_mutator(cls, name: str, mutator_type: type[Mutator]) -> None:
        """Registers a class and sets its name."""
        mutator_type.type = name
        cls._mutator_classes[name] = mutator_type

    @classmethod
    def get_class(cls, name: str) -> type[Mutator]:
        """The class of that name."""
        found = cls._mutator_classes.get(name)
        if found is None:
            raise MutatorMissingError(f"There is no mutator class registered with name {name}")
        return found

    @classmethod
    def get_mutators(cls) -> Iterator[tuple[str, type[Mutator]]]:
        """All of them, by name."""
        return iter(cls._mutator_classes.items())

    @classmethod
    def reset(cls) -> None:
        """Removes all but the built-in classes."""
        cls._mutator_classes = {
            name: found for name, found in cls._mutator_classes.items() if name.startswith("core::")
        }


@mutator(name="core::Replace")
class ReplaceValue(Mutator):
    """Assigns the value of a reference to a destination in the resource."""

    def __init__(self, resource: Resource, value: Reference[PrimitiveTypes], destination: str) -> None:
        super().__init__()
        self.resource = resource
        self.value = value
        self.destination = destination

    def run(self, logger: LoggerABC) -> None:
        """Assigns the value."""
        value: object = self.resolve_other(self.value, logger)  # type: ignore[arg-type]
        destination.assign(self.resource, self.destination, value)


@reference("core::AttributeReference")
class AttributeReference(Reference[T]):
    """One attribute of the dataclass that another reference resolves to."""

    def __init__(self, reference: object | Reference[object], attribute_name: str) -> None:
        super().__init__()
        self.attribute_name = attribute_name
        self.reference = reference

    def resolve(self, logger: LoggerABC) -> T:
        """The attribute."""
        return getattr(self.resolve_other(self.reference, logger), self.attribute_name)
