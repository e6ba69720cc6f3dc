"""The types of the language, for inspection and value checks in module code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inmanta.ast import Namespace, RuntimeException, TypingException
from inmanta.ast.plain_types import (
    Any,
    Bool,
    Float,
    Integer,
    NamedType,
    Null,
    NullableType,
    Number,
    Primitive,
    String,
    Type,
)
from inmanta.execute.util import AnyType, NoneValue

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity

__all__ = [
    "TYPES",
    "Any",
    "Bool",
    "ConstraintType",
    "Dict",
    "Float",
    "Integer",
    "List",
    "Literal",
    "LiteralDict",
    "LiteralList",
    "NamedType",
    "Null",
    "NullableType",
    "Number",
    "OrReferenceType",
    "Primitive",
    "ReferenceType",
    "String",
    "Type",
    "TypedDict",
    "TypedList",
    "Union",
    "create_union",
    "parse_type",
]


def _is_reference(value: object) -> bool:
    from inmanta.references import Reference

    return isinstance(value, Reference)


class List(Type):
    """A list of anything."""

    def validate(self, value: object | None) -> bool:
        if isinstance(value, (AnyType, list)):
            return True
        raise TypingException(None, f"Invalid value '{value}', expected {self.type_string_internal()}")

    def type_string(self) -> str | None:
        return "list"

    def type_string_internal(self) -> str:
        return "list"

    def as_python_type_string(self) -> str | None:
        return "list[object]"


class TypedList(List):
    """A list of values of one type."""

    def __init__(self, element_type: Type) -> None:
        self.element_type = element_type

    def validate(self, value: object | None) -> bool:
        super().validate(value)
        if isinstance(value, list):
            for item in value:
                self.element_type.validate(item)
        return True

    def type_string(self) -> str | None:
        base = self.element_type.type_string()
        return None if base is None else f"{base}[]"

    def type_string_internal(self) -> str:
        return f"{self.element_type.type_string_internal()}[]"

    def get_base_type(self) -> Type:
        return self.element_type.get_base_type()

    def with_base_type(self, base_type: Type) -> Type:
        return TypedList(self.element_type.with_base_type(base_type))

    def is_attribute_type(self) -> bool:
        return self.element_type.is_attribute_type()

    def as_python_type_string(self) -> str | None:
        base = self.element_type.as_python_type_string()
        return None if base is None else f"list[{base}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedList) and other.element_type == self.element_type

    def __hash__(self) -> int:
        return hash((TypedList, self.element_type))


class Dict(Type):
    """A dict of anything."""

    def validate(self, value: object | None) -> bool:
        if isinstance(value, (AnyType, dict)):
            return True
        raise RuntimeException(None, f"Invalid value '{value}', expected dict")

    def type_string(self) -> str | None:
        return "dict"

    def type_string_internal(self) -> str:
        return "dict"

    def as_python_type_string(self) -> str | None:
        return "dict[str, object]"


class TypedDict(Dict):
    """A dict of values of one type."""

    def __init__(self, element_type: Type) -> None:
        self.element_type = element_type

    def validate(self, value: object | None) -> bool:
        super().validate(value)
        if isinstance(value, dict):
            for item in value.values():
                self.element_type.validate(item)
        return True

    def type_string_internal(self) -> str:
        return f"dict[string, {self.element_type.type_string_internal()}]"

    def as_python_type_string(self) -> str | None:
        base = self.element_type.as_python_type_string()
        return None if base is None else f"dict[str, {base}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedDict) and other.element_type == self.element_type

    def __hash__(self) -> int:
        return hash((TypedDict, self.element_type))


class Literal(Type):
    """Values without entities: plain values, lists and dicts of them, references."""

    def validate(self, value: object | None) -> bool:
        if isinstance(value, (AnyType, NoneValue, str, int, float, bool)) or _is_reference(value):
            return True
        if isinstance(value, list):
            return all(self.validate(item) for item in value)
        if isinstance(value, dict):
            return all(self.validate(item) for item in value.values())
        raise TypingException(None, f"Invalid value '{value}', expected Literal")

    def type_string_internal(self) -> str:
        return "Literal"

    def as_python_type_string(self) -> str | None:
        return "object"


class LiteralList(TypedList):
    """The type `list` of attributes."""

    def __init__(self) -> None:
        super().__init__(Literal())

    def type_string(self) -> str:
        return "list"

    def type_string_internal(self) -> str:
        return "list"

    def get_base_type(self) -> Type:
        return self

    def with_base_type(self, base_type: Type) -> Type:
        return base_type

    def is_attribute_type(self) -> bool:
        return True


class LiteralDict(TypedDict):
    """The type `dict` of attributes."""

    def __init__(self) -> None:
        super().__init__(Literal())

    def type_string(self) -> str:
        return "dict"

    def type_string_internal(self) -> str:
        return "dict"

    def is_attribute_type(self) -> bool:
        return True


class Union(Type):
    """One of several types."""

    def __init__(self, types: Sequence[Type]) -> None:
        self.types = list(types)

    def validate(self, value: object) -> bool:
        for option in self.types:
            try:
                return option.validate(value)
            except RuntimeException:
                continue
        raise TypingException(None, f"Invalid value '{value}', expected {self}")

    def type_string_internal(self) -> str:
        return f"Union[{','.join(option.type_string_internal() for option in self.types)}]"

    def as_python_type_string(self) -> str | None:
        texts = [option.as_python_type_string() for option in self.types]
        return None if None in texts else " | ".join(texts)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Union) and set(other.types) == set(self.types)

    def __hash__(self) -> int:
        return hash(frozenset(self.types))


class ReferenceType(Type):
    """A reference that resolves to a type."""

    def __init__(self, element_type: Type) -> None:
        self.element_type = element_type

    def supports_references(self) -> bool:
        return True

    def validate(self, value: object | None) -> bool:
        if isinstance(value, AnyType) or _is_reference(value):
            return True
        raise self._refuse(value)

    def type_string_internal(self) -> str:
        return f"Reference[{self.element_type.type_string_internal()}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceType) and other.element_type == self.element_type

    def __hash__(self) -> int:
        return hash((ReferenceType, self.element_type))


class OrReferenceType(Type):
    """A type, or a reference that resolves to it: the type of attributes."""

    def __init__(self, element_type: Type) -> None:
        self.element_type = element_type

    def supports_references(self) -> bool:
        return True

    def validate(self, value: object | None) -> bool:
        return _is_reference(value) or self.element_type.validate(value)

    def type_string(self) -> str | None:
        return self.element_type.type_string()

    def type_string_internal(self) -> str:
        return self.element_type.type_string_internal()

    def is_attribute_type(self) -> bool:
        return self.element_type.is_attribute_type()

    def get_base_type(self) -> Type:
        return self.element_type.get_base_type()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrReferenceType) and other.element_type == self.element_type

    def __hash__(self) -> int:
        return hash((OrReferenceType, self.element_type))


class ConstraintType(NamedType):
    """A typedef. Its constraint is evaluated by the core."""

    def __init__(self, namespace: Namespace, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.basetype: Type = Any()
        self.comment: str | None = None
        self.constraint_text: str | None = None
        self.check: Callable[[ConstraintType, object], bool] | None = None

    def get_full_name(self) -> str:
        return f"{self.namespace.get_full_name()}::{self.name}"

    def get_namespace(self) -> Namespace:
        return self.namespace

    def is_attribute_type(self) -> bool:
        return True

    def validate(self, value: object | None) -> bool:
        if isinstance(value, AnyType):
            return True
        self.basetype.validate(value)
        if self.check is None or self.check(self, value):
            return True
        constraint = f"constraint `{self.constraint_text or self.get_full_name()}`"
        raise RuntimeException(self, f"Invalid value {value!r}, does not match {constraint}")

    def as_python_type_string(self) -> str | None:
        return self.basetype.as_python_type_string()

    def issubtype(self, other: Type) -> bool:
        return self == other or self.basetype.issubtype(other)


TYPES: dict[str, Type] = {
    "string": String(),
    "float": Float(),
    "number": Number(),
    "int": Integer(),
    "bool": Bool(),
    "list": LiteralList(),
    "dict": LiteralDict(),
}


def create_union(types: Sequence[Type]) -> Type:
    """The simplest type that accepts all values of these types."""
    rest = [option for option in types if not isinstance(option, Null)]
    base = rest[0] if len(rest) == 1 else Union(rest)
    if not rest:
        return Null()
    return base if len(rest) == len(types) else NullableType(base)


def parse_type(text: str, find: Callable[[str], Entity | ConstraintType | None]) -> Type | None:
    """Parses a type in model syntax; None if it contains an unknown name."""
    if text.endswith("?"):
        inner = parse_type(text[:-1], find)
        return None if inner is None else NullableType(inner)
    if text.endswith("[]"):
        inner = parse_type(text[:-2], find)
        return None if inner is None else TypedList(inner)
    return TYPES.get(text) or find(text)
