"""Paths into nested dicts and lists of dicts: `a.b`, `interfaces[name=eth0].mtu`, and with wildcards `a.*[k=*]`.

A path is a sequence of sections separated by dots. `key` is a key of a dict. `relation[k=v]` is the item of the
list under the key `relation` with the value `v` of `k`; several filters must all match. `.` is the container itself.
In keys and values a backslash escapes the characters `\\ [ ] . * =`, and the value `\\0` is null. The wildcard `*`,
for any key or value, is only allowed in the classes with a name that begins with `Wild`.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence
from typing import Any

from inmanta.util._path_values import (
    SPECIAL_CHARACTERS,
    ContainerStructureException,
    DictPathValue,
    InvalidPathException,
    NormalValue,
    NullValue,
    WildCardValue,
    escape,
    is_word,
    parse_filters,
    split,
    unescape,
)

__all__ = [
    "SPECIAL_CHARACTERS",
    "ComposedPath",
    "ContainerStructureException",
    "DictPath",
    "DictPathValue",
    "InDict",
    "InvalidPathException",
    "KeyedList",
    "NormalValue",
    "NullPath",
    "NullValue",
    "WildCardValue",
    "WildComposedPath",
    "WildDictPath",
    "WildInDict",
    "WildKeyedList",
    "WildNullPath",
    "to_path",
    "to_wild_path",
]

LOGGER = logging.getLogger(__name__)

_NO_WILDCARD = "The Wildcard ('*') can not be used in DictPath's"


class WildDictPath(abc.ABC):
    """A path that may have wildcards, and so may match many elements."""

    WILDCARD = "*"

    @abc.abstractmethod
    def get_elements(self, container: object) -> list[Any]:
        """All elements that match the path."""

    @abc.abstractmethod
    def resolve_wild_cards(self, container: object) -> Sequence[WildDictPath]:
        """The paths without wildcards to existing elements."""

    @abc.abstractmethod
    def get_path_sections(self) -> Sequence[WildDictPath]:
        """The sections that the path is made of."""

    @abc.abstractmethod
    def to_str(self) -> str:
        """The text of the path."""

    @classmethod
    @abc.abstractmethod
    def parse(cls, inp: str) -> WildDictPath | None:
        """Parses a path of this kind; None if the text has another form."""

    def __add__(self, other: object) -> WildDictPath:
        if not isinstance(other, WildDictPath):
            return NotImplemented
        return _join(WildComposedPath, WildNullPath, [*self.get_path_sections(), *other.get_path_sections()])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WildDictPath):
            return NotImplemented
        mine = [section.to_str() for section in self.get_path_sections()]
        return mine == [section.to_str() for section in other.get_path_sections()]

    def __hash__(self) -> int:
        return hash(tuple(section.to_str() for section in self.get_path_sections()))

    def __str__(self) -> str:
        return self.to_str()


class DictPath(WildDictPath):
    """A path to one element."""

    @abc.abstractmethod
    def get_element(self, container: object, construct: bool = False) -> Any:
        """The element; raises KeyError if there is none, or more than one.

        :param construct: creates missing containers, and an empty dict at the end.
        """

    @abc.abstractmethod
    def set_element(self, container: object, value: object, construct: bool = True) -> None:
        """Sets the element.

        :param construct: creates missing containers.
        """

    @abc.abstractmethod
    def remove(self, container: object) -> None:
        """Removes the element, if it exists."""

    @abc.abstractmethod
    def get_key(self) -> str:
        """The key in the outermost dict."""

    def get_elements(self, container: object) -> list[Any]:
        """The element, if it exists."""
        try:
            return [self.get_element(container)]
        except LookupError:
            return []

    def __add__(self, other: object) -> DictPath:
        if not isinstance(other, DictPath):
            return NotImplemented
        return _join(ComposedPath, NullPath, [*self.get_path_sections(), *other.get_path_sections()])

    __hash__ = WildDictPath.__hash__


def _join(composed: Any, null: Any, sections: list[Any]) -> Any:
    return composed(path=sections) if sections else null()


def _mapping(container: object, what: str = "Mapping") -> Any:
    """The container as a mapping; resources have keys, too."""
    needed = ("__getitem__", "items") if what == "Mapping" else ("__getitem__", "__setitem__", "items")
    if not all(hasattr(type(container), name) for name in needed):
        raise ContainerStructureException(f"{container} is not a {what}")
    return container


def _not_one(path: WildDictPath, container: object, found: list[Any]) -> KeyError:
    return KeyError(f"Found no or multiple items matching {path.to_str()} in {container}: {found}")


class WildInDict(WildDictPath):
    """A key of a dict, or all of them."""

    def __init__(self, key: str) -> None:
        self.key = DictPathValue.create(key)
        if isinstance(self.key, NullValue):
            raise InvalidPathException(f"Invalid key: {key}")

    def get_elements(self, container: object) -> list[Any]:
        """The value of the key, or all values."""
        mapping = _mapping(container)
        if isinstance(self.key, WildCardValue):
            return [value for _key, value in mapping.items()]
        return [mapping[self.key.value]] if self.key.value in mapping else []

    def resolve_wild_cards(self, container: object) -> Sequence[WildDictPath]:
        """The key if it exists, or all keys."""
        mapping = _mapping(container)
        if isinstance(self.key, WildCardValue):
            return [WildInDict(escape(str(key))) for key, _value in mapping.items()]
        return [self] if self.key.value in mapping else []

    def get_path_sections(self) -> Sequence[WildDictPath]:
        """Itself."""
        return [self]

    def to_str(self) -> str:
        """The key, with backslashes."""
        return self.key.escape()

    @classmethod
    def parse(cls, inp: str) -> WildInDict | None:
        """Parses a key."""
        if not inp or not (inp == "*" or is_word(inp)):
            return None
        return cls(inp)


class InDict(DictPath, WildInDict):
    """A key of a dict."""

    def __init__(self, key: str) -> None:
        if key == "*":
            raise ValueError(_NO_WILDCARD)
        WildInDict.__init__(self, key)

    def get_element(self, container: object, construct: bool = False) -> Any:
        """The value of the key."""
        mapping = _mapping(container)
        if self.key.value in mapping:
            return mapping[self.key.value]
        if not construct:
            raise _not_one(self, container, [])
        made: dict[str, Any] = {}
        _mapping(container, "MutableMapping")[self.key.value] = made
        return made

    def set_element(self, container: object, value: object, construct: bool = True) -> None:
        """Sets the value of the key."""
        _mapping(container, "MutableMapping")[self.key.value] = value

    def remove(self, container: object) -> None:
        """Removes the key."""
        mapping = _mapping(container, "MutableMapping")
        if self.key.value in mapping:
            del mapping[self.key.value]

    def get_key(self) -> str:
        """The key."""
        return self.key.value  # type: ignore[return-value]

    def get_path_sections(self) -> Sequence[DictPath]:
        """Itself."""
        return [self]

    __hash__ = WildDictPath.__hash__


class WildKeyedList(WildDictPath):
    """Items of a list of dicts, by the values of some of their keys."""

    def __init__(
        self,
        relation: str,
        key_value_pairs: str | Sequence[tuple[str, str]],
        key_value: str | None = None,
    ) -> None:
        if relation == "*":
            raise InvalidPathException(f"Invalid relation name: {relation}")
        if isinstance(key_value_pairs, str):
            if key_value is None:
                raise ValueError("A key without a value: both have to be given.")
            key_value_pairs = [(key_value_pairs, key_value)]
        if not key_value_pairs:
            raise ValueError("A keyed list path requires at least one key-value pair.")
        self.relation = NormalValue(unescape(relation))
        self.key_value_pairs = [
            (DictPathValue.create(key), DictPathValue.create(value)) for key, value in key_value_pairs
        ]

    def get_key_value_pairs(self) -> Sequence[tuple[str, str | None]]:
        """The keys and their required values."""
        return [(key.value, value.value) for key, value in self.key_value_pairs]  # type: ignore[misc]

    def _list(self, container: object, construct: bool = False) -> list[Any]:
        mapping = _mapping(container, "Mapping") if hasattr(type(container), "items") else None
        if mapping is None:
            raise ContainerStructureException(f"{container} is not a Dict")
        if self.relation.value not in mapping:
            if not construct:
                return []
            _mapping(container, "MutableMapping")[self.relation.value] = []
        inner = mapping[self.relation.value]
        if not isinstance(inner, list | set):
            raise ContainerStructureException(f"{inner} is not a List or Set")
        return inner  # type: ignore[return-value]

    def _fits(self, item: object) -> bool:
        if not hasattr(type(item), "items"):
            return False
        values: dict[Any, Any] = dict(item.items())  # type: ignore[attr-defined]
        for key, value in self.key_value_pairs:
            if isinstance(key, WildCardValue):
                if not any(value.matches(found) for found in values.values()):
                    return False
            elif key.value not in values or not value.matches(values[key.value]):
                return False
        return True

    def get_elements(self, container: object) -> list[Any]:
        """The matching items."""
        return [item for item in self._list(container) if self._fits(item)]

    def resolve_wild_cards(self, container: object) -> Sequence[WildDictPath]:
        """A path with the values of each matching item."""
        if any(isinstance(key, WildCardValue) for key, _value in self.key_value_pairs):
            raise NotImplementedError(
                f"The wildcards of `{self.to_str()}` cannot be resolved: it has one (`*`) in the place of a key"
            )
        relation = self.relation.escape()
        return [
            WildKeyedList(
                relation,
                [
                    (key.escape(), DictPathValue.from_object(item[key.value]).escape())
                    for key, _value in self.key_value_pairs
                ],
            )
            for item in self._list(container)
            if self._fits(item)
        ]

    def get_path_sections(self) -> Sequence[WildDictPath]:
        """Itself."""
        return [self]

    def to_str(self) -> str:
        """The relation and the filters."""
        filters = (f"[{key.escape()}={value.escape()}]" for key, value in self.key_value_pairs)
        return self.relation.escape() + "".join(filters)

    @classmethod
    def parse(cls, inp: str) -> WildKeyedList | None:
        """Parses a relation with filters."""
        start = 0
        while start < len(inp) and inp[start] != "[":
            start += 2 if inp[start] == "\\" else 1
        relation = inp[:start]
        if not relation or start >= len(inp) or not is_word(relation):
            return None
        pairs = parse_filters(inp[start:])
        return None if pairs is None else cls(relation, pairs)


class KeyedList(DictPath, WildKeyedList):
    """An item of a list of dicts, by the values of some of its keys."""

    def __init__(
        self,
        relation: str,
        key_value_pairs: str | Sequence[tuple[str, str]],
        key_value: str | None = None,
    ) -> None:
        WildKeyedList.__init__(self, relation, key_value_pairs, key_value)
        if any(isinstance(part, WildCardValue) for pair in self.key_value_pairs for part in pair):
            raise ValueError(_NO_WILDCARD)

    def get_element(self, container: object, construct: bool = False) -> Any:
        """The matching item."""
        items = self._list(container, construct)
        found = [item for item in items if self._fits(item)]
        if len(found) == 1:
            return found[0]
        if found or not construct:
            raise _not_one(self, container, found)
        made = {key.value: value.value for key, value in self.key_value_pairs}
        items.append(made)
        return made

    def set_element(self, container: object, value: object, construct: bool = True) -> None:
        """Replaces the matching item, or adds one."""
        items = self._list(container, construct=True)
        places = [place for place, item in enumerate(items) if self._fits(item)]
        if len(places) == 1:
            items[places[0]] = value
        else:
            items.append(value)

    def remove(self, container: object) -> None:
        """Removes all matching items."""
        items = self._list(container)
        if items:
            items[:] = [item for item in items if not self._fits(item)]

    def get_key(self) -> str:
        """The relation."""
        return self.relation.value

    def get_path_sections(self) -> Sequence[DictPath]:
        """Itself."""
        return [self]

    __hash__ = WildDictPath.__hash__


class WildComposedPath(WildDictPath):
    """Sections, one after the other."""

    element_types: list[Any] = [WildInDict, WildKeyedList]

    def __init__(self, path_str: str | None = None, path: Sequence[Any] | None = None) -> None:
        if path_str is None and path is None:
            raise ValueError("Either a text or sections have to be given.")
        self.expanded_path: Sequence[Any] = self.do_parse(path_str) if path is None else list(path)  # type: ignore[arg-type]
        self.path = path_str if path_str is not None else self.un_parse()

    @classmethod
    def do_parse(cls, path_str: str) -> Sequence[Any]:
        """Parses sections separated by dots."""
        sections: list[Any] = []
        for segment in cls.split_on_dots(path_str):
            sections.append(cls._parse_segment(segment))
        if not sections:
            raise InvalidPathException(f"Could not parse path {path_str}")
        return sections

    @classmethod
    def _parse_segment(cls, segment: str) -> Any:
        for kind in cls.element_types:
            try:
                section = kind.parse(segment)
            except ValueError as error:
                raise InvalidPathException(str(error)) from error
            if section is not None:
                return section
        raise InvalidPathException(f"Could not parse path segment {segment}")

    @classmethod
    def split_on_dots(cls, path_str: str) -> list[str]:
        """The texts of the sections."""
        return [part for part in split(path_str, ".") if part]

    def un_parse(self) -> str:
        """The text of the sections."""
        return ".".join(section.to_str() for section in self.expanded_path)

    def get_elements(self, container: object) -> list[Any]:
        """All elements that match the path."""
        found = [container]
        for section in self.expanded_path:
            found = [item for place in found for item in section.get_elements(place)]
        return found

    def resolve_wild_cards(self, container: object) -> Sequence[WildDictPath]:
        """The paths without wildcards to existing elements."""
        found: list[tuple[list[WildDictPath], Any]] = [([], container)]
        for section in self.expanded_path:
            found = [
                ([*before, resolved], item)
                for before, place in found
                for resolved, item in zip(
                    section.resolve_wild_cards(place), section.get_elements(place), strict=True
                )
            ]
        return [WildComposedPath(path=sections) for sections, _item in found]

    def get_path_sections(self) -> Sequence[Any]:
        """The sections."""
        return self.expanded_path

    def to_str(self) -> str:
        """The text of the path."""
        return self.path

    @classmethod
    def parse(cls, inp: str) -> Any:
        """Parses a path."""
        return cls(inp)


class ComposedPath(DictPath, WildComposedPath):
    """Sections without wildcards, one after the other."""

    element_types = [InDict, KeyedList]

    def __init__(self, path_str: str | None = None, path: Sequence[DictPath] | None = None) -> None:
        WildComposedPath.__init__(self, path_str, path)

    def get_element(self, container: object, construct: bool = False) -> Any:
        """The element."""
        if not construct:
            found = WildComposedPath.get_elements(self, container)
            if len(found) != 1:
                raise _not_one(self, container, found)
            return found[0]
        place = container
        for section in self.expanded_path:
            place = section.get_element(place, construct=True)
        return place

    def get_elements(self, container: object) -> list[Any]:
        """The element, if it exists."""
        return DictPath.get_elements(self, container)

    def set_element(self, container: object, value: object, construct: bool = True) -> None:
        """Sets the element."""
        place: Any = container
        for section in self.expanded_path[:-1]:
            place = section.get_element(place, construct=construct)
        self.expanded_path[-1].set_element(place, value, construct)

    def remove(self, container: object) -> None:
        """Removes the element."""
        place: Any = container
        for section in self.expanded_path[:-1]:
            try:
                place = section.get_element(place)
            except KeyError:
                return
        self.expanded_path[-1].remove(place)

    def get_key(self) -> str:
        """Raises: a path of several sections has no single key."""
        raise NotImplementedError("Method get_key() not supported on a ComposedPath")

    __hash__ = WildDictPath.__hash__


class WildNullPath(WildDictPath):
    """The container itself."""

    def get_elements(self, container: object) -> list[Any]:
        """The container."""
        return [container]

    def resolve_wild_cards(self, container: object) -> Sequence[WildDictPath]:
        """Itself: there is nothing to resolve."""
        return [self]

    def get_path_sections(self) -> Sequence[Any]:
        """None."""
        return []

    def to_str(self) -> str:
        """The dot."""
        return "."

    @classmethod
    def parse(cls, inp: str) -> Any:
        """A section is never empty."""
        return None


class NullPath(DictPath, WildNullPath):
    """The container itself."""

    def get_element(self, container: object, construct: bool = False) -> Any:
        """The container."""
        return container

    def get_elements(self, container: object) -> list[Any]:
        """The container."""
        return [container]

    def set_element(self, container: object, value: object, construct: bool = True) -> None:
        """Adds the items of a dict to those of the container."""
        mapping = _mapping(container, "MutableMapping")
        if not hasattr(type(value), "items"):
            raise ContainerStructureException(f"Argument value is not a Mapping: {value}")
        for key, item in value.items():  # type: ignore[attr-defined]
            mapping[key] = item

    def remove(self, container: object) -> None:
        """Raises: the container cannot be removed."""
        raise NotImplementedError("Method remove() is not supported on a NullPath")

    def get_key(self) -> str:
        """There is none."""
        raise NotImplementedError("Method get_key() is not supported on a NullPath")

    __hash__ = WildDictPath.__hash__


def to_path(inp: str) -> DictPath:
    """Parses a path without wildcards."""
    return _read(inp, ComposedPath, NullPath)


def to_wild_path(inp: str) -> WildDictPath:
    """Parses a path that may have wildcards."""
    return _read(inp, WildComposedPath, WildNullPath)


def _read(inp: str, composed: Any, null: Any) -> Any:
    if inp == ".":
        return null()
    # A path may begin with a dot, for the container that it is relative to.
    return composed(inp[1:] if inp.startswith(".") else inp)
