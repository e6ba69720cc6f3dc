"""Warnings that code of modules logs or raises: the core shows them with its own."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orrery_sdk.compiling.conversation import Conversation


class _ToCore(logging.Handler):
    def __init__(self, conversation: Conversation) -> None:
        super().__init__(logging.WARNING)
        self._conversation = conversation

    def emit(self, record: logging.LogRecord) -> None:
        self._conversation.tell(
            {
                "k": "warn",
                "text": record.getMessage(),
                "level": record.levelname.lower(),
                "logger": record.name,
            }
        )


@contextlib.contextmanager
def logs_to_core(conversation: Conversation) -> Iterator[None]:
    """Context manager that sends logged warnings and errors to the core."""
    handler = _ToCore(conversation)
    root = logging.getLogger()
    root.addHandler(handler)
    shown_before = warnings.showwarning

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        conversation.tell(
            {
                "k": "warn",
                "text": f"{category.__name__}: {message}",
                "level": "warning",
                "logger": "py.warnings",
            }
        )

    warnings.showwarning = show
    try:
        yield
    finally:
        root.removeHandler(handler)
        warnings.showwarning = shown_before
