"""Errors of the language, and their source locations."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from inmanta.ast.location import (
    Locatable,
    LocatableString,
    Location,
    Named,
    Namespace,
    Namespaced,
    Range,
    WithComment,
)
from inmanta.warnings import InmantaWarning

if TYPE_CHECKING:
    from inmanta.ast.attribute import Attribute
    from inmanta.execute.runtime import Instance, ResultVariable
    from inmanta.execute.util import Unknown

__all__ = [
    "AttributeException",
    "CompilerDeprecationWarning",
    "CompilerException",
    "CompilerRuntimeWarning",
    "DataClassException",
    "DataClassMismatchException",
    "DoubleSetException",
    "DuplicateException",
    "ExplicitPluginException",
    "ExternalException",
    "IndexException",
    "InvalidTypeAnnotation",
    "KeyException",
    "Locatable",
    "LocatableString",
    "Location",
    "ModifiedAfterFreezeException",
    "MultiException",
    "MultiUnsetException",
    "Named",
    "Namespace",
    "Namespaced",
    "NotFoundException",
    "OptionalValueException",
    "PluginException",
    "PluginTypeException",
    "Range",
    "RuntimeException",
    "TypeDeprecationWarning",
    "TypeNotFoundException",
    "TypingException",
    "UnexpectedReference",
    "UnknownException",
    "UnsetException",
    "WithComment",
    "WrappingRuntimeException",
    "stringify_exception",
]


def stringify_exception(exn: BaseException) -> str:
    """The last line that Python would print for this exception."""
    # `type` is not the builtin in this module: the submodule of that name becomes a member of the package.
    return "".join(traceback.format_exception_only(exn)).removesuffix("\n")


class CompilerException(Exception):
    """The base of all errors of the language."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)
        self.location: Location | None = None
        self.msg = msg
        self.root_ns: Namespace | None = None

    def set_location(self, location: Location) -> None:
        if self.location is None:
            self.location = location

    def get_message(self) -> str:
        return self.msg

    def get_location(self) -> Location | None:
        return self.location

    def get_causes(self) -> list[CompilerException]:
        return []

    def format(self) -> str:
        location = self.get_location()
        return self.get_message() if location is None else f"{self.get_message()} ({location})"

    def format_trace(self, indent: str = "", indent_level: int = 0) -> str:
        """The message and, below it, those of the causes."""
        prefix = indent * indent_level
        lines = [prefix + line for line in self.format().split("\n")]
        for cause in self.get_causes():
            lines.append(f"{prefix}caused by:")
            lines.append(cause.format_trace(indent=indent, indent_level=indent_level + 1))
        return "\n".join(lines)

    def importantance(self) -> int:
        """How late this is reported among several: the lower, the earlier. (The spelling is the API.)"""
        return 100

    def __str__(self) -> str:
        return self.format()


class RuntimeException(CompilerException):
    """An error during the evaluation of a statement."""

    def __init__(self, stmt: Locatable | None, msg: str) -> None:
        super().__init__(msg)
        self.stmt: Locatable | None = None
        if stmt is not None:
            self.set_statement(stmt)

    def set_statement(self, stmt: Locatable, replace: bool = True) -> None:
        for cause in self.get_causes():
            if isinstance(cause, RuntimeException):
                cause.set_statement(stmt, replace)
        if replace or self.stmt is None:
            location = stmt.get_location()
            if location is not None:
                self.location = location
            self.stmt = stmt

    def format(self) -> str:
        if self.stmt is None:
            return super().format()
        return f"{self.get_message()} (reported in {self.stmt} ({self.get_location()}))"


class UnknownException(Exception):
    """Code has read an unknown: its result is unknown, too."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__()
        self.unknown = unknown


class PluginException(Exception):
    """The base of errors that a plugin reports on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TypingException(RuntimeException):
    """The types of the model are wrong."""

    def importantance(self) -> int:
        return 10


class InvalidTypeAnnotation(TypingException):
    """An annotation of a plugin has no equivalent in the language."""


class DataClassException(TypingException):
    """An entity cannot be a dataclass."""

    def __init__(self, entity: Locatable | None, msg: str) -> None:
        super().__init__(entity, msg)
        self.entity = entity

    def importantance(self) -> int:
        return 9


class DataClassMismatchException(DataClassException):
    """A dataclass and its entity do not have the same fields."""

    def __init__(
        self, entity: Locatable | None, dataclass: object | None, dataclass_python_name: str, msg: str
    ) -> None:
        super().__init__(entity, msg)
        self.dataclass = dataclass
        self.dataclass_python_name = dataclass_python_name


class TypeNotFoundException(RuntimeException):
    """There is no type of this name."""

    def __init__(self, type: object, ns: Namespace) -> None:
        super().__init__(None, f"could not find type {type} in namespace {ns}")
        self.type = type
        self.ns = ns

    def importantance(self) -> int:
        return 20


class NotFoundException(RuntimeException):
    """There is no variable, attribute or index entry of this name."""

    def __init__(self, stmt: Locatable | None, name: str | None, msg: str | None = None) -> None:
        super().__init__(stmt, f"could not find value {name}" if msg is None else msg)
        self.name = name

    def importantance(self) -> int:
        return 20


class DuplicateException(TypingException):
    """A name is defined twice."""

    def __init__(self, stmt: Locatable, other: Locatable, msg: str) -> None:
        super().__init__(stmt, msg)
        self.other = other

    def format(self) -> str:
        first, second = self.location, self.other.get_location()
        return f"{self.get_message()} (original at ({first})) (duplicate at ({second}))"

    def importantance(self) -> int:
        return 40


