"""Type aliases for strings and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NewType

ResourceIdStr = NewType("ResourceIdStr", str)
ResourceVersionIdStr = NewType("ResourceVersionIdStr", str)
ResourceType = NewType("ResourceType", str)
AgentName = NewType("AgentName", str)

PrimitiveTypes = Any
SimpleTypes = Any
JsonType = dict[str, Any]
ReturnTypes = Sequence[Any] | Mapping[str, Any] | None
ArgumentTypes = Any
Apireturn = Any
