"""The types of the language, as code of modules may look at them and check values against them."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inmanta.ast import Locatable, Named, Namespace, RuntimeException, TypingException
from inmanta.execute.util import AnyType, NoneValue

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity


def _is_reference(value: object) -> bool:
    from inmanta.references import Reference

    return isinstance(value, Reference)


class Type(Locatable):
    """The base of all types."""

    def validate(self, value: object | None) -> bool:
        """Whether the value fits. Raises RuntimeException, or gives True."""
        raise NotImplementedError()

    def type_string(self) -> str | None:
        """The type as a model writes it; None if a model cannot write it."""
        return None

    def type_string_internal(self) -> str:
        """The type as messages write it."""
        return "Type"

    def __str__(self) -> str:
        text = self.type_string()
        return self.type_string_internal() if text is None else text

    def normalize(self) -> None:
        """Types come complete: there is nothing to resolve."""

    def is_attribute_type(self) -> bool:
        """Whether attributes may have this type."""
        return False

    def is_entity(self) -> bool:
        return False

    def get_base_type(self) -> Type:
        """The type without `[]` and `?`."""
        return self

    def with_base_type(self, base_type: Type) -> Type:
        """The same `[]` and `?` around another type."""
        return base_type

    def supports_references(self) -> bool:
        return False

    def corresponds_to(self, type: Type) -> bool:
        return self == type or isinstance(type, Any)

    def as_python_type_string(self) -> str | None:
        """How Python writes the type; None if it has no word for it."""
        return None

    def issubtype(self, other: Type) -> bool:
        return self == other or other.issupertype(self)

    def issupertype(self, other: Type) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def _refuse(self, value: object) -> RuntimeException:
        return RuntimeException(None, f"Invalid value '{value}', expected {self.type_string_internal()}")


class NamedType(Type, Named):
    """A type that the model gives a name."""

    def type_string(self) -> str:
        return self.get_full_name()

    def type_string_internal(self) -> str:
        return self.get_full_name()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedType) and other.get_full_name() == self.get_full_name()

    def __hash__(self) -> int:
        return hash(self.get_full_name())


class Null(Type):
    """Only null."""

    def validate(self, value: object | None) -> bool:
        if isinstance(value, (NoneValue, AnyType)):
            return True
        raise self._refuse(value)

    def type_string(self) -> str:
        return "null"

    def type_string_internal(self) -> str:
        return "null"

    def as_python_type_string(self) -> str | None:
        return "None"


class Any(Type):
    """Everything."""

    def validate(self, value: object | None) -> bool:
        return True

    def type_string_internal(self) -> str:
        return "any"

    def as_python_type_string(self) -> str | None:
        return "object"

    def issupertype(self, other: Type) -> bool:
        return True


class NullableType(Type):
    """A type, or null."""

    def __init__(self, element_type: Type) -> None:
        self.element_type = element_type

    def validate(self, value: object | None) -> bool:
        return isinstance(value, NoneValue) or self.element_type.validate(value)

    def type_string(self) -> str | None:
        base = self.element_type.type_string()
        return None if base is None else f"{base}?"

    def type_string_internal(self) -> str:
        return f"{self.element_type.type_string_internal()}?"

    def get_base_type(self) -> Type:
        return self.element_type.get_base_type()

    def with_base_type(self, base_type: Type) -> Type:
        return NullableType(self.element_type.with_base_type(base_type))

    def is_attribute_type(self) -> bool:
        return self.element_type.is_attribute_type()

    def as_python_type_string(self) -> str | None:
        base = self.element_type.as_python_type_string()
        return None if base is None else f"{base} | None"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullableType) and other.element_type == self.element_type

    def __hash__(self) -> int:
        return hash((NullableType, self.element_type))


class Primitive(Type):
    """A type of plain values."""

    word = ""
    python = ""

    def fits(self, value: object) -> bool:
        raise NotImplementedError()

    def convert(self, value: object) -> object:
        raise NotImplementedError()

    def validate(self, value: object | None) -> bool:
        if isinstance(value, AnyType) or self.fits(value):
            return True
        raise self._refuse(value)

    def cast(self, value: object | None) -> object:
        """The value as one of this type; raises RuntimeException if there is none."""
        if isinstance(value, AnyType):
            return value
        try:
            return self.convert(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise RuntimeException(None, f"Failed to cast '{value}' to {self}") from error

    def type_string(self) -> str:
        return self.word

    def type_string_internal(self) -> str:
        return self.word

    def is_attribute_type(self) -> bool:
        return True

    def as_python_type_string(self) -> str | None:
        return self.python


class Number(Primitive):
    """Any number."""

    word = "number"
    python = "numbers.Number"

    def fits(self, value: object) -> bool:
        return isinstance(value, numbers.Number)

    def convert(self, value: object) -> object:
        if isinstance(value, (int, bool)):
            return int(value)
        return float(value)  # type: ignore[arg-type]

    def issupertype(self, other: Type) -> bool:
        return isinstance(other, (Integer, Float))


class Float(Primitive):
    """Numbers with a point."""

    word = "float"
    python = "float"

    def fits(self, value: object) -> bool:
        return isinstance(value, float)

    def convert(self, value: object) -> object:
        return float(value)  # type: ignore[arg-type]


class Integer(Primitive):
    """Whole numbers."""

    word = "int"
    python = "int"

    def fits(self, value: object) -> bool:
        return isinstance(value, int)

    def convert(self, value: object) -> object:
        return int(value)  # type: ignore[call-overload]


class Bool(Primitive):
    """True or false."""

    word = "bool"
    python = "bool"

    def fits(self, value: object) -> bool:
        return isinstance(value, bool)

    def convert(self, value: object) -> object:
        return False if isinstance(value, NoneValue) else bool(value)


class String(Primitive):
    """Text."""

    word = "string"
    python = "str"

    def fits(self, value: object) -> bool:
        return isinstance(value, str)

    def convert(self, value: object) -> object:
        return str(value).lower() if isinstance(value, bool) else str(value)


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
    """What a model can write down without entities: plain values, lists and dicts of them, references."""

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
    """A type, or a reference that resolves to it: what attributes accept."""

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
    """The simplest type that accepts what any of these does."""
    rest = [option for option in types if not isinstance(option, Null)]
    base = rest[0] if len(rest) == 1 else Union(rest)
    if not rest:
        return Null()
    return base if len(rest) == len(types) else NullableType(base)


def parse_type(text: str, find: Callable[[str], Entity | ConstraintType | None]) -> Type | None:
    """The type that a model writes like this; None if it has a name in it that is none of a type."""
    if text.endswith("?"):
        inner = parse_type(text[:-1], find)
        return None if inner is None else NullableType(inner)
    if text.endswith("[]"):
        inner = parse_type(text[:-2], find)
        return None if inner is None else TypedList(inner)
    return TYPES.get(text) or find(text)
