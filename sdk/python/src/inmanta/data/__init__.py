"""Log lines, and conversion to booleans."""

from __future__ import annotations

import datetime
import logging
from typing import Any

from inmanta import const


def convert_boolean(value: bool | str) -> bool:
    """Converts a value or a word to a boolean."""
    if isinstance(value, bool):
        return value
    from inmanta.util import strtobool

    try:
        return strtobool(value)
    except ValueError:
        raise ValueError(f"Not a boolean: {value}") from None


class LogLine:
    """A log line of a handler: text, level, time, and named values."""

    def __init__(self, **kwargs: Any) -> None:
        self._data = kwargs

    @classmethod
    def log(
        cls,
        level: int | const.LogLevel,
        msg: str,
        timestamp: datetime.datetime | None = None,
        **kwargs: object,
    ) -> LogLine:
        """Creates a line with the current time and the formatted text."""
        if timestamp is None:
            timestamp = datetime.datetime.now().astimezone()
        return cls(
            level=const.LogLevel(level).name, msg=msg % kwargs, args=[], kwargs=kwargs, timestamp=timestamp
        )

    @property
    def msg(self) -> str:
        """The text."""
        return self._data["msg"]

    @property
    def args(self) -> list[Any]:
        """Always empty: values have names."""
        return self._data["args"]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The values by name."""
        return self._data["kwargs"]

    @property
    def log_level(self) -> const.LogLevel:
        """The level."""
        return const.LogLevel[self._data["level"]]

    @property
    def timestamp(self) -> datetime.datetime:
        """When it was logged."""
        return self._data["timestamp"]

    def to_dict(self) -> dict[str, Any]:
        """All members by name."""
        return dict(self._data)

    def write_to_logger(self, logger: logging.Logger) -> None:
        """Forwards it to a Python logger."""
        logger.log(self.log_level.to_int, "%s", self.msg)

    def __repr__(self) -> str:
        return f"LogLine({self._data['level']}, {self.msg!r})"
