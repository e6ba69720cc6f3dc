"""Values on the wire and in Python: tagged values become instances, unknowns and objects, and the other way round.

Python objects (references, subclasses of str, any object) stay in a table here. The core
refers to them by number, and a number sent back is the identical object.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inmanta.ast import RuntimeException
from inmanta.execute.proxy import DynamicProxy, paired_entities
from inmanta.execute.runtime import Instance, NoValue, Pending
from inmanta.execute.util import NoneValue, Unknown
from inmanta.references import AttributeReference, Reference
from orrery_sdk.wire import WireError

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_NULL = NoneValue()
_NO_VALUE = NoValue()
_TAG = "$"


class Handles:
    """Objects by number, for the lifetime of the compile."""

    def __init__(self) -> None:
        self._objects: list[object] = []
        self._numbers: dict[int, int] = {}
        # Numbers of possibly equal objects: by their value key, or else by their class.
        self._by_value: dict[object, int] = {}
        self._by_class: dict[type[object], list[int]] = {}

    def number(self, item: object) -> tuple[int, bool]:
        """The number of an object, and true if it is new."""
        known = self._numbers.get(id(item))
        if known is not None:
            return known, False
        # The list keeps the object, so nothing else can get its id.
        self._objects.append(item)
        self._numbers[id(item)] = len(self._objects) - 1
        return len(self._objects) - 1, True

    def equality(self, item: object, number: int) -> int:
        """The number of the first object that is equal to this one."""
        key = _value_key(item)
        if key is not None:
            return self._by_value.setdefault(key, number)
        alike = self._by_class.setdefault(type(item), [])
        for other in alike:
            if _equal(self._objects[other], item):
                return other
        alike.append(number)
        return number

    def object(self, number: int) -> object:
        """The object of a number."""
        try:
            return self._objects[number]
        except (IndexError, TypeError):
            raise WireError(f"there is no object {number}") from None


def _value_key(item: object) -> object | None:
    """A hashable key for equality within the class; None if objects must be compared."""
    if isinstance(item, Reference) and type(item).__eq__ is Reference.__eq__:
        key: object = (type(item), tuple(sorted(item.arguments.items())))
    elif isinstance(item, (tuple, frozenset)):
        key = (type(item), item)
    else:
        return None
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:
        # Objects that cannot be compared are different.
        return one is other


def class_name(cls: type[object]) -> str:
    """The name of a class in Python's messages."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class Values:
    """Converts between wire and model values: lists, dicts, instances, unknowns, null as NoneValue.

    :param instance: returns the instance with a number.
    :param type_text: returns a Python type in model syntax.
    """

    def __init__(
        self, instance: Callable[[int], Instance], type_text: Callable[[object, str], str | None]
    ) -> None:
        self.handles = Handles()
        self._instance = instance
        self._type_text = type_text
        self._unknowns: dict[int, Unknown] = {}
        self._unknown_numbers: dict[int, int] = {}

    # From the wire

    def decode(self, value: Any) -> Any:
        """Decodes a value of the wire."""
        kind = type(value)
        if kind is str or kind is int or kind is bool or kind is float:
            return value
        if value is None:
            return _NULL
        if kind is list:
            return [self.decode(item) for item in value]
        if kind is dict:
            if len(value) == 1 and _TAG in value:
                return self._decode_tagged(value[_TAG])
            return {key: self.decode(item) for key, item in value.items()}
        raise WireError(f"not a value: {value!r}")

    def _decode_tagged(self, tag: Any) -> Any:
        if not isinstance(tag, list) or not tag:
            raise WireError(f"not a tagged value: {tag!r}")
        try:
            return self._decode_word(tag[0], tag)
        except (IndexError, ValueError, TypeError) as error:
            raise WireError(f"not a tagged value: {tag!r}: {error}") from error

    def _decode_word(self, word: Any, tag: list[Any]) -> Any:
        if word == "i":
            return self._instance(tag[1])
        if word == "p":
            return Pending(tag[1])
        if word == "n":
            return _NO_VALUE
        if word == "u":
            return self.unknown(tag[1])
        if word == "o":
            return _foreign(tag[2]) if tag[1] is None else self.handles.object(tag[1])
        if word == "s":
            return self.handles.object(tag[2])
        if word == "c":
            instance = self._instance(tag[1])
            instance.made_of = self.handles.object(tag[2])
            return instance
        if word == "d":
            return {key: self.decode(item) for key, item in tag[1].items()}
        if word == "b":
            return int(tag[1])
        if word == "f":
            return float(tag[1])
        raise WireError(f"not a tagged value: {tag!r}")

    def unknown(self, number: int) -> Unknown:
        """The unknown of a number: one object for each."""
        known = self._unknowns.get(number)
        if known is None:
            known = Unknown(source=None)
            self._unknowns[number] = known
            self._unknown_numbers[id(known)] = number
        return known

    # To the wire

    def encode(self, value: Any) -> Any:
        """Encodes a plugin result for the wire, including proxies, None and dataclasses."""
        kind = type(value)
        if kind is str or value is None or kind is bool:
            return value
        if kind is int:
            return value if _INT_MIN <= value <= _INT_MAX else {_TAG: ["b", str(value)]}
        if kind is float:
            return value if math.isfinite(value) else {_TAG: ["f", _odd_float(value)]}
        if kind is list:
            return [self.encode(item) for item in value]
        if kind is dict:
            return self._encode_dict(value)
        return self._encode_other(value)

    def _encode_dict(self, value: dict[Any, Any]) -> Any:
        encoded = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise RuntimeException(
                    None, f"dict keys should be strings, got {key} of type {type(key)} with dict value {item}"
                )
            encoded[str.__str__(key)] = self.encode(item)
        return {_TAG: ["d", encoded]} if _TAG in encoded else encoded

    def _encode_other(self, value: Any) -> Any:
        if isinstance(value, DynamicProxy):
            return self.encode(value._get_instance())
        if isinstance(value, Instance):
            return {_TAG: ["i", value.number]}
        if isinstance(value, NoneValue):
            return None
        if isinstance(value, Unknown):
            return self._encode_unknown(value)
        if isinstance(value, str):
            return {_TAG: ["s", str.__str__(value), self.handles.number(value)[0]]}
        if isinstance(value, (list, dict)):
            return self.encode(list(value)) if isinstance(value, list) else self._encode_dict(value)
        if isinstance(value, bool | int | float) and type(value).__module__ != "builtins":
            # A subclass of a number, such as the members of an enum: the model has the number only.
            return self.encode(int(value) if isinstance(value, int) else float(value))
        if isinstance(value, Reference):
            return self._encode_reference(value)
        entity = paired_entities.get(type(value))
        if entity is not None:
            return self._encode_dataclass(value, entity)
        return self._encode_object(value, {})

    def _encode_unknown(self, value: Unknown) -> Any:
        number = self._unknown_numbers.get(id(value))
        if number is not None:
            return {_TAG: ["u", number]}
        # The core numbers it. It is kept alive, so that its id is not reused.
        self.handles.number(value)
        source = value.source
        if isinstance(source, DynamicProxy):
            source = source._get_instance()
        return {_TAG: ["U", source.number] if isinstance(source, Instance) else ["U"]}

    def _encode_object(self, value: object, more: dict[str, Any]) -> Any:
        number, new = self.handles.number(value)
        if not new:
            return {_TAG: ["o", number]}
        about = {
            "class": class_name(type(value)),
            "repr": _safe_repr(value),
            "eq": self.handles.equality(value, number),
            **more,
        }
        return {_TAG: ["o", number, about]}

    def _encode_reference(self, value: Reference[Any], resolves_to: str | None = None) -> Any:
        if isinstance(value, ForeignReference):
            resolves_to = value.resolves_to
        target = type(value).get_reference_type()
        if resolves_to is None and target is not None:
            entity = paired_entities.get(target)
            if entity is not None:
                return self._encode_dataclass_reference(value, target, entity)
            resolves_to = self._type_text(target, class_name(type(value)))
        return self._encode_object(value, {"ref": resolves_to or "any"})

    def _encode_dataclass(self, value: Any, entity: Entity) -> Any:
        fields = {
            field.name: self.encode(getattr(value, field.name)) for field in dataclasses.fields(type(value))
        }
        return {_TAG: ["c", entity.get_full_name(), fields, self.handles.number(value)[0]]}

    def _encode_dataclass_reference(self, value: Reference[Any], target: type[Any], entity: Entity) -> Any:
        """A reference to a dataclass is an instance whose attributes are references to attributes."""
        fields = {}
        for field in dataclasses.fields(target):
            attribute = entity.get_attribute(field.name)
            text = None if attribute is None else str(attribute.type)
            # Nullable or not, a reference resolves to a value.
            text = (text or "any").removesuffix("?")
            fields[field.name] = self._encode_reference(AttributeReference(value, field.name), text)
        return {_TAG: ["c", entity.get_full_name(), fields, self.handles.number(value)[0]]}


class ForeignObject:
    """A value of the core, known here only by its printed form."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


class ForeignReference(Reference[Any]):
    """A reference created by the core, which can only be passed on."""

    def __init__(self, shown: str, resolves_to: str) -> None:
        super().__init__()
        self._shown = shown
        self.resolves_to = resolves_to

    def __repr__(self) -> str:
        return self._shown


def _foreign(about: dict[str, Any]) -> object:
    shown = str(about.get("repr") or "")
    resolves_to = about.get("ref")
    return ForeignObject(shown) if resolves_to is None else ForeignReference(shown, str(resolves_to))


def _odd_float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def _safe_repr(value: object) -> str:
    """The `repr` of an object, with a fallback for a broken `__repr__`."""
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)
