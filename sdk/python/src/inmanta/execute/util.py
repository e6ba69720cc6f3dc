"""Two values of models that Python has no word for: null inside collections, and what is not known yet."""

from __future__ import annotations

from collections.abc import Iterator


class AnyType:
    """A value that fits every type."""


class Unknown(AnyType):
    """A value that is not known yet, and perhaps what it depends on.

    :param source: what will make it known, for example the resource that a fact is asked of.
    """

    def __init__(self, source: object) -> None:
        self.source = source

    def __iter__(self) -> Iterator[object]:
        """There is nothing to loop over as long as it is not known."""
        return iter(())


class NoneValue:
    """Null, as it stands inside lists and dicts of a model."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoneValue)

    def __hash__(self) -> int:
        return hash(None)

    def __str__(self) -> str:
        return "null"

    def __repr__(self) -> str:
        return "null"