class IndexException(RuntimeException):
    """The declaration of an index is invalid."""

    def importantance(self) -> int:
        return 10


class KeyException(RuntimeException):
    """A dict does not have this key."""

    def importantance(self) -> int:
        return 70


class DoubleSetException(RuntimeException):
    """A variable was assigned two values."""

    def importantance(self) -> int:
        return 51


class ModifiedAfterFreezeException(RuntimeException):
    """A list was added to after its value had been used."""

    def importantance(self) -> int:
        return 50


class UnsetException(RuntimeException):
    """Code has read a value that is not available yet.

    A plugin that does not catch this is called again, from the start, when the value is available.
    """

    def __init__(
        self, msg: str, instance: ResultVariable | Instance | None = None, attribute: Attribute | None = None
    ) -> None:
        super().__init__(None, msg)
        self.instance = instance
        self.attribute = attribute

    def get_result_variable(self) -> ResultVariable | Instance | None:
        """The variable that needs a value."""
        return self.instance


class MultiUnsetException(RuntimeException):
    """Several values are not available yet; the plugin waits for all of them."""

    def __init__(self, msg: str, result_variables: list[ResultVariable]) -> None:
        super().__init__(None, msg)
        self.result_variables = result_variables


class OptionalValueException(RuntimeException):
    """Code has read an optional attribute that has no value and will not get one."""

    def __init__(self, instance: Instance, attribute: Attribute) -> None:
        # The message needs the source location of the instance, which is a request. Code uses this
        # exception to test for a value, so the message is created lazily.
        super().__init__(None, "Optional variable accessed that has no value")
        self.instance = instance
        self.attribute = attribute

    def get_message(self) -> str:
        return f"{self.msg} (attribute `{self.attribute}` of `{self.instance}`)"

    def importantance(self) -> int:
        return 61


class UnexpectedReference(RuntimeException):
    """A reference was used where a value is required."""

    def __init__(self, *, stmt: Locatable | None = None, reference: object, message: str) -> None:
        super().__init__(stmt, message)
        self.reference = reference


class ExternalException(RuntimeException):
    """Python code raised an exception that is not an error of the language."""

    def __init__(self, stmt: Locatable | None, msg: str, cause: Exception) -> None:
        super().__init__(stmt, msg)
        self.__cause__ = cause

    def format_trace(self, indent: str = "", indent_level: int = 0) -> str:
        own = super().format_trace(indent, indent_level)
        prefix = indent * indent_level
        cause = stringify_exception(self.__cause__) if self.__cause__ is not None else ""
        below = indent * (indent_level + 1)
        return f"{own}\n{prefix}caused by:\n" + "\n".join(below + line for line in cause.split("\n")) + "\n"

    def importantance(self) -> int:
        return 60


class ExplicitPluginException(ExternalException):
    """A plugin raised a PluginException; its message is shown."""

    def __init__(self, stmt: Locatable | None, msg: str, cause: PluginException) -> None:
        super().__init__(stmt, msg, cause)
        self.__cause__: PluginException = cause

    def get_message(self) -> str:
        return f"{self.msg}\n{self.__cause__.message}"


class WrappingRuntimeException(RuntimeException):
    """An error of the language with another one as its cause."""

    def __init__(self, stmt: Locatable | None, msg: str, cause: CompilerException) -> None:
        self.__cause__ = cause
        super().__init__(stmt, msg)

    def get_causes(self) -> list[CompilerException]:
        return [self.__cause__] if isinstance(self.__cause__, CompilerException) else []

    def importantance(self) -> int:
        return 1 + max((cause.importantance() for cause in self.get_causes()), default=99)


class AttributeException(WrappingRuntimeException):
    """An attribute could not be set."""

    def __init__(
        self, stmt: Locatable | None, instance: Instance, attribute: str, cause: RuntimeException
    ) -> None:
        super().__init__(stmt, f"Could not set attribute `{attribute}` on instance `{instance}`", cause)
        self.attribute = attribute
        self.instance = instance


class PluginTypeException(WrappingRuntimeException):
    """An argument or the result of a plugin does not match its type."""


class MultiException(CompilerException):
    """Several errors at once."""

    def __init__(self, others: list[CompilerException]) -> None:
        super().__init__(f"Reported {len(others)} errors")
        self.others = list(others)

    def get_causes(self) -> list[CompilerException]:
        return sorted(
            self.others, key=lambda e: (e.importantance(), str(e.get_location()) if e.get_location() else "")
        )

    def format(self) -> str:
        return f"Reported {len(self.others)} errors"

    def format_trace(self, indent: str = "", indent_level: int = 0) -> str:
        prefix = indent * indent_level
        lines = [prefix + self.format()]
        for position, cause in enumerate(self.get_causes()):
            lines.append(f"{prefix}error {position}:")
            lines.append(cause.format_trace(indent=indent, indent_level=indent_level + 1))
        return "\n".join(lines)


class TypeDeprecationWarning(InmantaWarning):
    """A deprecated type is used."""


class CompilerRuntimeWarning(InmantaWarning, RuntimeException):
    """A suspicious but valid construct in the model."""

    def __init__(self, stmt: Locatable | None, msg: str) -> None:
        InmantaWarning.__init__(self)
        RuntimeException.__init__(self, stmt, msg)


class CompilerDeprecationWarning(CompilerRuntimeWarning):
    """A deprecated construct in the model."""
