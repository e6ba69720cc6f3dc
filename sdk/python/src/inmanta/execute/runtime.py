"""Instances of a model, their variables and scopes, as seen by module code.

The instances themselves live in the core. This is a cache of their data, with requests for missing data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from inmanta.ast import (
    Locatable,
    Location,
    NotFoundException,
    OptionalValueException,
    UnsetException,
)

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity


class NoValue:
    """Marks an optional slot that is frozen without a value."""

    __slots__ = ()


class Pending:
    """Marks a slot that has no value yet; `cell` is the cell to wait for."""

    __slots__ = ("cell",)

    def __init__(self, cell: int) -> None:
        self.cell = cell


class Source(Protocol):
    """Source of instance data: the conversation with the core, or a fake in tests."""

    epoch: int

    def fetch(self, instances: Sequence[Instance]) -> None:
        """Refreshes the data of these instances."""

    def decode(self, value: Any) -> Any:
        """Decodes a value of a message."""

    def where(self, instance: Instance) -> tuple[Location, str]:
        """The source location of an instance, and its description."""


class ResultVariable:
    """A variable: an attribute of an instance, or a name in a scope."""

    def get_value(self) -> object:
        """Its value. Raises UnsetException if it has none yet, OptionalValueException if it is frozen without one."""
        raise NotImplementedError()

    def is_ready(self) -> bool:
        """True if the value is available and final."""
        try:
            self.get_value()
        except UnsetException:
            return False
        except OptionalValueException:
            return True
        return True

    @property
    def value(self) -> object:
        """The value, or None if there is none."""
        try:
            return self.get_value()
        except (UnsetException, OptionalValueException):
            return None

    def waits_for(self) -> list[int]:
        """The numbers of the cells that this variable waits for."""
        return []


class ConstantVariable(ResultVariable):
    """A variable with a value."""

    def __init__(self, value: object) -> None:
        self._value = value

    def get_value(self) -> object:
        return self._value


class PendingVariable(ResultVariable):
    """A variable that has no value yet."""

    def __init__(self, cell: int) -> None:
        self.cell = cell

    def get_value(self) -> object:
        raise UnsetException("Value not available", self)

    def waits_for(self) -> list[int]:
        return [self.cell]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingVariable) and other.cell == self.cell

    def __hash__(self) -> int:
        return hash((PendingVariable, self.cell))


class AttributeVariable(ResultVariable):
    """An attribute of an instance."""

    def __init__(self, instance: Instance, name: str) -> None:
        self.myself = instance
        self.name = name

    @property
    def attribute(self) -> object:
        return self.myself.type.get_attribute(self.name)

    @property
    def type(self) -> object:
        return self.attribute.type  # type: ignore[attr-defined]

    def get_value(self) -> object:
        return self.myself.read(self.name, self)

    def waits_for(self) -> list[int]:
        slot = self.myself.slot(self.name)
        return [slot.cell] if isinstance(slot, Pending) else []

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AttributeVariable) and other.myself is self.myself and other.name == self.name
        )

    def __hash__(self) -> int:
        return hash((id(self.myself), self.name))

    def __str__(self) -> str:
        return f"{self.myself} {self.attribute} = {self.value}"


class Instance(Locatable):
    """An instance of an entity. There is one object for each instance, so identity is equality."""

    def __init__(self, number: int, source: Source) -> None:
        self.number = number
        self._entity: Entity | None = None
        # The Python object that a dataclass instance was created from, if any.
        self.made_of: object | None = None
        self._source = source
        self._told: list[Any] | None = None
        self._told_in = -1
        self._values: dict[str, object] = {}
        self._where: tuple[Location, str] | None = None

    @property
    def type(self) -> Entity:
        """Its entity. Fetched if the instance is only known by number."""
        if self._entity is None:
            self._source.fetch([self])
        assert self._entity is not None
        return self._entity

    def tell(self, entity: Entity, values: list[Any]) -> None:
        """Sets the slots from the core, in the order of the entity's slots."""
        self._entity = entity
        self._told = values
        self._told_in = self._source.epoch

    def is_told(self) -> bool:
        """True if data of the instance was received."""
        return self._told is not None

    def slot(self, name: str) -> object:
        """The current state of a slot: its value, Pending or NoValue. Fetched from the core if necessary."""
        if name in self._values:
            return self._values[name]
        position = self.type.slot_position(name)
        if position is None:
            raise NotFoundException(
                None, name, f"could not find attribute with name: {name} in type {self.type}"
            )
        if self._told is None:
            self._source.fetch([self])
        value = self._slot_at(position)
        if isinstance(value, Pending) and self._told_in != self._source.epoch:
            # A pending state may be outdated.
            self._source.fetch([self])
            value = self._slot_at(position)
        if not isinstance(value, Pending):
            self._values[name] = value
        return value

    def _slot_at(self, position: int) -> object:
        assert self._told is not None
        return self._source.decode(self._told[position])

    def read(self, name: str, variable: AttributeVariable | None = None) -> object:
        """The model value of an attribute."""
        value = self._values.get(name, self)
        if value is self:
            value = self.slot(name)
            if isinstance(value, Pending):
                raise UnsetException("Value not available", variable or AttributeVariable(self, name))
        if isinstance(value, NoValue):
            attribute = self.type.get_attribute(name)
            assert attribute is not None
            raise OptionalValueException(self, attribute)
        return value

    def get_attribute(self, name: str) -> ResultVariable:
        """The variable of an attribute; raises NotFoundException if there is none."""
        if name == "self":
            return ConstantVariable(self)
        if self.type.slot_position(name) is None:
            raise NotFoundException(
                None, name, f"could not find attribute with name: {name} in type {self.type}"
            )
        return AttributeVariable(self, name)

    @property
    def slots(self) -> dict[str, ResultVariable]:
        return {name: AttributeVariable(self, name) for name in self.type.slot_names}

    def get_type(self) -> Entity:
        return self.type

    def _place(self) -> tuple[Location, str]:
        if self._where is None:
            self._where = self._source.where(self)
        return self._where

    def get_location(self) -> Location:
        return self._place()[0]

    @property
    def locations(self) -> list[Location]:
        return [self.get_location()]

    def get_locations(self) -> list[Location]:
        return self.locations

    def __repr__(self) -> str:
        return f"{self.type} {id(self):02x}"

    def __str__(self) -> str:
        return self._place()[1]


class Resolver:
    """The names visible to the caller of a plugin."""

    def lookup(self, name: str, root: object = None) -> ResultVariable:
        """The variable of that name; raises NotFoundException if there is none."""
        raise NotFoundException(None, name, f"variable {name} not found")


class ExecutionContext(Resolver):
    """The scope that a plugin is called from."""


class QueueScheduler:
    """The queue of the compiler. Module code only passes it on."""

    def __init__(self, compiler: object) -> None:
        self.compiler = compiler

    def get_compiler(self) -> object:
        return self.compiler
