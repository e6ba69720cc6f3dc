"""Converts reports of handlers to plain JSON. Other values become text; nothing here raises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from inmanta.util import api_boundary_json_encoder

TEXT_MAX = 1024 * 1024
_DEPTH_MAX = 64
_NODES_MAX = 100_000
_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1


def plain(value: object) -> Any:
    """A value as JSON. Very long strings are truncated, very deep or large values become text."""
    return _Walk().value(value, 0)


def text_of(value: object) -> str:
    """The text of a value, also if its `__str__` fails."""
    try:
        return clip(str(value))
    except Exception:
        return f"<{type(value).__name__} that cannot be printed>"


def clip(text: str) -> str:
    """A string truncated to the limit."""
    if len(text) <= TEXT_MAX:
        return str(text)
    return f"{text[:TEXT_MAX]}… ({len(text) - TEXT_MAX} characters were left out)"


class _Walk:
    """Conversion of one value; counts visited parts, since values may contain themselves."""

    def __init__(self) -> None:
        self.nodes = 0

    def value(self, value: object, depth: int) -> Any:
        self.nodes += 1
        if value is None or isinstance(value, bool):
            return value
        # Before strings: enum members are often strings as well.
        if type(value) is str:
            return clip(value)
        if type(value) is int:
            return value if _INTEGER_MIN <= value <= _INTEGER_MAX else str(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(value)
        if depth > _DEPTH_MAX or self.nodes > _NODES_MAX:
            return "…"
        if isinstance(value, Mapping):
            return {self.key(key): self.value(item, depth + 1) for key, item in list(value.items())}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        try:
            simpler = api_boundary_json_encoder(value)
        except Exception:
            simpler = None
        if simpler is not None and simpler is not value:
            return self.value(simpler, depth + 1)
        if isinstance(value, str):
            return clip(str(value))
        if isinstance(value, int):
            return int(value)
        return text_of(value)

    def key(self, key: object) -> str:
        return clip(key) if isinstance(key, str) else text_of(key)
