"""Data classes that handlers exchange with the orchestrator."""

from __future__ import annotations

import json
import logging
from typing import Any

import inmanta
from inmanta.types import ResourceIdStr, ResourceVersionIdStr
from inmanta.util import api_boundary_json_encoder

__all__ = ["AttributeStateChange", "ResourceIdStr", "ResourceVersionIdStr"]

LOGGER = logging.getLogger("inmanta.util")


class AttributeStateChange:
    """The current and desired value of an attribute."""

    __slots__ = ("current", "desired")

    def __init__(self, *, current: object = None, desired: object = None, **_others: object) -> None:
        self.current = self.check_serializable(current)
        self.desired = self.check_serializable(desired)

    @classmethod
    def check_serializable(cls, v: object) -> object:
        """The value if it is serializable as JSON; else its text, which is an error in tests."""
        if v is None or isinstance(v, str | int | float | bool):
            return v
        try:
            json.dumps(v, default=api_boundary_json_encoder)
        except Exception as error:
            if inmanta.RUNNING_TESTS:
                raise Exception(f"Failed to serialize attribute {v}") from error
            LOGGER.error("Unable to serialize %s", v)
            return str(v)
        return v

    def dict(self) -> dict[str, Any]:
        """Both values by name."""
        return {"current": self.current, "desired": self.desired}

    model_dump = dict

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttributeStateChange) and self.dict() == other.dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AttributeStateChange(current={self.current!r}, desired={self.desired!r})"
