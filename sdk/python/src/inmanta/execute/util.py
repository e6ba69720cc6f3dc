"""Model values without a Python equivalent: null inside collections, and unknowns."""

from __future__ import annotations

from collections.abc import Iterator


class AnyType:
    """A value of every type."""


class Unknown(AnyType):
    """An unknown, optionally with its source.

    :param source: the source of the value, for example the resource of a fact.
    """

    def __init__(self, source: object) -> None:
        self.source = source

    def __iter__(self) -> Iterator[object]:
        """An empty iterator: an unknown has no elements."""
        return iter(())


class NoneValue:
    """Null inside lists and dicts of a model."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoneValue)

    def __hash__(self) -> int:
        return hash(None)

    def __str__(self) -> str:
        return "null"

    def __repr__(self) -> str:
        return "null"
