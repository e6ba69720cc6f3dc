"""Calls of the core's API by code in this process, over the existing connection.

Each role installs the function that sends a call: the compile role waits for the response, the handlers
role numbers its calls, since many threads make them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Carrier = Callable[[str, dict[str, Any]], tuple[int, Any]]

_carrier: Carrier | None = None


def use_carrier(carrier: Carrier | None) -> None:
    """Sets the function that sends calls to the core; None if there is none."""
    global _carrier
    _carrier = carrier


def call(method: str, arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """Calls a method of the core; returns its status code and result.

    Raises ConnectionRefusedError if this process has no core, as modules expect of an unreachable server.
    """
    if _carrier is None:
        raise ConnectionRefusedError(f"there is no server to call {method} on")
    return _carrier(method, {name: plain(value) for name, value in arguments.items()})


def plain(value: Any) -> Any:
    """The JSON form of an argument; raises TypeError if it has none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    from inmanta.util import api_boundary_json_encoder

    return plain(api_boundary_json_encoder(value))
