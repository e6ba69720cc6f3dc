"""The types of the model: the core sends them once, and objects are created lazily."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inmanta.ast import Location, Namespace
from inmanta.ast.attribute import Attribute, RelationAttribute
from inmanta.ast.entity import Entity, EntityData
from inmanta.ast.type import Any as AnyValue
from inmanta.ast.type import ConstraintType, Type, parse_type
from orrery_sdk.wire import Message, WireError

if TYPE_CHECKING:
    from inmanta.execute.runtime import Instance


class TypeTable:
    """All entities and typedefs, by position and by name.

    :param instances: returns the instances of an entity and of its descendants.
    :param check: returns true if a value matches a typedef.
    """

    def __init__(
        self,
        instances: Callable[[Entity], list[Instance]],
        check: Callable[[ConstraintType, object], bool],
    ) -> None:
        self._instances = instances
        self._check = check
        self.root = Namespace("__root__")
        self._raw: list[dict[str, Any]] = []
        self._entities: list[Entity | None] = []
        self._positions: dict[str, int] = {}
        self._children: list[list[int]] = []
        self._raw_typedefs: dict[str, dict[str, Any]] = {}
        self._typedefs: dict[str, ConstraintType] = {}
        self._dataclasses: dict[str, type[object]] = {}

    def load(self, message: Message) -> None:
        """Loads the message `types`."""
        self._raw = message.get("entities") or []
        self._entities = [None] * len(self._raw)
        self._positions = {raw["name"]: position for position, raw in enumerate(self._raw)}
        self._children = [[] for _ in self._raw]
        for position, raw in enumerate(self._raw):
            for parent in raw.get("parents") or ():
                self._children[parent].append(position)
        self._raw_typedefs = {raw["name"]: raw for raw in message.get("typedefs") or ()}
        self._typedefs = {}
        for name in message.get("namespaces") or ():
            self.root.get_ns_or_create(name)

    def pair(self, classes: dict[str, type[object]]) -> dict[type[object], Entity]:
        """Pairs Python classes with entities; returns the pairs with an existing entity."""
        self._dataclasses = classes
        return {
            cls: entity
            for name, cls in classes.items()
            if (entity := self.entity_named(name)) is not None
            and "std::Dataclass" in entity.get_all_parent_names()
        }

    def entity(self, position: int) -> Entity:
        """The entity at a position of the core's table."""
        try:
            entity = self._entities[position]
        except (IndexError, TypeError):
            raise WireError(f"there is no entity {position}") from None
        return self._make(position) if entity is None else entity

    def entity_named(self, name: str) -> Entity | None:
        position = self._positions.get(name)
        return None if position is None else self.entity(position)

    def named(self, name: str) -> Entity | ConstraintType | None:
        """An entity or typedef by its full name."""
        return self.entity_named(name) or self._typedef(name)

    def seen_from(self, name: str, namespace: str) -> Entity | ConstraintType | None:
        """An entity or typedef by its name in a namespace, qualified or not."""
        parts = namespace.split("::") if namespace else []
        while parts and "::" not in name:
            found = self.named("::".join([*parts, name]))
            if found is not None:
                return found
            parts.pop()
        return self.named(name)

    def type(self, text: str, namespace: str = "") -> Type | None:
        """Parses a type in model syntax; None if it contains an unknown name."""
        return parse_type(text, lambda name: self.seen_from(name, namespace))

    def all_types(self) -> dict[str, Entity | ConstraintType]:
        """All by full name, as exporters and dependency managers get them."""
        found: dict[str, Entity | ConstraintType] = {}
        for position, raw in enumerate(self._raw):
            found[raw["name"]] = self.entity(position)
        for name in self._raw_typedefs:
            typedef = self._typedef(name)
            if typedef is not None:
                found[name] = typedef
        return found

    def namespace(self, name: str) -> Namespace:
        return self.root.get_ns_or_create(name)

    def _split(self, name: str) -> tuple[Namespace, str]:
        namespace, _, last = name.rpartition("::")
        return self.namespace(namespace) if namespace else self.root, last

    def _make(self, position: int) -> Entity:
        raw = self._raw[position]
        namespace, name = self._split(raw["name"])
        entity = Entity(name, namespace, raw.get("doc"))
        self._entities[position] = entity
        entity.describe(
            EntityData(
                parents=lambda: [self.entity(parent) for parent in raw.get("parents") or ()],
                children=lambda: [self.entity(child) for child in self._children[position]],
                attributes=lambda owner: self._attributes(owner, position, raw),
                slots=raw.get("slots") or (),
                indexes=raw.get("indexes") or (),
                instances=self._instances,
                dataclass=lambda owner: self._dataclasses.get(owner.get_full_name()),
            ),
            Location(raw.get("file") or "", raw.get("line") or 0),
        )
        return entity

    def _attributes(self, owner: Entity, position: int, raw: dict[str, Any]) -> dict[str, Attribute]:
        made: dict[str, Attribute] = {}
        for item in raw.get("attributes") or ():
            # The list may include inherited attributes, which belong to the declaring entity.
            if item.get("owner", position) == position:
                made[item["name"]] = self._attribute(owner, item)
        return made

    def _attribute(self, owner: Entity, item: dict[str, Any]) -> Attribute:
        place = owner.get_location()
        location = Location("" if place is None else place.file, item.get("line") or 0)
        target = self.type(item["type"], owner.namespace.get_full_name()) or AnyValue()
        if not item.get("relation"):
            attribute = Attribute(owner, target, item["name"], location)
        else:
            attribute = _Relation(owner, target, item["name"], location)
            attribute.set_multiplicity((item.get("low") or 0, item.get("high")))
            attribute.end_name = item.get("end")
        attribute.comment = item.get("doc")
        return attribute

    def _typedef(self, name: str) -> ConstraintType | None:
        known = self._typedefs.get(name)
        if known is not None:
            return known
        raw = self._raw_typedefs.get(name)
        if raw is None:
            return None
        namespace, last = self._split(name)
        made = ConstraintType(namespace, last)
        self._typedefs[name] = made
        made.basetype = self.type(raw.get("base") or "", namespace.get_full_name()) or AnyValue()
        made.constraint_text = raw.get("constraint")
        made.comment = raw.get("doc")
        made.check = self._check
        if raw.get("file"):
            made.set_location(Location(raw["file"], raw.get("line") or 0))
        return made


class _Relation(RelationAttribute):
    """A relation that resolves its inverse lazily, since both ends refer to each other."""

    end_name: str | None = None

    @property
    def end(self) -> RelationAttribute | None:
        if self.end_name is None or not isinstance(self.type, Entity):
            return None
        found = self.type.get_attribute(self.end_name)
        return found if isinstance(found, RelationAttribute) else None

    @end.setter
    def end(self, value: RelationAttribute | None) -> None:
        self.end_name = None if value is None else value.name
