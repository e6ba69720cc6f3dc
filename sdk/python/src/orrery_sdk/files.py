"""The directory of file contents that the core shares with its hosts.

A content is named by its id: the SHA-1 of its bytes, or a name chosen by the module. It is written under
a temporary name and renamed, so that readers see complete files.

During a compile the directory has all contents. Elsewhere it is a cache: missing contents are requested from the
core, which stores them there under their SHA-1.
"""

from __future__ import annotations

import os
import re
from typing import Any

_ID = re.compile(r"[A-Za-z0-9._-]{1,255}\Z")
_SHA1 = re.compile(r"[0-9a-f]{40}\Z")

_directory: str | None = None
_is_cache = False


class NoFileStore(Exception):
    """The core has not set a directory of contents."""

    def __init__(self) -> None:
        super().__init__("there is no place for file contents: the core has not named one")


class ContentError(Exception):
    """A content could not be read, although it may exist."""


def use_directory(directory: str | None, is_cache: bool = False) -> None:
    """Sets the directory of contents, and whether missing ones are requested."""
    global _directory, _is_cache
    _directory = directory
    _is_cache = is_cache


def available() -> bool:
    """True if there is a directory of contents."""
    return _directory is not None


def _place(identifier: str) -> str:
    if _directory is None:
        raise NoFileStore()
    if not _ID.match(identifier) or identifier in (".", ".."):
        raise ValueError(
            f"{identifier!r} cannot be the id of a file: letters, digits, `.`, `_` and `-` are allowed"
        )
    return os.path.join(_directory, identifier)


def hash_of(content: bytes) -> str:
    """The default id of a content."""
    import hashlib

    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def put(content: str | bytes, identifier: str | None = None) -> str:
    """Stores a content; returns its id."""
    import tempfile

    data = content.encode("utf-8") if isinstance(content, str) else bytes(content)
    name = hash_of(data) if identifier is None else identifier
    place = _place(name)
    if _is_cache:
        _call("upload_file", {"id": name, "content": data})
        return name
    if identifier is None and os.path.exists(place):
        return name
    os.makedirs(os.path.dirname(place), exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(place))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(scratch, 0o644)
        os.replace(scratch, place)
    except BaseException:
        os.unlink(scratch)
        raise
    return name


def get(identifier: str) -> bytes | None:
    """A content, or None if there is none of that id. A content that does not match its hash is an error."""
    if not _is_cache:
        return _verified(identifier)
    # A chosen id may have another content in the next version: only the core knows the current one.
    if _SHA1.match(identifier):
        data = _read(identifier)
        if data is not None and hash_of(data) == identifier:
            return data
    found = _call("fetch_file", {"id": identifier})
    return None if found is None else _verified(found["file"])


def has(identifier: str) -> bool:
    """True if a content with that id exists."""
    if os.path.exists(_place(identifier)) and not _is_cache:
        return True
    return _is_cache and _call("stat_file", {"id": identifier}, found=True) is not None


def _read(identifier: str) -> bytes | None:
    try:
        with open(_place(identifier), "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _verified(identifier: str) -> bytes | None:
    data = _read(identifier)
    if data is not None and _SHA1.match(identifier) and hash_of(data) != identifier:
        raise ValueError(f"the content of {identifier} is damaged: its SHA-1 is {hash_of(data)}")
    return data


def _call(method: str, arguments: dict[str, Any], found: Any = None) -> Any:
    """Calls the core; returns its result, or `found` instead of an empty one; None if the content is missing."""
    from orrery_sdk import server

    code, result = server.call(method, arguments)
    if code == 404:
        return None
    if code != 200:
        reason = result.get("message") if isinstance(result, dict) else None
        raise ContentError(f"The content {arguments['id']} could not be fetched or kept: {reason or code}")
    return found if result is None else result
