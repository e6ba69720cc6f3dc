"""Conversion of compiler errors to the exceptions that tests expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inmanta import ast


def exception_of(errors: list[dict[str, Any]], raised: Sequence[BaseException]) -> Exception:
    """The exception for a compile that failed.

    :param raised: the exceptions of module code in this compile, searched for causes.
    """
    made = [_exception(error, raised) for error in errors]
    if not made:
        return ast.CompilerException("the compile failed without saying why")
    if len(made) == 1:
        return made[0]
    return ast.MultiException([one for one in made if isinstance(one, ast.CompilerException)])


def _exception(error: dict[str, Any], raised: Sequence[BaseException]) -> Exception:
    name = str(error.get("class") or "CompilerException").rpartition(".")[2]
    message = str(error.get("message") or "")
    text = str(error.get("text") or message)
    cls = getattr(ast, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Exception)):
        found = [one for one in raised if type(one).__name__ == name and isinstance(one, Exception)]
        if found:
            return found[-1]
        cls = ast.CompilerException
    if not issubclass(cls, ast.CompilerException):
        return cls(text)
    made = _make(cls, message, text)
    if error.get("file") and made.location is None:
        made.location = ast.Location(str(error["file"]), int(error.get("line") or 0))
    cause = _cause(error, text, raised)
    if cause is not None:
        made.__cause__ = cause
    return made


def _make(cls: type[ast.CompilerException], message: str, text: str) -> ast.CompilerException:
    """Creates an exception with the compiler's message, whatever its constructor requires."""

    def get_message(self: ast.CompilerException) -> str:
        return message

    def whole_text(self: ast.CompilerException, *_: object, **__: object) -> str:
        return text

    members = {
        "get_message": get_message,
        "format": whole_text,
        "format_trace": whole_text,
        "__str__": whole_text,
    }
    made: Any = type(cls.__name__, (cls,), {"__module__": cls.__module__, **members})
    exception: ast.CompilerException = made.__new__(made, message)
    ast.CompilerException.__init__(exception, message)
    if isinstance(exception, ast.RuntimeException):
        exception.stmt = None
    return exception


def _cause(error: dict[str, Any], text: str, raised: Sequence[BaseException]) -> BaseException | None:
    causes = error.get("causes") or []
    if causes:
        said = str(causes[0].get("message") or "")
        for one in reversed(raised):
            if said and said in _said(one):
                return one
        return _exception(causes[0], raised)
    _, found, below = text.partition("\ncaused by:\n")
    if not found:
        return None
    for one in reversed(raised):
        if _said(one) and _said(one) in text:
            return one
    below = below.strip()
    # Python's own errors begin with the name of their class.
    first, colon, rest = below.partition(": ")
    if colon and first.replace(".", "").replace("_", "").isalnum():
        return Exception(rest)
    return ast.RuntimeException(None, below)


def _said(error: BaseException) -> str:
    return error.get_message() if isinstance(error, ast.CompilerException) else str(error)
