"""Values that are not known before deployment: how they are written down, and how they become values.

A reference stands in a field of a resource. The export writes null there, and beside it what the reference is
(`references`) and where its value goes (`mutators`). The executor makes the objects again, asks them for their
values and puts those in place, so that handlers see plain values.
"""

from __future__ import annotations

import json
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union

from orrery_sdk import destination

if TYPE_CHECKING:
    from inmanta.agent.handler import LoggerABC
    from inmanta.resources import Resource

T = TypeVar("T", covariant=True)
S = TypeVar("S")
C = TypeVar("C", bound="ReferenceLike")

PrimitiveTypes = str | float | int | bool | None
RefValue = Any
ReferenceType = str
JsonType = dict[str, Any]
StrictJson = Any

DATACLASS_FIELDS = "__dataclass_fields__"

_PYTHON_TYPES: dict[str, type] = {"str": str, "float": float, "int": int, "bool": bool}

# Told of every value that a reference resolves to. The handler host keeps such values out of what it sends.
_on_resolved: Callable[[object], None] | None = None


class ReferenceCycleException(Exception):
    """References that need each other's values."""

    def __init__(self, first_ref: Reference[RefValue]) -> None:
        super().__init__()
        self.references: list[ReferenceLike] = [first_ref]
        self.complete = False

    def add(self, element: Reference[Any]) -> None:
        """Adds the reference that needs the first one of the chain, until the circle is closed."""
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


class Argument:
    """One argument of a reference or mutator, as it is written down."""

    type: str = ""

    def __init__(self, *, name: str, **values: Any) -> None:
        values.pop("type", None)
        self.name = name
        for key, value in values.items():
            setattr(self, key, value)

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The argument itself, on the side of the executor."""
        raise NotImplementedError()

    def to_json(self) -> dict[str, Any]:
        """The form in which it is part of a resource."""
        return {"type": self.type, "name": self.name}

    # Some code asks for these forms by the names that pydantic gives them.
    def model_dump(self, mode: str = "json") -> dict[str, Any]:
        """The same as `to_json`."""
        return self.to_json()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Argument) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json()})"


class LiteralArgument(Argument):
    """A primitive."""

    type = "literal"
    value: PrimitiveTypes

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The primitive."""
        return self.value

    def to_json(self) -> dict[str, Any]:
        """Adds the value."""
        return {"type": self.type, "name": self.name, "value": self.value}


class ReferenceArgument(Argument):
    """Another reference, by its id."""

    type = "reference"
    id: uuid.UUID

    def __init__(self, *, name: str, id: uuid.UUID | str, **values: Any) -> None:
        super().__init__(name=name, id=id if isinstance(id, uuid.UUID) else uuid.UUID(id), **values)

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The reference object; its value if that is asked for."""
        return resource.get_reference_value(self.id, logger)

    def to_json(self) -> dict[str, Any]:
        """Adds the id."""
        return {"type": self.type, "name": self.name, "id": str(self.id)}


class GetArgument(Argument):
    """A value out of the resource itself, by a path."""

    type = "get"
    dict_path_expression: str

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """What stands in the resource there."""
        from inmanta.util import dict_path

        return dict_path.to_path(self.dict_path_expression).get_element(resource)

    def to_json(self) -> dict[str, Any]:
        """Adds the path."""
        return {"type": self.type, "name": self.name, "dict_path_expression": self.dict_path_expression}


class PythonTypeArgument(Argument):
    """One of the four Python types of primitives, by name."""

    type = "python_type"
    value: str

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The type."""
        try:
            return _PYTHON_TYPES[self.value]
        except KeyError:
            raise TypeError(f"{self.value} is not one of {', '.join(_PYTHON_TYPES)}") from None

    def to_json(self) -> dict[str, Any]:
        """Adds the name."""
        return {"type": self.type, "name": self.name, "value": self.value}


