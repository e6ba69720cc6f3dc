"""Calls of the core's API by code in this process. They travel over the connection that is there anyway.

Each role installs the function that carries a call: the compile role asks and waits for the answer, the handlers
role numbers its calls, since many threads make them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Carrier = Callable[[str, dict[str, Any]], tuple[int, Any]]

_carrier: Carrier | None = None


def use_carrier(carrier: Carrier | None) -> None:
    """Says how calls reach the core from now on; None if they cannot."""
    global _carrier
    _carrier = carrier


def call(method: str, arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """Calls a method of the core; gives its status code and result.

    Raises ConnectionRefusedError if this process has no core, as modules expect of a server that is not there.
    """
    if _carrier is None:
        raise ConnectionRefusedError(f"there is no server to call {method} on")
    return _carrier(method, {name: plain(value) for name, value in arguments.items()})


def plain(value: Any) -> Any:
    """The JSON form of an argument; raises TypeError for what has none."""
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
