"""Exceptions of module code, and their messages to the core."""

from __future__ import annotations

import traceback
from typing import Any

from inmanta.ast import (
    MultiUnsetException,
    OptionalValueException,
    PluginException,
    RuntimeException,
    UnknownException,
    UnsetException,
)
from inmanta.execute.runtime import Instance, ResultVariable
from orrery_sdk.values import Values, class_name


class ArgumentMismatch(RuntimeException):
    """An argument that does not have the type of its parameter, detected only by the conversion."""

    def __init__(self, argument: str, value: object, reason: str) -> None:
        super().__init__(None, reason)
        self.argument = argument
        self.value = value


def cells(error: BaseException) -> list[int]:
    """The cells that the raising code waits for; empty for other exceptions."""
    variables: list[object] = []
    if isinstance(error, UnsetException):
        variables = [error.get_result_variable()]
    elif isinstance(error, MultiUnsetException):
        variables = list(error.result_variables)
    found: dict[int, None] = {}
    for variable in variables:
        if isinstance(variable, ResultVariable):
            found.update(dict.fromkeys(variable.waits_for()))
    return list(found)


def answer(error: BaseException, values: Values) -> dict[str, Any]:
    """The response to a call that raised this."""
    waiting = cells(error)
    if waiting:
        return {"k": "unset", "cells": waiting}
    if isinstance(error, UnknownException):
        return {"k": "unknown", "u": values.encode(error.unknown)}
    if isinstance(error, OptionalValueException) and isinstance(error.instance, Instance):
        return {"k": "optional", "i": error.instance.number, "name": error.attribute.name}
    return {"k": "error", **describe(error)}


def describe(error: BaseException) -> dict[str, Any]:
    """The members `kind`, `class`, `message` and `traceback`."""
    name = class_name(type(error))
    if isinstance(error, ArgumentMismatch):
        return {
            "kind": "argument",
            "class": name,
            "message": error.get_message(),
            "argument": error.argument,
            "value": repr(error.value),
            "traceback": "",
        }
    if isinstance(error, PluginException):
        kind, message = "plugin", str(getattr(error, "message", error))
    elif isinstance(error, RuntimeException):
        kind, message = "runtime", error.get_message()
        name = type(error).__name__
    else:
        kind = "other"
        # Python's text without the class; notes are below, indented.
        first, *notes = traceback.format_exception_only(error)
        message = (first + "".join(f"  {note}" for note in notes)).removesuffix("\n")
        message = message.removeprefix(name).removeprefix(": ")
    return {"kind": kind, "class": name, "message": message, "traceback": _trace(error)}


def _trace(error: BaseException) -> str:
    """The traceback from the first frame of module code; the frames of its callers are irrelevant to its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(
        ("orrery_sdk.", "inmanta.plugins")
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
