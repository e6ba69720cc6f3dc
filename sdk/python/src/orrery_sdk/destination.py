"""Destination paths of mutators in a resource: `field`, `field[3]`, `field.'key'[0].'it\\'s'`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BadDestination(LookupError):
    """A malformed path, or one without a target."""


def list_item(path: str, position: int) -> str:
    """The path of an item of the list at a path."""
    return f"{path}[{position}]"


def dict_item(path: str, key: str) -> str:
    """The path of the value of a key of the dict at a path."""
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"{path}.'{escaped}'"


def parse(path: str) -> list[str | int]:
    """The steps of a path: the field, then keys and positions."""
    end = 0
    while end < len(path) and path[end] not in ".[":
        end += 1
    if end == 0:
        raise BadDestination(f"a destination begins with the name of a field: {path!r}")
    steps: list[str | int] = [path[:end]]
    while end < len(path):
        if path[end] == "[":
            close = path.find("]", end)
            digits = path[end + 1 : close] if close > 0 else ""
            if not digits.isdigit():
                raise BadDestination(f"expected a position in brackets at {end} in {path!r}")
            steps.append(int(digits))
            end = close + 1
        elif path.startswith(".'", end):
            key, end = _quoted(path, end + 2)
            steps.append(key)
        else:
            raise BadDestination(f"expected `[` or `.'` at {end} in {path!r}")
    return steps


def _quoted(path: str, start: int) -> tuple[str, int]:
    text: list[str] = []
    at = start
    while at < len(path):
        character = path[at]
        if character == "\\" and path[at + 1 : at + 2] in ("'", "\\"):
            text.append(path[at + 1])
            at += 2
        elif character == "'":
            return "".join(text), at + 1
        else:
            text.append(character)
            at += 1
    raise BadDestination(f"the key that begins at {start} in {path!r} does not end")


def assign(root: Any, path: str, value: object) -> None:
    """Assigns a value at a path below an object or dict. The path must exist."""
    steps = parse(path)
    container = root
    for step in steps[:-1]:
        container = _step(container, step, path)
    last = steps[-1]
    _step(container, last, path)
    container[last] = value


def _step(container: Any, step: str | int, path: str) -> Any:
    fits = isinstance(container, list) if isinstance(step, int) else _has_keys(container)
    if fits:
        try:
            return container[step]
        except LookupError:
            pass
    raise BadDestination(
        f"the destination {path!r} does not exist: there is no {step!r} in a {type(container).__name__}"
    )


def _has_keys(container: Any) -> bool:
    return isinstance(container, Mapping) or (
        not isinstance(container, list | str) and hasattr(type(container), "__getitem__")
    )
