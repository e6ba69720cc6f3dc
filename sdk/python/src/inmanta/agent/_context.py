"""Loggers and the context of an operation; modules import them from `inmanta.agent.handler`."""

from __future__ import annotations

import abc
import datetime
import json
import logging
import time
import typing
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import inmanta
from inmanta import const, data
from inmanta.data.model import AttributeStateChange
from inmanta.util import internal_json_encoder

if TYPE_CHECKING:
    from inmanta.resources import Resource

PUBLIC_MODULE = "inmanta.agent.handler"
LOGGER = logging.getLogger(PUBLIC_MODULE)

_HANDLER_STATES = {state.value: state for state in const.HandlerResourceState}
_STATE_OF_HANDLER_STATE = {
    state: const.ResourceState(
        "skipped" if state is const.HandlerResourceState.skipped_for_dependency else state.value
    )
    for state in const.HandlerResourceState
}


class InvalidOperation(Exception):
    """A handler reported contradictory results."""

    __module__ = PUBLIC_MODULE


class LoggerABC(abc.ABC):
    """A logger with named values in each line."""

    __module__ = PUBLIC_MODULE

    @abc.abstractmethod
    def _log_msg(self, level: int, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs one line; all other methods call this one."""

    def debug(self, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs at level DEBUG."""
        self._log_msg(logging.DEBUG, msg, *args, exc_info=exc_info, **kwargs)

    def info(self, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs at level INFO."""
        self._log_msg(logging.INFO, msg, *args, exc_info=exc_info, **kwargs)

    def warning(self, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs at level WARNING."""
        self._log_msg(logging.WARNING, msg, *args, exc_info=exc_info, **kwargs)

    # Deprecated name, for handlers of the first generation.
    warn = warning

    def error(self, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs at level ERROR."""
        self._log_msg(logging.ERROR, msg, *args, exc_info=exc_info, **kwargs)

    def critical(self, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        """Logs at level CRITICAL."""
        self._log_msg(logging.CRITICAL, msg, *args, exc_info=exc_info, **kwargs)

    def exception(self, msg: str, *args: object, exc_info: bool = True, **kwargs: object) -> None:
        """Logs at level ERROR, with the traceback of the exception that is being handled."""
        self._log_msg(logging.ERROR, msg, *args, exc_info=exc_info, **kwargs)


class PythonLogger(LoggerABC):
    """Adapter for Python loggers."""

    __module__ = PUBLIC_MODULE

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger

    def _log_msg(self, level: int, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        if args:
            raise Exception("Args not supported")
        if kwargs:
            self.logger.log(level, msg, kwargs, exc_info=exc_info)
        else:
            self.logger.log(level, msg, exc_info=exc_info)


def to_json(value: object) -> Any:
    """Round trip of a value through JSON. Raises TypeError, ValueError or RecursionError on failure."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    return json.loads(json.dumps(value, default=internal_json_encoder))


class HandlerContext(LoggerABC):
    """Inputs and results of a handler during one operation on one resource."""

    __module__ = PUBLIC_MODULE

    def __init__(
        self,
        resource: Resource,
        dry_run: bool = False,
        action_id: uuid.UUID | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._resource = resource
        self._dry_run = dry_run
        self._cache: dict[str, Any] = {}
        self._purged = False
        self._updated = False
        self._created = False
        self._change = const.Change.nochange
        self._changes: dict[str, AttributeStateChange] = {}
        self._action_id = uuid.uuid4() if action_id is None else action_id
        self._status: const.ResourceState | None = None
        self._resource_state: const.HandlerResourceState | None = None
        self._logs: list[data.LogLine] = []
        self._facts: list[dict[str, Any]] = []
        self.logger: logging.Logger = LOGGER if logger is None else logger
        self._effect_unknown = False
        self._effect_begun = False
        self._effect_undone = False
        # Required resources that have changed since the last deploy; None if unknown.
        self._changed_requires: typing.Sequence[str] | None = None

    def _out_of_memory(self) -> None:
        """Called when a handler runs out of memory."""

    def _checkpoint(self) -> None:
        """Called whenever the handler talks to its context. The host raises here when the operation is cancelled."""

    # State.

    def is_dry_run(self) -> bool:
        """True if nothing may be changed."""
        self._checkpoint()
        return self._dry_run

    @property
    def action_id(self) -> uuid.UUID:
        """Id of this operation."""
        return self._action_id

    @property
    def status(self) -> const.ResourceState | None:
        """The reported state, if any."""
        return self._status

    @property
    def resource_state(self) -> const.HandlerResourceState | None:
        """The reported state, if any."""
        return self._resource_state

    @property
    def logs(self) -> list[data.LogLine]:
        """The log lines so far."""
        return self._logs

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The facts so far."""
        return self._facts

    @property
    def changes(self) -> dict[str, AttributeStateChange]:
        """The differences reported so far."""
        return self._changes

    @property
    def change(self) -> const.Change:
        """The kind of change to the resource."""
        return self._change

    @property
    def changed(self) -> bool:
        """True if the resource was changed."""
        return self._change != const.Change.nochange

    # Scratch values.

    def set(self, name: str, value: Any) -> None:
        """Stores a value until the end of the operation."""
        self._checkpoint()
        self._cache[name] = value

    def get(self, name: str) -> Any:
        """A stored value; raises KeyError if there is none."""
        self._checkpoint()
        return self._cache[name]

    def contains(self, key: str) -> bool:
        """True if a value is stored."""
        return key in self._cache

    # State.

    def set_resource_state(self, new_state: const.HandlerResourceState) -> None:
        """Sets the outcome of the operation."""
        self._checkpoint()
        if new_state == const.HandlerResourceState.non_compliant and not self._changes:
            raise InvalidOperation("Unable to set state to non_compliant before changes are set.")
        self._resource_state = new_state
        self._status = _STATE_OF_HANDLER_STATE[new_state]

    def set_status(self, status: const.ResourceState) -> None:
        """The old form of `set_resource_state`. States that handlers may not set mean failed."""
        self._checkpoint()
        state = _HANDLER_STATES.get(const.ResourceState(status).value)
        if state is None:
            self.logger.warning(
                "Called set_status with status %s which is not supported on the handler API", status
            )
            state = const.HandlerResourceState.failed
        self._resource_state = state
        self._status = status

    def set_fact(self, fact_id: str, value: str, expires: bool = True) -> None:
        """Publishes a fact of the resource."""
        self._checkpoint()
        self._facts.append(
            {
                "id": fact_id,
                "source": const.ParameterSource.fact.value,
                "value": value,
                "resource_id": self._resource.id.resource_str(),
                "expires": expires,
            }
        )

    # Changes.

    def set_created(self) -> None:
        """The resource was created."""
        self._set_change(const.Change.created)
        self._created = True

    def set_updated(self) -> None:
        """The resource was changed."""
        self._set_change(const.Change.updated)
        self._updated = True

    def set_purged(self) -> None:
        """The resource was removed."""
        self._set_change(const.Change.purged)
        self._purged = True

    def _set_change(self, change: const.Change) -> None:
        self._checkpoint()
        if self._change is not const.Change.nochange:
            raise InvalidOperation(f"Unable to set {change} operation, {self._change} already set.")
        self._change = change

    # Effects that must not be repeated.

    @property
    def effect_unknown(self) -> bool:
        """True if an earlier run began an unrepeatable effect and its result was lost."""
        return self._effect_unknown

    def begin_effect(self) -> None:
        """Durably records the start of an unrepeatable effect. Call it right before the effect.

        If an earlier run began it and its result was lost, this call ends the operation: the resource is parked as
        unknown. A handler that has verified that it did not happen calls `effect_did_not_happen` first.
        """
        self._checkpoint()
        if self._dry_run or getattr(self._resource, "report_only", False):
            raise InvalidOperation("An effect must not begin in an operation that changes nothing.")
        if not self._effect_begun:
            self._record_effect(self._effect_undone)
        self._effect_begun, self._effect_undone = True, False

    def effect_did_not_happen(self) -> None:
        """Reports that the effect begun by this run, or by a run with a lost result, did not happen."""
        self._checkpoint()
        self._effect_undone = True

    def _record_effect(self, did_not_happen: bool) -> None:
        """Called when an effect begins. The host has the core record it, and raises if it must not begin."""

    # Differences.

    def add_change(self, name: str, desired: object, current: object = None) -> None:
        """Reports the current and desired value of an attribute."""
        self._checkpoint()
        self._changes[name] = AttributeStateChange(current=current, desired=desired)

    def add_changes(self, **kwargs: object) -> None:
        """Reports desired values of attributes without current ones."""
        self._checkpoint()
        for name, value in kwargs.items():
            self._changes[name] = AttributeStateChange(desired=value)

    def fields_updated(self, fields: str | typing.Iterable[str]) -> None:
        """Reports that these fields, or this one, differ."""
        self._checkpoint()
        for field in [fields] if isinstance(fields, str) else fields:
            self._changes.setdefault(field, AttributeStateChange())

    def update_changes(self, changes: Mapping[str, Any]) -> None:
        """Reports differences: as change objects, as dicts with `current` and `desired`, or as pairs of the two."""
        self._checkpoint()
        for name, change in changes.items():
            if isinstance(change, dict):
                self._changes[name] = AttributeStateChange(
                    current=change.get("current"), desired=change.get("desired")
                )
            elif isinstance(change, tuple):
                if len(change) != 2:
                    raise InvalidOperation(
                        f"Reported changes for {name} not valid. Tuple changes should contain 2 element."
                    )
                self._changes[name] = AttributeStateChange(current=change[0], desired=change[1])
            elif isinstance(change, AttributeStateChange):
                self._changes[name] = change
            else:
                raise InvalidOperation(f"Reported changes for {name} not in a type that is recognized.")

    # Logging.

    def _log_msg(self, level: int, msg: str, *args: object, exc_info: bool = False, **kwargs: object) -> None:
        self._checkpoint()
        if args:
            raise Exception("Args not supported")
        if exc_info:
            import traceback

            kwargs["traceback"] = traceback.format_exc()
        values: dict[str, Any] = {}
        for name, value in kwargs.items():
            try:
                values[name] = to_json(value)
            except Exception as error:
                if inmanta.RUNNING_TESTS:
                    raise Exception(f"Failed to serialize argument for log message {name}={value}") from error
                values[name] = str(value)
        self._emit(level, msg % values, values, time.time(), exc_info)

    def _emit(self, level: int, text: str, values: dict[str, Any], moment: float, exc_info: bool) -> None:
        """Stores a line and forwards it to Python's logger."""
        self._logs.append(
            data.LogLine(
                level=const.LogLevel(level).name,
                msg=text,
                args=[],
                kwargs=values,
                timestamp=datetime.datetime.fromtimestamp(moment).astimezone(),
            )
        )
        self.logger.log(level, "resource %s: %s", self._resource.id, text, exc_info=exc_info)
