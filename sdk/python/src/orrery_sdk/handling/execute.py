"""Execution of an operation: parse the resource, resolve references, find the handler, run it, report."""

from __future__ import annotations

import logging
import time
import traceback
import uuid
from typing import TYPE_CHECKING, Any

from inmanta import const, references, resources
from inmanta.agent.executor import AgentInstance
from inmanta.agent.handler import (
    Commander,
    HandlerAPI,
    HandlerContext,
    SkipResource,
    describe,
    report_exception,
)
from inmanta.agent.io import LazyIO, MachineUnavailable
from inmanta.resources import Resource
from orrery_sdk.handling.operation import (
    EffectNotBegun,
    Operation,
    OperationCancelled,
    OperationContext,
    current,
)

if TYPE_CHECKING:
    from inmanta.agent.cache import AgentCache

_NO_ENVIRONMENT = uuid.UUID(int=0)

_FAILED = const.HandlerResourceState.failed
_UNAVAILABLE = const.HandlerResourceState.unavailable
_DEPENDENCY_STATES = {"skipped_for_dependency": const.ResourceState.skipped}


class HostedAgent(AgentInstance):
    """The agent, as seen by handlers."""

    def __init__(self, name: str, uri: str, environment: str | None) -> None:
        self.name = name
        self.uri = uri
        self.environment = _NO_ENVIRONMENT if environment is None else uuid.UUID(environment)
        self.stopped = False

    @property
    def eventloop(self) -> Any:
        """A running event loop, started on first use."""
        from orrery_sdk.loop import running_loop

        return running_loop()

    # Names for handlers of the first generation.
    @property
    def process(self) -> HostedAgent:
        """The process of the agent, which is this one."""
        return self

    def is_stopped(self) -> bool:
        """True if the agent is stopping."""
        return self.stopped


class _Ended(Exception):
    """The operation ended, and its outcome is already set."""


def run_operation(operation: Operation, agent: HostedAgent, cache: AgentCache) -> None:
    """Runs one operation, and always reports. Called on the thread of the agent."""
    token = current.set(operation)
    try:
        operation.begin()
        cache.clean_stale_entries()
        _run(operation, agent, cache)
    finally:
        current.reset(token)
        cache.touch_used_cache_items()
        cache.close_versions_before(_version(operation.resource))


def _version(resource: dict[str, Any]) -> int:
    try:
        return resources.Id.parse_id(str(resource.get("id"))).version
    except ValueError:
        return 0


def _run(operation: Operation, agent: HostedAgent, cache: AgentCache) -> None:
    ctx: OperationContext | None = None
    facts: dict[str, Any] = {}
    try:
        operation.checkpoint()
        resource = _deserialize(operation)
        ctx = OperationContext(operation, resource)
        _resolve(ctx, resource)
        handler = _find_handler(ctx, agent, resource, cache)
        try:
            handler.set_cache(cache)
            facts = _use(operation, ctx, handler, resource) or {}
        finally:
            _close(ctx, handler)
    except (_Ended, MachineUnavailable):
        pass
    except OperationCancelled:
        _report_cancelled(operation, ctx)
        return
    except EffectNotBegun as error:
        operation.log(logging.ERROR, f"It was not begun: {error}", {}, time.time())
        _report(operation, ctx, _FAILED, {})
        return
    # Also SystemExit and KeyboardInterrupt: one handler does not end the process for all.
    except BaseException as error:
        _log_error(operation, error)
        _report(operation, ctx, _FAILED, {})
        return
    _report(operation, ctx, None, facts)


def _deserialize(operation: Operation) -> Resource:
    try:
        return Resource.deserialize(operation.resource)
    except Exception as error:
        _log_error(operation, error, f"Unable to deserialize {operation.resource.get('id')}")
        changes = _handler_failed("Unable to deserialize the resource") if operation.kind == "dryrun" else {}
        state = _FAILED if operation.kind == "facts" else _UNAVAILABLE
        operation.report(state.value, const.Change.nochange.value, changes, [])
        raise _Ended() from error


def _resolve(ctx: OperationContext, resource: Resource) -> None:
    try:
        resource.resolve_all_references(ctx)
    except (references.ReferenceMissingError, references.MutatorMissingError) as error:
        _end(ctx, _UNAVAILABLE, error, "Handler failed")
    except SkipResource as error:
        report_exception(ctx, resource, error)
        raise _Ended() from error
    except Exception as error:
        _end(ctx, _FAILED, error, "Handler failed")


