"""Helpers for modules: extended JSON encoding, hashes, flags."""

from __future__ import annotations

import abc
import datetime
import enum
import functools
import logging
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, TypeVar

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


class JSONSerializable(abc.ABC):
    """An object that converts itself to simpler values."""

    @abc.abstractmethod
    def json_serialization_step(self) -> Any:
        """A JSON value, or a value closer to one."""


def hash_file(content: bytes) -> str:
    """The id of a content: its SHA-1."""
    import hashlib

    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def hash_file_streaming(file_handle: BinaryIO) -> str:
    """The same for a stream."""
    import hashlib

    digest = hashlib.sha1(usedforsecurity=False)
    while chunk := file_handle.read(64 * 1024):
        digest.update(chunk)
    return digest.hexdigest()


def strtobool(val: str) -> bool:
    """Converts a word to a boolean."""
    lower = val.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise ValueError(f"invalid truth value {val!r}")


def datetime_iso_format(timestamp: datetime.datetime, *, tz_aware: bool = True) -> str:
    """A time as text; without a time zone it is in UTC."""
    if timestamp.tzinfo is None and tz_aware:
        timestamp = timestamp.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017
    elif timestamp.tzinfo is not None and not tz_aware:
        timestamp = timestamp.astimezone(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017
    return timestamp.isoformat(timespec="microseconds")


def _without_times(o: Any) -> Any:
    """One conversion step towards JSON; raises TypeError if there is none."""
    if isinstance(o, enum.Enum):
        return o.name
    if isinstance(o, uuid.UUID):
        return str(o)
    if isinstance(o, Exception):
        return str(o)
    if isinstance(o, JSONSerializable):
        return o.json_serialization_step()
    if callable(getattr(o, "to_dict", None)) and not isinstance(o, type):
        return o.to_dict()
    module = type(o).__module__
    kind: Any = type(o)
    if module.startswith("pydantic") or "pydantic" in _modules_of_bases(kind):
        if hasattr(o, "get_secret_value"):
            return str(o)
        if hasattr(o, "model_dump"):
            return o.model_dump(by_alias=True)
        return str(o)
    if callable(getattr(o, "model_dump", None)) and not isinstance(o, type):
        return o.model_dump()
    raise TypeError(f"{o!r} is not JSON serializable")


@functools.lru_cache(maxsize=256)
def _modules_of_bases(cls: Any) -> frozenset[str]:
    return frozenset(base.__module__.split(".")[0] for base in cls.__mro__)


def _custom_json_encoder(o: object) -> Any:
    """Encoder for internal JSON: times without conversion."""
    if isinstance(o, datetime.datetime):
        return o.isoformat(timespec="microseconds")
    return _without_times(o)


def api_boundary_json_encoder(o: object, tz_aware: bool = True) -> Any:
    """Encoder for the API: times have a time zone. Use it as `default` of `json.dumps`."""
    if isinstance(o, datetime.datetime):
        return datetime_iso_format(o, tz_aware=tz_aware)
    return _without_times(o)


def internal_json_encoder(o: object) -> Any:
    """Encoder for JSON between components. Use it as `default` of `json.dumps`."""
    return api_boundary_json_encoder(o)


def ensure_directory_exist(directory: str, *subdirs: str) -> str:
    """Creates a directory and its parents; returns its path."""
    path = os.path.join(directory, *subdirs)
    os.makedirs(path, exist_ok=True)
    return path


def is_call_ok(result: int | tuple[int, dict[str, Any]]) -> bool:
    """True if an API call succeeded."""
    code = result[0] if isinstance(result, tuple) else result
    return code == 200


def is_sub_dict(subdct: dict[Any, Any], dct: dict[Any, Any]) -> bool:
    """True if all items of one dict are in the other."""
    return all(key in dct and dct[key] == value for key, value in subdct.items())


def get_module_name(path_distribution_pkg: str) -> str:
    """The module name of a distribution, as imported in Python."""
    return os.path.basename(path_distribution_pkg).split("-")[0].replace("_", "-")


async def retry_limited(
    fun: Callable[..., bool] | Callable[..., Awaitable[bool]],
    timeout: float,
    interval: float = 0.1,
    *args: object,
    **kwargs: object,
) -> None:
    """Waits until a function returns true; raises AssertionError after the timeout."""
    import asyncio
    import inspect
    import time

    end = time.monotonic() + timeout
    while True:
        answer = fun(*args, **kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() >= end:
            raise AssertionError("Bounded wait failed")
        await asyncio.sleep(interval)
