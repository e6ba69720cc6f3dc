"""Checks values against types of pydantic and of the standard library, by name."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

_ALLOWED = ("pydantic.", "datetime.", "ipaddress.", "uuid.")


@dataclass(frozen=True)
class Regex:
    """A Python regular expression that a string must match from its beginning."""

    pattern: str

    def __get_pydantic_core_schema__(self, source_type: Any, handler: Any) -> Any:
        """Part of pydantic's protocol: the check of a string with this marker."""
        from pydantic_core import PydanticCustomError, core_schema

        compiled = re.compile(self.pattern)

        def match(value: str) -> str:
            if compiled.match(value) is None:
                raise PydanticCustomError(
                    "string_pattern_mismatch",
                    "String should match pattern '{pattern}'",
                    {"pattern": self.pattern},
                )
            return value

        return core_schema.no_info_after_validator_function(match, handler(source_type))


def regex_string(regex: str) -> object:
    """The type of strings that match a pattern."""
    return Annotated[str, Regex(regex)]


def parametrize_type(
    base_type: Any, validation_parameters: Mapping[str, object] | None = None, *, type_name: str | None = None
) -> Any:
    """A type with parameters. `regex` is a Python pattern, unlike pydantic's own `pattern`."""
    if validation_parameters is None:
        if not isinstance(base_type, type) and callable(base_type) and not hasattr(base_type, "__origin__"):
            return base_type()
        return base_type
    parameters = dict(validation_parameters)
    regex = parameters.pop("regex", None)
    parametrized = base_type(**parameters) if parameters or regex is None else str
    if regex is not None:
        return Annotated[parametrized, Regex(str(regex))]
    return parametrized


@functools.lru_cache(maxsize=512)
def _adapter(fq_type_name: str, parameters: str | None) -> Any:
    import pydantic

    module_name, _, type_name = fq_type_name.rpartition(".")
    found = getattr(importlib.import_module(module_name), type_name)
    return pydantic.TypeAdapter(
        parametrize_type(
            found, None if parameters is None else json.loads(parameters), type_name=fq_type_name
        )
    )


def validate_type(
    fq_type_name: str, value: object, validation_parameters: Mapping[str, object] | None = None
) -> None:
    """Raises if a value does not have a type. Only types of a few modules are supported."""
    if not fq_type_name.startswith(_ALLOWED):
        raise ValueError(f"Unknown fq_type_name: {fq_type_name}")
    parameters = (
        None if validation_parameters is None else json.dumps(dict(validation_parameters), sort_keys=True)
    )
    _adapter(fq_type_name, parameters).validate_python(value)
