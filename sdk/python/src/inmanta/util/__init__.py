"""Small helpers that modules import: JSON of things that JSON has no word for, hashes, flags."""

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
    """What can say of what simpler things it is made."""

    @abc.abstractmethod
    def json_serialization_step(self) -> Any:
        """Something that JSON has a word for, or that is nearer to it."""


def hash_file(content: bytes) -> str:
    """The id of a content: its SHA-1."""
    import hashlib

    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def hash_file_streaming(file_handle: BinaryIO) -> str:
    """The same, for what need not fit into memory."""
    import hashlib

    digest = hashlib.sha1(usedforsecurity=False)
    while chunk := file_handle.read(64 * 1024):
        digest.update(chunk)
    return digest.hexdigest()


def strtobool(val: str) -> bool:
    """The truth that a word stands for."""
    lower = val.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise ValueError(f"invalid truth value {val!r}")


def datetime_iso_format(timestamp: datetime.datetime, *, tz_aware: bool = True) -> str:
    """A time as text; one without a zone is meant in UTC."""
    if timestamp.tzinfo is None and tz_aware:
        timestamp = timestamp.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017
    elif timestamp.tzinfo is not None and not tz_aware:
        timestamp = timestamp.astimezone(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017
    return timestamp.isoformat(timespec="microseconds")


def _without_times(o: Any) -> Any:
    """One step towards JSON; raises TypeError for what has none."""
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
    """For JSON that stays inside: times as they are written."""
    if isinstance(o, datetime.datetime):
        return o.isoformat(timespec="microseconds")
    return _without_times(o)


def api_boundary_json_encoder(o: object, tz_aware: bool = True) -> Any:
    """For JSON that leaves: times have a zone. To be given to `json.dumps` as `default`."""
    if isinstance(o, datetime.datetime):
        return datetime_iso_format(o, tz_aware=tz_aware)
    return _without_times(o)


def internal_json_encoder(o: object) -> Any:
    """For JSON between parts of the orchestrator. To be given to `json.dumps` as `default`."""
    return api_boundary_json_encoder(o)


def ensure_directory_exist(directory: str, *subdirs: str) -> str:
    """Makes a directory and those above it; gives its path."""
    path = os.path.join(directory, *subdirs)
    os.makedirs(path, exist_ok=True)
    return path


def is_call_ok(result: int | tuple[int, dict[str, Any]]) -> bool:
    """Whether a call of the API went well."""
    code = result[0] if isinstance(result, tuple) else result
    return code == 200


def is_sub_dict(subdct: dict[Any, Any], dct: dict[Any, Any]) -> bool:
    """Whether all that is in one dict is in the other, too."""
    return all(key in dct and dct[key] == value for key, value in subdct.items())


def get_module_name(path_distribution_pkg: str) -> str:
    """The name in the name of a distribution, as Python imports it."""
    return os.path.basename(path_distribution_pkg).split("-")[0].replace("_", "-")


async def retry_limited(
    fun: Callable[..., bool] | Callable[..., Awaitable[bool]],
    timeout: float,
    interval: float = 0.1,
    *args: object,
    **kwargs: object,
) -> None:
    """Waits until a function says yes; raises AssertionError when the time is over."""
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
