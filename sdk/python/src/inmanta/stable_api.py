"""A marker for the stable API of modules."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def stable_api(elem: T) -> T:
    """Marks a class or function as stable; has no other effect."""
    return elem
