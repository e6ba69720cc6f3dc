"""Read-only view of entities for module code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inmanta.ast import Location, Namespace, RuntimeException, WithComment
from inmanta.ast.attribute import Attribute, RelationAttribute
from inmanta.ast.type import NamedType, Type
from inmanta.execute.util import AnyType

if TYPE_CHECKING:
    from inmanta.execute.runtime import Instance


class EntityData:
    """Data of an entity from the core. Attribute objects are created lazily."""

    def __init__(
        self,
        *,
        parents: Callable[[], list[Entity]],
        children: Callable[[], list[Entity]],
        attributes: Callable[[Entity], dict[str, Attribute]],
        slots: Sequence[str] = (),
        indexes: Sequence[Sequence[str]] = (),
        instances: Callable[[Entity], list[Instance]] | None = None,
        dataclass: Callable[[Entity], type[object] | None] | None = None,
    ) -> None:
        self.parents = parents
        self.children = children
        self.attributes = attributes
        self.slots = slots
        self.indexes = indexes
        self.instances = instances
        self.dataclass = dataclass


def _nothing() -> list[Any]:
    return []


class Entity(NamedType, WithComment):
    """An entity of the model. Entities are read-only."""

    def __init__(self, name: str, namespace: Namespace, comment: str | None = None) -> None:
        self.name = name
        self.namespace = namespace
        self.comment = comment
        self._full_name = f"{namespace.get_full_name()}::{name}"
        self._data = EntityData(parents=_nothing, children=_nothing, attributes=lambda _: {})
        self._slots: dict[str, int] = {}
        self._parents: list[Entity] | None = None
        self._ancestors: list[Entity] | None = None
        self._attributes: dict[str, Attribute] | None = None

    def describe(self, data: EntityData, location: Location) -> None:
        """Sets the data from the core."""
        self._data = data
        self._slots = {name: position for position, name in enumerate(data.slots)}
        self.set_location(location)

    # Slots: the order of values in instances.

    @property
    def slot_names(self) -> Sequence[str]:
        return self._data.slots

    def slot_position(self, name: str) -> int | None:
        """The slot of an attribute in instances; None if there is none."""
        return self._slots.get(name)

    # Names

    def is_entity(self) -> bool:
        return True

    def get_name(self) -> str:
        return self.name

    def get_full_name(self) -> str:
        return self._full_name

    def get_namespace(self) -> Namespace:
        return self.namespace

    # The tree of entities

    @property
    def parent_entities(self) -> list[Entity]:
        if self._parents is None:
            self._parents = self._data.parents()
        return self._parents

    @property
    def child_entities(self) -> list[Entity]:
        return self._data.children()

    def get_all_parent_entities_sorted(self) -> list[Entity]:
        """All ancestors, each before its own ancestors."""
        if self._ancestors is None:
            found: dict[Entity, None] = {}
            for parent in self.parent_entities:
                found[parent] = None
                for ancestor in parent.get_all_parent_entities_sorted():
                    found[ancestor] = None
            self._ancestors = list(found)
        return list(self._ancestors)

    def get_all_parent_entities(self) -> set[Entity]:
        return set(self.get_all_parent_entities_sorted())

    def get_all_parent_names(self) -> list[str]:
        return [parent.get_full_name() for parent in self.get_all_parent_entities_sorted()]

    def get_all_child_entities(self) -> set[Entity]:
        found: set[Entity] = set()
        for child in self.child_entities:
            found.add(child)
            found |= child.get_all_child_entities()
        return found

    def is_parent(self, parent_candidate: Entity) -> bool:
        """True if the other one is an ancestor of this one."""
        return parent_candidate in self.get_all_parent_entities_sorted()

    def is_subclass(self, superclass_candidate: Entity, *, strict: bool = True) -> bool:
        if self == superclass_candidate:
            return not strict
        return self.is_parent(superclass_candidate)

    def issubtype(self, other: Type) -> bool:
        if isinstance(other, Entity):
            return self.is_subclass(other, strict=False)
        return super().issubtype(other)

    # Attributes

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes that this entity declares itself."""
        if self._attributes is None:
            self._attributes = self._data.attributes(self)
        return self._attributes

    def get_attributes(self) -> dict[str, Attribute]:
        return self.attributes

    def get_all_attributes(self) -> Mapping[str, Attribute]:
        """All attributes including inherited ones, those of the oldest ancestors first."""
        found: dict[str, Attribute] = {}
        for entity in [*reversed(self.get_all_parent_entities_sorted()), self]:
            found.update(entity.attributes)
        return found

    def get_all_attribute_names(self) -> list[str]:
        return list(self._data.slots) if self._data.slots else list(self.get_all_attributes())

    def get_attribute(self, name: str) -> Attribute | None:
        if name in self.attributes:
            return self.attributes[name]
        for parent in self.parent_entities:
            attribute = parent.get_attribute(name)
            if attribute is not None:
                return attribute
        return None

    def has_attribute(self, attribute: str) -> bool:
        return self.get_attribute(attribute) is not None

    def get_indices(self) -> list[list[str]]:
        return [sorted(index) for index in self._data.indexes]

    # Instances

    def get_all_instances(self) -> list[Instance]:
        """All instances of this entity and of its descendants."""
        return [] if self._data.instances is None else self._data.instances(self)

    def get_paired_dataclass(self) -> type[object] | None:
        """The Python class that this entity is the counterpart of."""
        return None if self._data.dataclass is None else self._data.dataclass(self)

    def validate(self, value: object) -> bool:
        from inmanta.execute.proxy import DynamicProxy
        from inmanta.execute.runtime import Instance

        if isinstance(value, AnyType):
            return True
        if isinstance(value, DynamicProxy):
            value = value._get_instance()
        if not isinstance(value, Instance):
            raise RuntimeException(None, f"Invalid type for value '{value}', should be type {self}")
        if not value.type.is_subclass(self, strict=False):
            raise RuntimeException(None, f"Invalid class type for {value}, should be {self}")
        return True

    def as_python_type_string(self) -> str | None:
        paired = self.get_paired_dataclass()
        return None if paired is None else f"{paired.__module__}.{paired.__name__}"

    def __repr__(self) -> str:
        return f"Entity({self._full_name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and other._full_name == self._full_name

    def __hash__(self) -> int:
        return hash(self._full_name)


__all__ = ["Attribute", "Entity", "EntityData", "RelationAttribute"]
