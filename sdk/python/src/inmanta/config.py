"""The configuration: values from the core and from environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _normal(name: str) -> str:
    return name.replace("_", "-")


def is_str(value: Any) -> str:
    """A text."""
    return str(value)


def is_str_opt(value: Any) -> str | None:
    """A text, or None."""
    return None if value is None else str(value)


def is_int(value: Any) -> int:
    """A whole number."""
    return int(value)


def is_float(value: Any) -> float:
    """A number."""
    return float(value)


def is_bool(value: Any) -> bool:
    """A boolean, or a word for it."""
    from inmanta.data import convert_boolean

    return convert_boolean(value)


def is_uuid_opt(value: Any) -> Any:
    """An id, or None."""
    import uuid

    return None if value is None else uuid.UUID(str(value))


class Config:
    """All options that are set, by section and name."""

    _values: dict[str, dict[str, str]] = {}
    _options: dict[str, dict[str, Option[Any]]] = {}

    @classmethod
    def _reset(cls) -> None:
        cls._values = {}

    @classmethod
    def _lookup(cls, section: str, name: str) -> str | None:
        variable = f"INMANTA_{section}_{name}".replace("-", "_").upper()
        if variable in os.environ:
            return os.environ[variable]
        return cls._values.get(section, {}).get(_normal(name))

    @classmethod
    def get(cls, section: str, name: str | None = None, default_value: Any = None) -> Any:
        """The value of an option; the given default, or that of a registered option, if it is not set."""
        if name is None:
            return dict(cls._values.get(section, {}))
        raw = cls._lookup(section, name)
        option = cls._options.get(section, {}).get(_normal(name))
        if raw is None:
            return (
                option.get_default_value() if default_value is None and option is not None else default_value
            )
        return raw if option is None else option.validate(raw)

    @classmethod
    def getboolean(cls, section: str, name: str, default_value: bool | None = None) -> bool | None:
        """The boolean value of an option."""
        raw = cls._lookup(section, name)
        return default_value if raw is None else is_bool(raw)

    @classmethod
    def is_set(cls, section: str, name: str) -> bool:
        """True if an option has a value."""
        return cls._lookup(section, name) is not None

    @classmethod
    def set(cls, section: str, name: str, value: str) -> None:
        """Sets an option."""
        cls._values.setdefault(section, {})[_normal(name)] = value

    @classmethod
    def load_config_from_dict(cls, input_config: Mapping[str, Mapping[str, Any]]) -> None:
        """Sets many options."""
        for section, options in input_config.items():
            for name, value in options.items():
                cls.set(section, name, value)

    @classmethod
    def config_as_dict(cls) -> Mapping[str, Mapping[str, Any]]:
        """All options that are set."""
        return {section: dict(options) for section, options in cls._values.items()}

    @classmethod
    def register_option(cls, option: Option[Any]) -> None:
        """Registers an option."""
        cls._options.setdefault(option.section, {})[_normal(option.name)] = option

    @classmethod
    def get_for_option(cls, option: Option[T]) -> T:
        """The value of a registered option."""
        return cls.get(option.section, option.name)


class Option(Generic[T]):
    """An option with a default and a check."""

    def __init__(
        self,
        section: str,
        name: str,
        default: T | Callable[[], T] | None,
        documentation: str,
        validator: Callable[[Any], T] = is_str,  # type: ignore[assignment]
        predecessor_option: Option[T] | None = None,
    ) -> None:
        self.section = section
        self.name = _normal(name)
        self.default = default
        self.documentation = documentation
        self.validator = validator
        self.predecessor_option = predecessor_option
        Config.register_option(self)

    def get(self) -> T:
        """Its value."""
        return Config.get_for_option(self)

    def set(self, value: str) -> None:
        """Sets it."""
        Config.set(self.section, self.name, value)

    def get_default_value(self) -> T:
        """The default value."""
        if self.predecessor_option is not None and Config.is_set(
            self.predecessor_option.section, self.predecessor_option.name
        ):
            return self.predecessor_option.get()
        return self.default() if callable(self.default) else self.default  # type: ignore[return-value]

    def validate(self, value: Any) -> T:
        """Parses and checks a value."""
        return self.validator(value)


state_dir: Option[str] = Option(
    "config", "state_dir", "/var/lib/inmanta", "Where what has to be kept is kept"
)
environment: Option[Any] = Option(
    "config", "environment", None, "The environment that this is for", is_uuid_opt
)