class ResourceArgument(Argument):
    """The resource that the reference is part of."""

    type = "resource"
    id: str

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The resource."""
        if self.id != resource.id.resource_str():
            raise ValueError(
                f"{self.name} has to be the resource itself, {resource.id.resource_str()}, not {self.id}"
            )
        return resource

    def to_json(self) -> dict[str, Any]:
        """Adds the id, without version."""
        return {"type": self.type, "name": self.name, "id": str(self.id)}


class JsonArgument(Argument):
    """A list or dict."""

    type = "json"
    value: Any

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """A list or dict of its own."""
        return _copy_json(self.value)

    def to_json(self) -> dict[str, Any]:
        """Adds the value."""
        return {"type": self.type, "name": self.name, "value": self.value}


class MutatedJsonArgument(Argument):
    """A list or dict with references somewhere in it."""

    type = "mjson"
    value: Any
    references: dict[str, ReferenceArgument]

    def __init__(self, *, name: str, value: Any, references: Mapping[str, Any], **values: Any) -> None:
        super().__init__(name=name, value=value, **values)
        self.references = {
            path: item if isinstance(item, ReferenceArgument) else ReferenceArgument(**item)
            for path, item in references.items()
        }

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The list or dict, with values in the places of references."""
        root = {"$": _copy_json(self.value)}
        for path, reference in self.references.items():
            destination.assign(root, path, reference.get_arg_value(resource, logger))
        return root["$"]

    def to_json(self) -> dict[str, Any]:
        """Adds the value and the references by their paths."""
        return {
            "type": self.type,
            "name": self.name,
            "value": self.value,
            "references": {path: item.to_json() for path, item in self.references.items()},
        }


ArgumentTypes = Union[  # noqa: UP007 - a name that can be used in annotations at run time
    LiteralArgument,
    ReferenceArgument,
    GetArgument,
    PythonTypeArgument,
    ResourceArgument,
    JsonArgument,
    MutatedJsonArgument,
]

_ARGUMENTS: dict[str, type[Argument]] = {
    kind.type: kind
    for kind in (
        LiteralArgument,
        ReferenceArgument,
        GetArgument,
        PythonTypeArgument,
        ResourceArgument,
        JsonArgument,
        MutatedJsonArgument,
    )
}


def _argument_from_json(item: Argument | Mapping[str, Any]) -> Argument:
    if isinstance(item, Argument):
        return item
    kind = _ARGUMENTS.get(item.get("type", ""))
    if kind is None:
        raise ValueError(f"{item.get('type')!r} is not a kind of argument of a reference")
    return kind(**{key: value for key, value in item.items() if key != "type"})


def _copy_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy_json(item) for item in value]
    return value


class SerializedReferenceLike:
    """What is written down of a reference or mutator."""

    def __init__(self, *, type: str, args: list[Any]) -> None:
        self.type = type
        self.args: list[Argument] = [_argument_from_json(item) for item in args]

    def to_json(self) -> dict[str, Any]:
        """The form in which it is part of a resource."""
        return {"type": self.type, "args": [argument.to_json() for argument in self.args]}

    def model_dump(self, mode: str = "json") -> dict[str, Any]:
        """The same as `to_json`."""
        return self.to_json()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json()})"


class ReferenceModel(SerializedReferenceLike):
    """A reference, written down."""

    def __init__(self, *, type: str, args: list[Any], id: uuid.UUID | str) -> None:
        super().__init__(type=type, args=args)
        self.id = id if isinstance(id, uuid.UUID) else uuid.UUID(id)

    def to_json(self) -> dict[str, Any]:
        """Adds the id."""
        return {**super().to_json(), "id": str(self.id)}


class MutatorModel(SerializedReferenceLike):
    """A mutator, written down."""

    def get_id(self) -> uuid.UUID:
        """Its id, which is not written down: it only decides the order."""
        return compute_reference_or_mutator_id(self.type, self.args)


def compute_reference_or_mutator_id(reference_type: str, args: list[Any]) -> uuid.UUID:
    """The id that follows from the type and the arguments: the same in every process."""
    import hashlib

    text = json.dumps({"type": reference_type, "args": [item.to_json() for item in args]}, sort_keys=True)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    # As `uuid.uuid3`, which takes bytes as a name only from Python 3.12 on.
    name = hashlib.md5(uuid.NAMESPACE_OID.bytes + digest, usedforsecurity=False).digest()
    return uuid.UUID(bytes=name, version=3)


class MaybeReference(Protocol[T]):
    """What may turn out to be a reference."""

    def unwrap_reference(self) -> Reference[Any] | None:
        """The reference, if it is one."""


def maybe_reference(value: object) -> bool:
    """Whether a value can say if it is a reference."""
    return not isinstance(value, ReferenceLike) and callable(getattr(type(value), "unwrap_reference", None))


def unwrap_reference(value: object) -> Reference[Any] | None:
    """The reference that a value is or stands for; None if it is none."""
    if isinstance(value, Reference):
        return value
    if maybe_reference(value):
        return value.unwrap_reference()  # type: ignore[attr-defined, no-any-return]
    return None


def is_reference_of(instance: object | None, type_class: type[object]) -> bool:
    """Whether this is a reference that resolves to that type."""
    if not isinstance(instance, Reference):
        return False
    resolved = instance.get_reference_type()
    return isinstance(resolved, type) and issubclass(resolved, type_class)


