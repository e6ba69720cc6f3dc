"""The parts of a random model: entities, relations, and the scope of an expression.

Relations have levels, in the order of their declaration. A tempered model decides by the size of a relation only what
goes into relations of higher levels, as a careful author would; the others read and write as they please and often
end with a list that grows after it was counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Relation:
    """One end of a relation: attribute `name` of `owner`, with values of the entity `target`."""

    owner: Entity
    name: str
    target: Entity
    level: int
    low: int
    high: int | None
    inverse: Relation | None = None
    # The writer of this end, if it or its inverse is single-valued: a second value is an error.
    writer: str = "anyone"

    @property
    def is_list(self) -> bool:
        return self.high != 1

    @property
    def arity(self) -> str:
        if self.high is None:
            return f"[{self.low}:]"
        return f"[{self.low}]" if self.low == self.high else f"[{self.low}:{self.high}]"

    def wants_new_value(self) -> bool:
        """True if a value can have only one owner in this relation, so that a known instance is a risk."""
        return self.inverse is not None and not self.inverse.is_list


@dataclass(eq=False)
class Entity:
    """An entity; `rank` orders entities so that implementations only create entities of a higher rank."""

    name: str
    namespace: str
    rank: int
    parent: Entity | None
    relations: list[Relation] = field(default_factory=list)
    indexed: bool = False
    # True if it declares `int w`, which one of its implementations computes.
    computed: bool = False

    def ancestors(self) -> list[Entity]:
        return [self] + (self.parent.ancestors() if self.parent else [])

    def all_relations(self) -> list[Relation]:
        return [relation for entity in reversed(self.ancestors()) for relation in entity.relations]

    def is_a(self, other: Entity) -> bool:
        return other in self.ancestors()

    def has_index(self) -> bool:
        return any(entity.indexed for entity in self.ancestors())

    def has_computed(self) -> bool:
        return any(entity.computed for entity in self.ancestors())


@dataclass
class Scope:
    """The names and the position of an expression."""

    namespace: str
    instances: list[tuple[str, Entity]] = field(default_factory=list)
    # Names of numbers, with the level of what they count.
    numbers: list[tuple[str, int]] = field(default_factory=list)
    # The loop variable with the number that limits creation here, inside a loop.
    source: str | None = None
    # Entities from this rank on may be created; an implementation must not create its own kind endlessly.
    lowest_rank: int = 0
    # Relations from this level on may be written.
    lowest_level: int = 0
    depth: int = 0
    # True if this runs more than once, in a loop over numbers.
    repeated: bool = False

    def nested(self, level: int = 0) -> Scope:
        return Scope(
            self.namespace,
            list(self.instances),
            list(self.numbers),
            self.source,
            self.lowest_rank,
            max(self.lowest_level, level),
            self.depth + 1,
            self.repeated,
        )

    def ends(self) -> list[tuple[str, Relation]]:
        """All relations that can be read, with the path to their owner."""
        return [(path, relation) for path, entity in self.instances for relation in entity.all_relations()]
