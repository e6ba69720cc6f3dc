"""Keys, values and parsing of paths; modules import them from `inmanta.util.dict_path`."""

from __future__ import annotations

import abc

PUBLIC_MODULE = "inmanta.util.dict_path"

SPECIAL_CHARACTERS = ("\\", "[", "]", ".", "*", "=")


class InvalidPathException(Exception):
    """A text that is not a path."""

    __module__ = PUBLIC_MODULE


class ContainerStructureException(LookupError):
    """A container with a structure that does not match the path."""

    __module__ = PUBLIC_MODULE


def escape(text: str) -> str:
    return "".join("\\" + character if character in SPECIAL_CHARACTERS else character for character in text)


def unescape(text: str) -> str:
    """The text without backslashes in front of special characters. Others are unchanged."""
    result: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in SPECIAL_CHARACTERS and at + 1 < len(text):
            at += 1
        result.append(text[at])
        at += 1
    return "".join(result)


class DictPathValue(abc.ABC):
    """A key or a value in a path."""

    @classmethod
    def create(cls, value: str) -> DictPathValue:
        """Parses a key or value of a path."""
        if value == WildCardValue.WILDCARD_CHARACTER:
            return WildCardValue()
        if value == NullValue.NULL_VALUE_CHARACTER:
            return NullValue()
        return NormalValue(unescape(value))

    @classmethod
    def from_object(cls, value: object) -> DictPathValue:
        """The path value for a value of a container."""
        return NullValue() if value is None else NormalValue(str(value))

    @property
    @abc.abstractmethod
    def value(self) -> str | None:
        """The value."""

    @abc.abstractmethod
    def escape(self) -> str:
        """Its escaped form in a path."""

    @abc.abstractmethod
    def matches(self, value: object | None) -> bool:
        """True if a value of a container matches."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictPathValue) and self.escape() == other.escape()

    def __hash__(self) -> int:
        return hash(self.escape())


class NormalValue(DictPathValue):
    """A text. Numbers match if they are equal."""

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """The text."""
        return self._value

    def escape(self) -> str:
        """The text with backslashes."""
        return escape(self._value)

    def matches(self, value: object | None) -> bool:
        """True if the texts are equal, or the numbers."""
        if value is None:
            return False
        if str(value) == self._value:
            return True
        if isinstance(value, int | float):
            try:
                return float(self._value) == value
            except (ValueError, OverflowError):
                return False
        return False


class NullValue(DictPathValue):
    """Null."""

    NULL_VALUE_CHARACTER = "\\0"

    @property
    def value(self) -> None:
        """Null."""
        return None

    def escape(self) -> str:
        """Backslash and zero."""
        return self.NULL_VALUE_CHARACTER

    def matches(self, value: object | None) -> bool:
        """Matches only null."""
        return value is None


class WildCardValue(DictPathValue):
    """Anything."""

    WILDCARD_CHARACTER = "*"

    @property
    def value(self) -> str:
        """Raises: a wildcard has no single value."""
        raise Exception("A WildCardValue doesn't have an actual data value.")

    def escape(self) -> str:
        """The star."""
        return self.WILDCARD_CHARACTER

    def matches(self, value: object | None) -> bool:
        """Matches everything."""
        return True


# Parsing.


def is_word(text: str, also: str = "") -> bool:
    """True if a text has no special character without a backslash in front of it, and no other backslash."""
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 >= len(text) or text[at + 1] not in SPECIAL_CHARACTERS:
                return False
            at += 1
        elif character in SPECIAL_CHARACTERS and character not in also:
            return False
        at += 1
    return True


def split(text: str, separators: str) -> list[str]:
    """Splits a text at separators that have no backslash in front of them and are not in brackets."""
    parts = [""]
    depth = 0
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\" and at + 1 < len(text):
            parts[-1] += text[at : at + 2]
            at += 2
            continue
        if character == "[":
            depth = 1
        elif character == "]":
            depth = 0
        if character in separators and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
        at += 1
    return parts


def parse_filters(text: str) -> list[tuple[str, str]] | None:
    """The keys and values of `[a=b][c=d]`, escaped; None if the text has another form."""
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        if text[at] != "[":
            return None
        end = at + 1
        while end < len(text) and text[end] != "]":
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            return None
        inner = text[at + 1 : end]
        equals = 0
        while equals < len(inner) and inner[equals] != "=":
            equals += 2 if inner[equals] == "\\" else 1
        key, value = inner[:equals], inner[equals + 1 :]
        if equals >= len(inner) or not key:
            return None
        if not (key == "*" or is_word(key)):
            return None
        if not (value in ("*", "\\0") or is_word(value, also=".")):
            return None
        pairs.append((key, value))
        at = end + 1
    return pairs or None
