"""The directory of file contents that the core shares with its hosts.

A content is named by its id: the SHA-1 of its bytes, or a name that the module chose. It is written under
another name and renamed, so that who sees it sees all of it.
"""

from __future__ import annotations

import os
import re

_ID = re.compile(r"[A-Za-z0-9._-]{1,255}\Z")
_SHA1 = re.compile(r"[0-9a-f]{40}\Z")

_directory: str | None = None


class NoFileStore(Exception):
    """The core has not said where contents are kept."""

    def __init__(self) -> None:
        super().__init__("there is no place for file contents: the core has not named one")


def use_directory(directory: str | None) -> None:
    """Says where contents are."""
    global _directory
    _directory = directory


def available() -> bool:
    """Whether there is a directory of contents at all."""
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
    """The id of a content that has no other."""
    import hashlib

    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def put(content: str | bytes, identifier: str | None = None) -> str:
    """Keeps a content; gives its id."""
    import tempfile

    data = content.encode("utf-8") if isinstance(content, str) else bytes(content)
    name = hash_of(data) if identifier is None else identifier
    place = _place(name)
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
    """A content, or None if there is none of that id. One that is not what its id says is an error."""
    try:
        with open(_place(identifier), "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    if _SHA1.match(identifier) and hash_of(data) != identifier:
        raise ValueError(f"the content of {identifier} is damaged: its SHA-1 is {hash_of(data)}")
    return data


def has(identifier: str) -> bool:
    """Whether there is a content of that id."""
    return os.path.exists(_place(identifier))
