"""Resource states, and names that modules share with the orchestrator."""

from __future__ import annotations

import datetime
import enum
import logging


class ResourceState(str, enum.Enum):
    """The state of a resource."""

    unavailable = "unavailable"
    skipped = "skipped"
    dry = "dry"
    deployed = "deployed"
    failed = "failed"
    deploying = "deploying"
    available = "available"
    cancelled = "cancelled"
    undefined = "undefined"
    skipped_for_undefined = "skipped_for_undefined"
    non_compliant = "non_compliant"


class HandlerResourceState(str, enum.Enum):
    """The states that a handler can report."""

    skipped = "skipped"
    deployed = "deployed"
    failed = "failed"
    dry = "dry"
    skipped_for_dependency = "skipped_for_dependency"
    unavailable = "unavailable"
    non_compliant = "non_compliant"


class Change(str, enum.Enum):
    """The kind of change that an operation made."""

    nochange = "nochange"
    created = "created"
    purged = "purged"
    updated = "updated"


class ResourceAction(str, enum.Enum):
    """Kinds of operations on a resource."""

    store = "store"
    push = "push"
    pull = "pull"
    deploy = "deploy"
    dryrun = "dryrun"
    getfact = "getfact"
    other = "other"


class ParameterSource(str, enum.Enum):
    """The source of a parameter."""

    fact = "fact"
    plugin = "plugin"
    user = "user"
    report = "report"


class LogLevel(str, enum.Enum):
    """Levels of log lines, by name."""

    CRITICAL = "CRITICAL"
    ERROR = "ERROR"
    WARNING = "WARNING"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"

    @classmethod
    def _missing_(cls, value: object) -> LogLevel | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return INTEGER_AS_LOG_LEVEL.get(value)
        return None

    @property
    def to_int(self) -> int:
        """The numeric level of the standard library."""
        return LOG_LEVEL_AS_INTEGER[self]


LOG_LEVEL_TRACE = 3

LOG_LEVEL_AS_INTEGER = {
    LogLevel.CRITICAL: logging.CRITICAL,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: LOG_LEVEL_TRACE,
}
INTEGER_AS_LOG_LEVEL = {number: level for level, number in LOG_LEVEL_AS_INTEGER.items()}

TRANSIENT_STATES = [ResourceState.available, ResourceState.deploying]
NOT_DONE_STATES = TRANSIENT_STATES
DONE_STATES = [
    ResourceState.unavailable,
    ResourceState.skipped,
    ResourceState.deployed,
    ResourceState.failed,
    ResourceState.cancelled,
    ResourceState.non_compliant,
]
INITIAL_STATES = [ResourceState.available]
UNDEPLOYABLE_STATES = [ResourceState.undefined, ResourceState.skipped_for_undefined]
UNDEPLOYABLE_NAMES = [state.name for state in UNDEPLOYABLE_STATES]

RESOURCE_ATTRIBUTE_SEND_EVENTS = "send_event"
RESOURCE_ATTRIBUTE_RECEIVE_EVENTS = "receive_events"
RESOURCE_ATTRIBUTE_REFERENCES = "references"
RESOURCE_ATTRIBUTE_MUTATORS = "mutators"
RESOURCE_ATTRIBUTE_REPORT_ONLY = "report_only"

PLUGINS_PACKAGE = "inmanta_plugins"
MODULE_PKG_NAME_PREFIX = "inmanta-module-"
UNKNOWN_STRING = "<<undefined>>"
ENVELOPE_KEY = "data"
TIME_ISOFMT = "%Y-%m-%dT%H:%M:%S.%f"
TIME_LOGFMT = "%Y-%m-%d %H:%M:%S%z"
NAME_RESOURCE_ACTION_LOGGER = "inmanta.resource_action"
DATETIME_MIN_UTC = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017
