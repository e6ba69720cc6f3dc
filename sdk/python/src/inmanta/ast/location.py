"""Source locations, and objects that have one.

Users import these classes from `inmanta.ast`.
"""

from __future__ import annotations


class Location:
    """A line of a file."""

    __slots__ = ("file", "lnr")

    def __init__(self, file: str, lnr: int) -> None:
        self.file = file
        self.lnr = lnr

    def merge(self, other: Location) -> Location:
        """The location that covers both; they must be in one file."""
        assert self.file == other.file
        return Location(self.file, min(self.lnr, other.lnr))

    def __str__(self) -> str:
        return f"{self.file}:{self.lnr}"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        return (self.file, self.lnr) == (other.file, other.lnr)

    def __hash__(self) -> int:
        return hash((self.file, self.lnr))


class Range(Location):
    """A part of a file: from a column of one line to a column of the same or a later one."""

    __slots__ = ("end_char", "end_lnr", "start_char")

    def __init__(self, file: str, start_lnr: int, start_char: int, end_lnr: int, end_char: int) -> None:
        super().__init__(file, start_lnr)
        self.start_char = start_char
        self.end_lnr = end_lnr
        self.end_char = end_char

    def merge(self, other: Location) -> Location:
        if not isinstance(other, Range):
            return Location(self.file, self.lnr).merge(other)
        assert self.file == other.file
        start = min((self.lnr, self.start_char), (other.lnr, other.start_char))
        end = max((self.end_lnr, self.end_char), (other.end_lnr, other.end_char))
        return Range(self.file, start[0], start[1], end[0], end[1])

    def _key(self) -> tuple[object, ...]:
        return (self.file, self.lnr, self.start_char, self.end_lnr, self.end_char)

    def __str__(self) -> str:
        return f"{self.file}:{self.lnr}:{self.start_char}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class Locatable:
    """An object with a source location."""

    _location: Location | None = None

    def set_location(self, location: Location) -> None:
        self._location = location

    def get_location(self) -> Location | None:
        return self._location

    def copy_location(self, other: Locatable) -> None:
        self._location = other.get_location()

    @property
    def location(self) -> Location | None:
        return self.get_location()

    @location.setter
    def location(self, location: Location) -> None:
        self.set_location(location)


class LocatableString:
    """A string of the model, with its source location."""

    def __init__(self, value: str, location: Range, lexpos: int, namespace: object) -> None:
        self.value = value
        self.location = location
        self.lexpos = lexpos
        self.namespace = namespace
        self.lnr = location.lnr

    def get_value(self) -> str:
        return self.value

    def get_location(self) -> Range:
        return self.location

    def __str__(self) -> str:
        return self.value


class Namespaced(Locatable):
    """An object that belongs to a namespace."""

    def get_namespace(self) -> Namespace:
        raise NotImplementedError()


class Named(Namespaced):
    """An object with a name in a namespace."""

    def get_full_name(self) -> str:
        raise NotImplementedError()


class WithComment:
    """An object that may have a docstring in the model."""

    comment: str | None = None


class Namespace(Namespaced):
    """A namespace of the model: a module, or a file of one."""

    def __init__(self, name: str, parent: Namespace | None = None) -> None:
        self.name = name
        self.parent = parent
        self._children: dict[str, Namespace] = {}
        if parent is not None:
            parent.add_child(self)

    def get_name(self) -> str:
        return self.name

    def get_parent(self) -> Namespace | None:
        return self.parent

    def set_parent(self, parent: Namespace) -> None:
        self.parent = parent
        parent.add_child(self)

    def get_root(self) -> Namespace:
        return self if self.parent is None else self.parent.get_root()

    def add_child(self, child_ns: Namespace) -> None:
        self._children[child_ns.name] = child_ns

    def children(self, recursive: bool = False) -> list[Namespace]:
        own = list(self._children.values())
        if not recursive:
            return own
        return own + [below for child in own for below in child.children(recursive=True)]

    def get_child(self, name: str) -> Namespace | None:
        return self._children.get(name)

    def get_child_or_create(self, name: str) -> Namespace:
        return self._children.get(name) or Namespace(name, self)

    def get_ns_or_create(self, name: str) -> Namespace:
        namespace = self
        for part in name.split("::"):
            namespace = namespace.get_child_or_create(part)
        return namespace

    def get_ns_from_string(self, fqtn: str) -> Namespace | None:
        namespace: Namespace | None = self.get_root()
        for part in fqtn.split("::"):
            if namespace is None:
                return None
            namespace = namespace.get_child(part)
        return namespace

    def to_path(self) -> list[str]:
        """The names from the outermost namespace to this one; the root has no name."""
        if self.parent is None:
            return []
        return [*self.parent.to_path(), self.name]

    def get_full_name(self) -> str:
        return "::".join(self.to_path()) or self.name

    def get_namespace(self) -> Namespace:
        return self

    def __repr__(self) -> str:
        return self.get_full_name()


# Users know them from `inmanta.ast`, and messages of Python name the module of a class.
for _public in (Location, Range, Locatable, LocatableString, Namespaced, Named, WithComment, Namespace):
    _public.__module__ = "inmanta.ast"