class ReferenceLike:
    """What references and mutators share: arguments that can be written down."""

    type: typing.ClassVar[str]

    def __init__(self) -> None:
        pass

    @property
    def arguments(self) -> Mapping[str, object]:
        """The public attributes, which are the arguments of the constructor."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @classmethod
    def deserialize(cls: type[C], ref: SerializedReferenceLike, resource: Resource, logger: LoggerABC) -> C:
        """Makes the object again."""
        return cls(**{argument.name: argument.get_arg_value(resource, logger) for argument in ref.args})

    def resolve_other(self, value: Reference[S] | S, logger: LoggerABC) -> S:
        """The value of something that may be a reference."""
        if isinstance(value, Reference):
            return value.get(logger)  # type: ignore[no-any-return]
        return value  # type: ignore[return-value]

    def serialize(self) -> SerializedReferenceLike:
        """What is written down of it."""
        raise NotImplementedError()

    def serialize_arguments(self) -> tuple[uuid.UUID, list[Argument]]:
        """The id and the arguments as they are written down."""
        if self.__dict__.get("_serializing"):
            raise ReferenceCycleException(self)  # type: ignore[arg-type]
        object.__setattr__(self, "_serializing", True)
        try:
            arguments = [self._orrery_serialize_argument(name, value) for name, value in self.arguments.items()]
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
        if isinstance(value, type) and _PYTHON_TYPES.get(value.__name__) is value:
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
    """A value that is asked for on the executor. Subclasses say how, in `resolve`."""

    # Objects of classes that do not call this constructor (dataclasses) have not been asked yet either.
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
            value = self.resolve(logger)
            if _on_resolved is not None:
                _on_resolved(value)
            # Also of frozen dataclasses.
            object.__setattr__(self, "_reference_value", value)
            object.__setattr__(self, "_reference_value_cached", True)
        return self._reference_value  # type: ignore[no-any-return]

    def serialize(self) -> ReferenceModel:
        """What is written down of it."""
        identifier, arguments = self.serialize_arguments()
        return ReferenceModel(type=self.type, args=arguments, id=identifier)

    @classmethod
    def get_reference_type(cls) -> type[Any] | None:
        """What it resolves to, if the class says so."""
        for base in cls.__mro__:
            for declared in getattr(base, "__orig_bases__", ()) if "__orig_bases__" in vars(base) else ():
                origin = typing.get_origin(declared)
                if isinstance(origin, type) and issubclass(origin, Reference):
                    arguments = typing.get_args(declared)
                    if arguments and not isinstance(arguments[0], TypeVar):
                        return arguments[0]  # type: ignore[no-any-return]
        return None

    @classmethod
    def is_dataclass_reference(cls) -> bool:
        """Whether it resolves to a dataclass."""
        resolved = cls.get_reference_type()
        return resolved is not None and hasattr(resolved, DATACLASS_FIELDS)

    def __bool__(self) -> typing.NoReturn:
        raise NotImplementedError(f"{self} is an inmanta reference, not a boolean.")


class Mutator(ReferenceLike):
    """Changes a resource before its handler sees it."""

    def run(self, logger: LoggerABC) -> None:
        """Makes the change."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it changes")

    def serialize(self) -> MutatorModel:
        """What is written down of it."""
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
        """Registers, and gives the class its name."""
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
        """Forgets all but those that are always there."""
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
        """Registers, and gives the class its name."""
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
        """Forgets all but those that are always there."""
        cls._mutator_classes = {
            name: found for name, found in cls._mutator_classes.items() if name.startswith("core::")
        }


@mutator(name="core::Replace")
class ReplaceValue(Mutator):
    """Puts the value of a reference at a place in the resource."""

    def __init__(self, resource: Resource, value: Reference[PrimitiveTypes], destination: str) -> None:
        super().__init__()
        self.resource = resource
        self.value = value
        self.destination = destination

    def run(self, logger: LoggerABC) -> None:
        """Puts it there."""
        destination.assign(self.resource, self.destination, self.resolve_other(self.value, logger))


@reference("core::AttributeReference")
class AttributeReference(Reference[T]):
    """One attribute of the dataclass that another reference resolves to."""

    def __init__(self, reference: object | Reference[object], attribute_name: str) -> None:
        super().__init__()
        self.attribute_name = attribute_name
        self.reference = reference

    def resolve(self, logger: LoggerABC) -> T:
        """The attribute."""
        return getattr(self.resolve_other(self.reference, logger), self.attribute_name)  # type: ignore[no-any-return]
