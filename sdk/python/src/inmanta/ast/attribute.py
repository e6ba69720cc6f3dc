"""Attributes and relations of entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inmanta.ast import Locatable, Location
from inmanta.ast.type import NullableType, OrReferenceType, Type, TypedList

if TYPE_CHECKING:
    from inmanta.ast.entity import Entity


class Attribute(Locatable):
    """A plain attribute. `type` has its `[]` and `?`."""

    def __init__(
        self,
        entity: Entity,
        value_type: Type,
        name: str,
        location: Location,
        multi: bool = False,
        nullable: bool = False,
    ) -> None:
        if multi:
            value_type = TypedList(value_type)
        if nullable:
            value_type = NullableType(value_type)
        self.entity = entity
        self.name = name
        self.comment: str | None = None
        self._type = value_type
        self.set_location(location)

    @property
    def type(self) -> Type:
        return self._type

    @property
    def type_internal(self) -> Type:
        """The assignable type: the type itself, or a reference to it."""
        return OrReferenceType(self._type)

    def get_type(self) -> Type:
        return self.type

    def get_name(self) -> str:
        return self.name

    def get_entity(self) -> Entity:
        return self.entity

    def is_optional(self) -> bool:
        return isinstance(self._type, NullableType)

    def is_multi(self) -> bool:
        bare = self._type.element_type if isinstance(self._type, NullableType) else self._type
        return isinstance(bare, TypedList)

    def validate(self, value: object) -> None:
        """Raises RuntimeException if the value does not match."""
        self.type_internal.validate(value)

    def __repr__(self) -> str:
        return self.name


class RelationAttribute(Attribute):
    """One end of a relation: `type` is the entity at the other end."""

    def __init__(self, entity: Entity, value_type: Type, name: str, location: Location) -> None:
        super().__init__(entity, value_type, name, location)
        self.end: RelationAttribute | None = None
        self.low = 1
        self.high: int | None = 1
        self.source_annotations: list[object] = []
        self.target_annotations: list[object] = []

    @property
    def type_internal(self) -> Type:
        return self._type

    def set_multiplicity(self, values: tuple[int, int | None]) -> None:
        self.low, self.high = values

    def is_optional(self) -> bool:
        return self.low == 0

    def is_multi(self) -> bool:
        return self.high is None or self.high > 1

    def __str__(self) -> str:
        return f"{self.entity.get_full_name()}.{self.name}"

    def __repr__(self) -> str:
        if self.low == self.high:
            return f"[{self.low}] {self.name}"
        return f"[{self.low}:{'' if self.high is None else self.high}] {self.name}"