def _find_handler(
    ctx: OperationContext, agent: HostedAgent, resource: Resource, cache: AgentCache
) -> HandlerAPI[Any]:
    refuse = ctx._operation.check_machine
    try:
        return Commander.get_provider(agent, resource, LazyIO(agent.uri, cache, refuse))
    except Exception as error:
        _end(ctx, _UNAVAILABLE, error, "Unable to find a handler")
        raise AssertionError("unreachable") from error


def _end(ctx: OperationContext, state: const.HandlerResourceState, error: Exception, change: str) -> None:
    operation = ctx._operation
    if operation.kind == "facts":
        state = _FAILED
    elif operation.kind == "dryrun":
        ctx.update_changes(_handler_failed(change))
    ctx.set_resource_state(state)
    _log_error(operation, error)
    raise _Ended() from error


def _handler_failed(why: str) -> dict[str, dict[str, Any]]:
    return {"handler": {"current": "FAILED", "desired": why}}


def _use(
    operation: Operation, ctx: HandlerContext, handler: HandlerAPI[Any], resource: Resource
) -> dict[str, Any] | None:
    if operation.kind == "facts":
        return handler.check_facts(ctx, resource)
    if operation.kind == "dryrun":
        handler.execute(ctx, resource, dry_run=True)
        if ctx.resource_state is _FAILED:
            ctx.update_changes(_handler_failed("Handler failed"))
        return None
    requires = {name: _dependency_state(state) for name, state in operation.requires.items()}
    handler.deploy(ctx, resource, requires)  # type: ignore[arg-type]
    return None


def _dependency_state(state: str) -> const.ResourceState:
    try:
        return _DEPENDENCY_STATES.get(state) or const.ResourceState(state)
    except ValueError:
        # An unknown state is not `deployed`.
        return const.ResourceState.failed


def _close(ctx: OperationContext, handler: HandlerAPI[Any]) -> None:
    try:
        handler.close()
    # The outcome is final; errors here do not change it.
    except BaseException as error:
        ctx._operation.log(
            logging.WARNING,
            f"The handler could not be closed (exception: {describe(error)})",
            {"traceback": traceback.format_exc()},
            time.time(),
        )


def _log_error(operation: Operation, error: BaseException, what: str | None = None) -> None:
    resource_id = str(operation.resource.get("id")).split(",v=")[0]
    verb = {"dryrun": "a dry run", "facts": "a look for facts"}.get(operation.kind, "deployment")
    text = what or f"An error occurred during {verb} of {resource_id}"
    operation.log(
        logging.ERROR,
        f"{text} (exception: {describe(error)})",
        {"resource_id": resource_id, "exception": describe(error), "traceback": traceback.format_exc()},
        time.time(),
    )


def _report_cancelled(operation: Operation, ctx: OperationContext | None) -> None:
    if operation.cancelled == "deadline":
        text = f"The operation was ended: it took longer than its deadline of {operation.deadline} s"
        operation.log(logging.ERROR, text, {"deadline": operation.deadline}, time.time())
        _report(operation, ctx, _FAILED, {})
        return
    operation.log(logging.INFO, "The operation was cancelled", {}, time.time())
    _send(operation, ctx, "cancelled", {})


def _report(
    operation: Operation,
    ctx: OperationContext | None,
    state: const.HandlerResourceState | None,
    facts: dict[str, Any],
) -> None:
    if operation.asked_for_machine and operation.no_machine is not None:
        # Unavailable, whatever the handler reports: it had no machine.
        hint = {"hint": operation.no_machine.get("help", "")}
        operation.log(logging.ERROR, operation.no_machine.get("reason", ""), hint, time.time())
        operation.report(_UNAVAILABLE.value, const.Change.nochange.value, {}, [])
        return
    if state is None:
        state = None if ctx is None else ctx.resource_state
    if state is None:
        state = (
            const.HandlerResourceState.dry
            if operation.kind == "dryrun"
            else const.HandlerResourceState.deployed
        )
    _send(operation, ctx, state.value, facts)


def _send(operation: Operation, ctx: OperationContext | None, state: str, facts: dict[str, Any]) -> None:
    if ctx is None:
        operation.report(state, const.Change.nochange.value, {}, [])
        return
    found = [(fact["id"], fact["value"], fact["expires"]) for fact in ctx.facts]
    found.extend((name, value, True) for name, value in facts.items())
    changes = {name: change.dict() for name, change in ctx.changes.items()}
    operation.report(state, const.Change(ctx.change).value, changes, found)
