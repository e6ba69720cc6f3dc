"""Hooks of module code around a compile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from inmanta.ast import CompilerException, MultiException

if TYPE_CHECKING:
    from inmanta.ast.type import Type
    from inmanta.plugins import Plugin

LOGGER = logging.getLogger(__name__)

Function = Callable[[], object]


class Finalizers:
    """The functions that run at the end of each compile."""

    __finalizers: ClassVar[list[Function]] = []

    @classmethod
    def add_function(cls, fnc: Function) -> None:
        cls.__finalizers.append(fnc)

    @classmethod
    def functions(cls) -> list[Function]:
        """All, in the order in which they were defined."""
        return list(cls.__finalizers)

    @classmethod
    def forget(cls, is_gone: Callable[[str], bool]) -> None:
        """Removes the functions of unloaded modules."""
        cls.__finalizers = [one for one in cls.__finalizers if not is_gone(one.__module__)]

    @staticmethod
    def run(functions: Iterable[Function]) -> list[Exception]:
        """Runs functions; returns their exceptions."""
        errors: list[Exception] = []
        for function in functions:
            try:
                function()
            except Exception as error:
                errors.append(error)
        return errors

    @classmethod
    def call_finalizers(cls, should_log: bool = False) -> None:
        """Runs all. Errors are logged, or raised after all have run."""
        errors = [CompilerException(f"Finalizer failed: {error}") for error in cls.run(cls.functions())]
        if should_log:
            for error in errors:
                LOGGER.error(error.msg)
        elif len(errors) == 1:
            raise errors[0]
        elif errors:
            raise MultiException(list(errors))

    @classmethod
    def reset_finalizers(cls) -> None:
        cls.__finalizers = []


def finalizer(fnc: Function) -> Function:
    """Registers a function that runs at the end of each compile, successful or not."""
    Finalizers.add_function(fnc)
    return fnc


class Compiler:
    """The current compile.

    :param refs: values of tests that replace those of a server, such as facts.
    """

    def __init__(self, cf_file: str = "main.cf", refs: Mapping[object, object] | None = None) -> None:
        self.refs: Mapping[Any, Any] = {} if refs is None else refs
        self._plugins: Mapping[str, Plugin] = {}

    def get_plugins(self) -> Mapping[str, Plugin]:
        """All plugins, by full name. They can be called."""
        return self._plugins

    def find_type(self, name: str, namespace: str) -> Type | None:
        """A type by its name in a namespace."""
        return None

    def data_directory(self) -> str:
        """Directory for files of modules."""
        return "data"

    def is_loaded(self) -> bool:
        return True
