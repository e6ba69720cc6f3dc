"""The types of plain values, and the base of all types. Users import them from `inmanta.ast.type`."""

from __future__ import annotations

import numbers

from inmanta.ast import Locatable, Named, RuntimeException
from inmanta.execute.util import AnyType, NoneValue


class Type(Locatable):
    """The base of all types."""

    def validate(self, value: object | None) -> bool:
        """Checks a value. Returns True, or raises RuntimeException."""
        raise NotImplementedError()

    def type_string(self) -> str | None:
        """The type in model syntax; None if it has none."""
        return None

    def type_string_internal(self) -> str:
        """The type in messages."""
        return "Type"

    def __str__(self) -> str:
        text = self.type_string()
        return self.type_string_internal() if text is None else text

    def normalize(self) -> None:
        """Does nothing: types are already resolved."""

    def is_attribute_type(self) -> bool:
        """True if attributes may have this type."""
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
        """The type in Python syntax; None if it has none."""
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
    """A named type of the model."""

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
        """Converts a value to this type; raises RuntimeException if that fails."""
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
    """Floating-point numbers."""

    word = "float"
    python = "float"

    def fits(self, value: object) -> bool:
        return isinstance(value, float)

    def convert(self, value: object) -> object:
        return float(value)  # type: ignore[arg-type]


class Integer(Primitive):
    """Integers."""

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


# Users know them from `inmanta.ast.type`, and messages of Python name the module of a class.
for _public in (Type, NamedType, Null, Any, NullableType, Primitive, Number, Float, Integer, Bool, String):
    _public.__module__ = "inmanta.ast.type"
