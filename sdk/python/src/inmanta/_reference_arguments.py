"""Serialization of references and mutators; modules import the names from `inmanta.references`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from orrery_sdk import destination

if TYPE_CHECKING:
    from inmanta.agent.handler import LoggerABC
    from inmanta.resources import Resource

PUBLIC_MODULE = "inmanta.references"

PrimitiveTypes = str | float | int | bool | None

PYTHON_TYPES: dict[str, type] = {"str": str, "float": float, "int": int, "bool": bool}


class Argument:
    """A serialized argument of a reference or mutator."""

    __module__ = PUBLIC_MODULE

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
        """JSON form within a resource."""
        return {"type": self.type, "name": self.name}

    # Some code uses pydantic's names for these methods.
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

    __module__ = PUBLIC_MODULE

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

    __module__ = PUBLIC_MODULE

    type = "reference"
    id: uuid.UUID

    def __init__(self, *, name: str, id: uuid.UUID | str, **values: Any) -> None:
        super().__init__(name=name, id=id if isinstance(id, uuid.UUID) else uuid.UUID(id), **values)

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The reference object; its value if requested."""
        return resource.get_reference_value(self.id, logger)

    def to_json(self) -> dict[str, Any]:
        """Adds the id."""
        return {"type": self.type, "name": self.name, "id": str(self.id)}


class GetArgument(Argument):
    """A value of the resource itself, by path."""

    __module__ = PUBLIC_MODULE

    type = "get"
    dict_path_expression: str

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The value at the path in the resource."""
        from inmanta.util import dict_path

        return dict_path.to_path(self.dict_path_expression).get_element(resource)

    def to_json(self) -> dict[str, Any]:
        """Adds the path."""
        return {"type": self.type, "name": self.name, "dict_path_expression": self.dict_path_expression}


class PythonTypeArgument(Argument):
    """One of the four Python types of primitives, by name."""

    __module__ = PUBLIC_MODULE

    type = "python_type"
    value: str

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """The type."""
        try:
            return PYTHON_TYPES[self.value]
        except KeyError:
            raise TypeError(f"{self.value} is not one of {', '.join(PYTHON_TYPES)}") from None

    def to_json(self) -> dict[str, Any]:
        """Adds the name."""
        return {"type": self.type, "name": self.name, "value": self.value}


class ResourceArgument(Argument):
    """The resource that the reference is part of."""

    __module__ = PUBLIC_MODULE

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

    __module__ = PUBLIC_MODULE

    type = "json"
    value: Any

    def get_arg_value(self, resource: Resource, logger: LoggerABC) -> object:
        """A copy of the list or dict."""
        return _copy_json(self.value)

    def to_json(self) -> dict[str, Any]:
        """Adds the value."""
        return {"type": self.type, "name": self.name, "value": self.value}


class MutatedJsonArgument(Argument):
    """A list or dict with references somewhere in it."""

    __module__ = PUBLIC_MODULE

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
        """The list or dict, with references replaced by values."""
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
    """Serialized form of a reference or mutator."""

    __module__ = PUBLIC_MODULE

    def __init__(self, *, type: str, args: list[Any]) -> None:
        self.type = type
        self.args: list[Argument] = [_argument_from_json(item) for item in args]

    def to_json(self) -> dict[str, Any]:
        """JSON form within a resource."""
        return {"type": self.type, "args": [argument.to_json() for argument in self.args]}

    def model_dump(self, mode: str = "json") -> dict[str, Any]:
        """The same as `to_json`."""
        return self.to_json()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json()})"


class ReferenceModel(SerializedReferenceLike):
    """A serialized reference."""

    __module__ = PUBLIC_MODULE

    def __init__(self, *, type: str, args: list[Any], id: uuid.UUID | str) -> None:
        super().__init__(type=type, args=args)
        self.id = id if isinstance(id, uuid.UUID) else uuid.UUID(id)

    def to_json(self) -> dict[str, Any]:
        """Adds the id."""
        return {**super().to_json(), "id": str(self.id)}


class MutatorModel(SerializedReferenceLike):
    """A serialized mutator."""

    __module__ = PUBLIC_MODULE

    def get_id(self) -> uuid.UUID:
        """Its id, which is not serialized: it only determines the order."""
        return compute_reference_or_mutator_id(self.type, self.args)


def compute_reference_or_mutator_id(reference_type: str, args: list[Any]) -> uuid.UUID:
    """Id derived from the type and the arguments, equal in every process."""
    import hashlib

    text = json.dumps({"type": reference_type, "args": [item.to_json() for item in args]}, sort_keys=True)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    # Like `uuid.uuid3`, which accepts bytes as a name only since Python 3.12.
    name = hashlib.md5(uuid.NAMESPACE_OID.bytes + digest, usedforsecurity=False).digest()
    return uuid.UUID(bytes=name, version=3)
