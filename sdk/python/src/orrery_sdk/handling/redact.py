"""Redaction of the values of references in all output.

Each operation records the values of its references. All of its messages pass
here first.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, TextIO

PLACEHOLDER = "***"

# Shorter values occur everywhere by chance; they are replaced only as a whole field.
_SUBSTRING_MIN = 4
# Parts of a secret of several lines (a key) are secret, too, unless they are as short as a closing brace.
_LINE_MIN = 12


class Redactor:
    """The secrets of one operation."""

    def __init__(self) -> None:
        self._whole: set[Any] = set()
        self._parts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._guard = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._whole)

    def add(self, value: object) -> None:
        """Records a value and all its parts."""
        for leaf in _leaves(value, 0):
            self._add_leaf(leaf)
            if self is not _printed:
                # Printed output belongs to no operation: the secrets of all operations are redacted.
                _printed._add_leaf(leaf)

    def _add_leaf(self, leaf: str | int | float) -> None:
        text = str(leaf)
        if not text:
            return
        with self._guard:
            if leaf in self._whole:
                return
            self._whole.add(leaf)
            self._whole.add(text)
            for form in _forms(text):
                if len(form) >= _SUBSTRING_MIN:
                    self._parts.add(form)
                else:
                    self._whole.add(form)
            self._pattern = None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if not self._whole:
            return text
        if text in self._whole:
            return PLACEHOLDER
        with self._guard:
            if self._pattern is None and self._parts:
                longest_first = sorted(self._parts, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            pattern = self._pattern
        return text if pattern is None else pattern.sub(PLACEHOLDER, text)

    def value(self, value: Any) -> Any:
        """Plain JSON without secrets, in keys or values."""
        if not self._whole:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return PLACEHOLDER if value in self._whole else value
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value


_printed = Redactor()


class CleanOutput(io.TextIOBase):
    """Standard output or error without the secrets of any operation. The output of other programs is not redacted."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_printed.text(text))
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        return self._stream.buffer


def clean_output() -> None:
    """Installs redaction of the output of Python code."""
    sys.stdout = CleanOutput(sys.stdout)  # type: ignore[assignment]
    sys.stderr = CleanOutput(sys.stderr)  # type: ignore[assignment]


def _leaves(value: object, depth: int) -> Iterator[str | int | float]:
    """The texts and numbers in a value. Booleans and null are excluded: they would redact everything."""
    if value is None or isinstance(value, bool) or depth > 32:
        return
    if isinstance(value, str | int | float):
        yield value
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name), depth + 1)
    elif callable(getattr(value, "get_secret_value", None)):
        yield from _leaves(value.get_secret_value(), depth + 1)  # type: ignore[attr-defined]
    elif callable(getattr(value, "model_dump", None)):
        yield from _leaves(value.model_dump(), depth + 1)  # type: ignore[attr-defined]


def _forms(text: str) -> Iterator[str]:
    """The forms of a secret in other texts: verbatim, quoted by Python or JSON, in a URL, in parts."""
    from urllib.parse import quote

    yield text
    yield text.strip() or text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, safe="")
    for line in text.splitlines():
        if len(line.strip()) >= _LINE_MIN:
            yield line.strip()
