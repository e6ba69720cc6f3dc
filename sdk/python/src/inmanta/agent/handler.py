"""Handlers: the code that brings resources into their desired state.

A handler object lives for one operation. Most derive from `CRUDHandler` and implement read, create, update and
delete; `ResourceHandler` is for custom comparisons, `DiscoveryHandler` for discovery.
"""

from __future__ import annotations

import abc
import logging
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from inmanta import const, resources
from inmanta.agent._context import HandlerContext, InvalidOperation, LoggerABC, PythonLogger
from inmanta.agent._providers import Commander, HandlerNotAvailableException, cache, provider
from inmanta.agent.cache import AgentCache
from inmanta.types import ResourceIdStr, SimpleTypes

if TYPE_CHECKING:
    from inmanta.agent.executor import AgentInstance
    from inmanta.protocol.endpoints import Client

__all__ = [
    "LOGGER",
    "CRUDHandler",
    "CRUDHandlerGeneric",
    "Commander",
    "DiscoveryHandler",
    "HandlerABC",
    "HandlerAPI",
    "HandlerContext",
    "HandlerNotAvailableException",
    "InvalidOperation",
    "LoggerABC",
    "PythonLogger",
    "ResourceHandler",
    "ResourcePurged",
    "SimpleTypes",
    "SkipResource",
    "SkipResourceForDependencies",
    "cache",
    "provider",
]

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")
TResource = TypeVar("TResource", bound=resources.Resource)
TPurgeableResource = TypeVar("TPurgeableResource", bound=resources.PurgeableResource)
TDiscovery = TypeVar("TDiscovery", bound=resources.DiscoveryResource)
TDiscovered = TypeVar("TDiscovered")

# True if a resource that the same run has changed is also reloaded for its requirements. `reload_after_change`
# in section `handlers` of the configuration overrides this default.
RELOAD_AFTER_CHANGE = False


class SkipResource(Exception):
    """Raised by a handler to skip the resource and retry it later."""


class SkipResourceForDependencies(SkipResource):
    """Raised by a handler to wait until its requirements have been deployed again."""


class ResourcePurged(Exception):
    """Raised by `read_resource`: the resource does not exist."""


# The methods that may be declared unrepeatable.
_EFFECTS = frozenset({"create_resource", "update_resource", "delete_resource", "do_changes", "do_reload"})


def _names(methods: Collection[str]) -> Collection[str]:
    return (methods,) if isinstance(methods, str) else methods


class HandlerAPI(abc.ABC, Generic[TResource]):
    """The interface between executor and handler. Handlers derive from the classes below.

    Private methods begin with `_orrery_`, because handlers have their own private methods with names such as
    `_execute` and `_call`.
    """

    #: Methods whose effect must not be repeated, such as ``("create_resource",)``. Each call of one is recorded,
    #: durably, before it begins; if its result is lost, the resource is parked as unknown instead of being run again.
    unrepeatable: typing.ClassVar[Collection[str]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        wrong = sorted(set(_names(cls.unrepeatable)) - _EFFECTS)
        if wrong:
            raise TypeError(
                f"{cls.__name__}.unrepeatable names {wrong[0]!r}; it may name {', '.join(sorted(_EFFECTS))}"
            )

    def _orrery_begin(self, ctx: HandlerContext, method: str) -> None:
        """Called before a method that changes something."""
        if method in _names(self.unrepeatable):
            ctx.begin_effect()

    def __init__(self, agent: AgentInstance, io: object = None) -> None:
        self._agent = agent
        self._io: Any = io
        self._client: Any = None

    def set_cache(self, cache: AgentCache) -> None:
        """Sets the cache for values across operations."""
        self.cache = cache

    def _orrery_cache_in_use(self) -> AgentCache:
        if not isinstance(getattr(self, "cache", None), AgentCache):
            # A handler that a test created directly.
            self.cache = AgentCache()
        return self.cache

    def close(self) -> None:
        """Called when the operation has ended."""

    # Hooks for handlers.

    def pre(self, ctx: HandlerContext, resource: TResource) -> None:
        """Called before everything else."""

    def post(self, ctx: HandlerContext, resource: TResource) -> None:
        """Called after everything else, whatever happened."""

    def facts(self, ctx: HandlerContext, resource: TResource) -> dict[str, str]:
        """Returns the facts of the resource."""
        return {}

    def can_reload(self) -> bool:
        """True if `do_reload` is implemented."""
        return False

    def do_reload(self, ctx: HandlerContext, resource: TResource) -> None:
        """Called after a deploy if a requirement has changed."""

    @abc.abstractmethod
    def execute(self, ctx: HandlerContext, resource: TResource, dry_run: bool = False) -> None:
        """Brings the resource into its desired state, or reports the differences."""

    @abc.abstractmethod
    def check_facts(self, ctx: HandlerContext, resource: TResource) -> dict[str, str]:
        """Returns the facts of the resource."""

    # Deploying.

    def deploy(
        self,
        ctx: HandlerContext,
        resource: TResource,
        requires: Mapping[ResourceIdStr, const.ResourceState],
    ) -> None:
        """Executes the resource if its requirements are deployed, and reloads it if they have changed."""
        if not getattr(resource, "report_only", False) and self._orrery_wait_for_requires(
            ctx, resource, requires
        ):
            return
        self.execute(ctx, resource, dry_run=False)
        ctx._checkpoint()
        if _state_after_execute(ctx) and self.can_reload() and self._orrery_should_reload(ctx, resource):
            self._orrery_reload(ctx, resource)

    def _orrery_wait_for_requires(
        self, ctx: HandlerContext, resource: TResource, requires: Mapping[ResourceIdStr, const.ResourceState]
    ) -> bool:
        odd = {
            identifier: const.ResourceState(state).value
            for identifier, state in requires.items()
            if state in (const.ResourceState.dry, *const.UNDEPLOYABLE_STATES)
        }
        if odd:
            ctx.set_resource_state(const.HandlerResourceState.skipped_for_dependency)
            ctx.warning(
                "Resource %(resource)s skipped because a dependency is in an unexpected state: %(unexpected_states)s",
                resource=resource.id.resource_version_str(),
                unexpected_states=str(odd),
            )
            return True
        pending = [identifier for identifier, state in requires.items() if state in const.TRANSIENT_STATES]
        if pending:
            ctx.set_resource_state(const.HandlerResourceState.skipped_for_dependency)
            ctx.info(
                "Resource %(resource)s skipped because dependencies %(reqs)s have a new desired state that is not"
                " deployed yet. It is tried again when they are.",
                resource=resource.id.resource_version_str(),
                reqs=str(pending),
            )
            return True
        failed = [
            identifier for identifier, state in requires.items() if state != const.ResourceState.deployed
        ]
        if failed:
            ctx.set_resource_state(const.HandlerResourceState.skipped_for_dependency)
            ctx.info(
                "Resource %(resource)s skipped due to failed dependencies: %(failed)s",
                resource=resource.id.resource_version_str(),
                failed=str(failed),
            )
            return True
        return False

    def _orrery_should_reload(self, ctx: HandlerContext, resource: TResource) -> bool:
        if ctx.changed and not _reload_after_change():
            # The change already used the current requirements.
            return False
        if ctx._changed_requires is not None:
            return bool(ctx._changed_requires)
        try:
            result = self._orrery_call(
                "resource_did_dependency_change",
                tid=str(self._agent.environment),
                rvid=resource.id.resource_version_str(),
            )
        except ConnectionRefusedError:
            return False
        if result.code != 200:
            raise Exception("Failed to determine whether resource should reload")
        return bool((result.result or {}).get("data"))

    def _orrery_reload(self, ctx: HandlerContext, resource: TResource) -> None:
        ctx.info(
            "Reloading %(resource_id)s, because something that it requires has changed",
            resource_id=resource.id.resource_str(),
        )
        try:
            self._orrery_begin(ctx, "do_reload")
            self.do_reload(ctx, resource)
        except Exception as error:
            report_exception(ctx, resource, error)

    # Helpers for handlers.

    def run_sync(self, func: Callable[[], Awaitable[T]]) -> T:
        """Runs a coroutine function and returns its result."""
        from orrery_sdk.loop import run_and_wait

        return run_and_wait(func)

    def get_client(self) -> Client:
        """The API, for coroutines."""
        if self._client is None:
            from inmanta.protocol.endpoints import Client

            self._client = Client("agent")
        return self._client

    def _orrery_call(self, method: str, **arguments: Any) -> Any:
        from inmanta.protocol.endpoints import SyncClient

        return getattr(SyncClient("agent"), method)(**arguments)

    def get_file(self, hash_id: str) -> bytes | None:
        """A content by its id; None if there is none."""
        from orrery_sdk import files

        if files.available():
            return files.get(hash_id)
        import base64

        result = self._orrery_call("get_file", id=hash_id)
        if result.code == 404:
            return None
        if result.code != 200 or not result.result:
            raise Exception(f"The content {hash_id} could not be fetched")
        content = base64.b64decode(result.result["content"])
        found = files.hash_of(content)
        if found != hash_id:
            raise Exception(f"File hash verification failed, expected: {hash_id} but got {found}")
        return content

    def stat_file(self, hash_id: str) -> bool:
        """True if a content with that id exists."""
        from orrery_sdk import files

        if files.available():
            return files.has(hash_id)
        return bool(self._orrery_call("stat_file", id=hash_id).code == 200)

    def upload_file(self, hash_id: str, content: bytes) -> None:
        """Stores a content under an id."""
        from orrery_sdk import files

        if files.available():
            files.put(content, hash_id)
            return
        import base64

        result = self._orrery_call(
            "upload_file", id=hash_id, content=base64.b64encode(content).decode("ascii")
        )
        if result.code != 200:
            raise Exception("Unable to upload file to the server.")


# The name of the interface in older releases.
HandlerABC = HandlerAPI


def _state_after_execute(ctx: HandlerContext) -> bool:
    """True if the execution succeeded, so that a reload is useful."""
    return ctx.resource_state in (None, const.HandlerResourceState.deployed)


def _reload_after_change() -> bool:
    from inmanta.config import Config

    return bool(Config.getboolean("handlers", "reload_after_change", RELOAD_AFTER_CHANGE))


def report_exception(ctx: HandlerContext, resource: resources.Resource, error: BaseException) -> None:
    """Sets the state that follows from an exception of a handler, and logs it. Called while it is being handled."""
    resource_id = resource.id.resource_str()
    if isinstance(error, SkipResource):
        ctx.set_resource_state(
            const.HandlerResourceState.skipped_for_dependency
            if isinstance(error, SkipResourceForDependencies)
            else const.HandlerResourceState.skipped
        )
        ctx.warning(
            "Resource %(resource_id)s was skipped: %(reason)s",
            resource_id=resource_id,
            reason=list(error.args),
        )
        return
    if isinstance(error, MemoryError):
        ctx._out_of_memory()
    ctx.set_resource_state(
        const.HandlerResourceState.unavailable
        if isinstance(error, resources.HostNotFoundException)
        else const.HandlerResourceState.failed
    )
    ctx.exception(
        "An error occurred during deployment of %(resource_id)s (exception: %(exception)s)",
        resource_id=resource_id,
        exception=describe(error),
    )


def describe(error: BaseException) -> str:
    """The class and the text of an exception."""
    return f"{type(error).__name__}('{error}')"


class ResourceHandler(HandlerAPI[TResource]):
    """A handler that compares current and desired state itself, and applies changes."""

    def check_resource(self, ctx: HandlerContext, resource: TResource) -> TResource:
        """The resource as it is now."""
        raise NotImplementedError()

    def list_changes(self, ctx: HandlerContext, resource: TResource) -> dict[str, dict[str, Any]]:
        """The differences between current and desired state."""
        current = self.check_resource(ctx, resource)
        ctx._checkpoint()
        return self._diff(current, resource)

    def do_changes(
        self, ctx: HandlerContext, resource: TResource, changes: Mapping[str, Mapping[str, object]]
    ) -> None:
        """Applies the differences."""
        raise NotImplementedError()

    def _diff(self, current: TResource, desired: TResource) -> dict[str, dict[str, Any]]:
        """The fields that differ. A field with the desired value None is not managed."""
        changes: dict[str, dict[str, Any]] = {}
        for field in type(current).fields:
            current_value = getattr(current, field)
            desired_value = getattr(desired, field)
            if current_value != desired_value and desired_value is not None:
                changes[field] = {"current": current_value, "desired": desired_value}
        return changes

    def execute(self, ctx: HandlerContext, resource: TResource, dry_run: bool = False) -> None:
        """Compares, and applies changes unless this is a dry run or the resource is report-only."""
        try:
            self.pre(ctx, resource)
            ctx._checkpoint()
            self._orrery_execute(ctx, resource, dry_run)
        except Exception as error:
            report_exception(ctx, resource, error)
        finally:
            self._orrery_finish(ctx, resource)

    def _orrery_execute(self, ctx: HandlerContext, resource: TResource, dry_run: bool) -> None:
        changes = self.list_changes(ctx, resource)
        ctx.update_changes(changes)
        if self._orrery_only_report(ctx, resource):
            return
        if dry_run:
            ctx.set_resource_state(const.HandlerResourceState.dry)
            return
        if changes:
            self._orrery_begin(ctx, "do_changes")
        self.do_changes(ctx, resource, changes)
        ctx.set_resource_state(const.HandlerResourceState.deployed)

    def _orrery_only_report(self, ctx: HandlerContext, resource: TResource) -> bool:
        if not getattr(resource, "report_only", False):
            return False
        if ctx.changes:
            ctx.set_resource_state(const.HandlerResourceState.non_compliant)
            ctx.info(
                "Resource %(resource_id)s was marked as non-compliant.",
                resource_id=resource.id.resource_str(),
            )
        else:
            ctx.set_resource_state(const.HandlerResourceState.deployed)
        return True

    def _orrery_finish(self, ctx: HandlerContext, resource: TResource) -> None:
        """Runs `post`. Its exceptions are logged and change nothing; a cancelled operation does not interrupt it."""
        ctx._checkpoint = _nothing  # type: ignore[method-assign]
        try:
            self.post(ctx, resource)
        except Exception as error:
            ctx.exception(
                "An error occurred after deployment of %(resource_id)s (exception: %(exception)s)",
                resource_id=resource.id.resource_str(),
                exception=describe(error),
            )
        finally:
            del ctx._checkpoint

    def check_facts(self, ctx: HandlerContext, resource: TResource) -> dict[str, str]:
        """Runs `pre`, `facts` and `post`."""
        facts: dict[str, str] = {}
        try:
            self.pre(ctx, resource)
            ctx._checkpoint()
            facts = self.facts(ctx, resource)
        finally:
            self._orrery_finish(ctx, resource)
        return facts


def _nothing() -> None:
    pass


class CRUDHandler(ResourceHandler[TPurgeableResource]):
    """A handler that implements read, create, update and delete of a resource."""

    def read_resource(self, ctx: HandlerContext, resource: TPurgeableResource) -> None:
        """Updates the given copy to the current state; raises ResourcePurged if the resource does not exist."""

    def create_resource(self, ctx: HandlerContext, resource: TPurgeableResource) -> None:
        """Called if it does not exist and should."""

    def update_resource(
        self, ctx: HandlerContext, changes: dict[str, dict[str, Any]], resource: TPurgeableResource
    ) -> None:
        """Called if it exists and differs."""

    def delete_resource(self, ctx: HandlerContext, resource: TPurgeableResource) -> None:
        """Called if it exists and should not."""

    def calculate_diff(
        self, ctx: HandlerContext, current: TPurgeableResource, desired: TPurgeableResource
    ) -> dict[str, dict[str, Any]]:
        """The fields that differ."""
        return self._diff(current, desired)

    def _orrery_execute(self, ctx: HandlerContext, resource: TPurgeableResource, dry_run: bool) -> None:
        current = resource.clone(purged=False)
        changes: dict[str, dict[str, Any]] = {}
        try:
            ctx.debug("Calling read_resource")
            self.read_resource(ctx, current)
            ctx._checkpoint()
            changes = self.calculate_diff(ctx, current=current, desired=resource)
        except ResourcePurged:
            if not resource.purged:
                changes = {"purged": {"current": True, "desired": False}}
        for name, change in changes.items():
            ctx.add_change(name, desired=change.get("desired"), current=change.get("current"))
        if self._orrery_only_report(ctx, resource):
            return
        if dry_run:
            ctx.set_resource_state(const.HandlerResourceState.dry)
            return
        if "purged" in changes:
            if resource.purged:
                self._orrery_begin(ctx, "delete_resource")
                ctx.debug("Calling delete_resource")
                self.delete_resource(ctx, resource)
            else:
                self._orrery_begin(ctx, "create_resource")
                ctx.debug("Calling create_resource")
                self.create_resource(ctx, resource)
        elif not resource.purged and changes:
            self._orrery_begin(ctx, "update_resource")
            ctx.debug("Calling update_resource", changes=changes)
            self.update_resource(ctx, dict(changes), resource)
        ctx.set_resource_state(const.HandlerResourceState.deployed)


class CRUDHandlerGeneric(CRUDHandler[TPurgeableResource]):
    """A CRUDHandler with a type parameter for the resource class."""


# Batches, because the size of a message is limited.
_DISCOVERED_AT_ONCE = 1000


class DiscoveryHandler(HandlerAPI[TDiscovery], Generic[TDiscovery, TDiscovered]):
    """A handler that discovers existing resources."""

    def discover_resources(
        self, ctx: HandlerContext, discovery_resource: TDiscovery
    ) -> Mapping[ResourceIdStr, TDiscovered]:
        """Returns the existing resources by id."""
        raise NotImplementedError()

    def check_facts(self, ctx: HandlerContext, resource: TDiscovery) -> dict[str, str]:
        """Does nothing: a discovery has no facts."""
        return {}

    def execute(self, ctx: HandlerContext, resource: TDiscovery, dry_run: bool = False) -> None:
        """Discovers and reports resources; a dry run does nothing."""
        try:
            self.pre(ctx, resource)
            ctx._checkpoint()
            if dry_run:
                ctx.set_resource_state(const.HandlerResourceState.dry)
                return
            found = self.discover_resources(ctx, resource)
            ctx._checkpoint()
            self._orrery_report(ctx, resource, found)
            ctx.set_resource_state(const.HandlerResourceState.deployed)
        except Exception as error:
            report_exception(ctx, resource, error)
        finally:
            ResourceHandler._orrery_finish(typing.cast(Any, self), ctx, resource)

    def _orrery_report(
        self, ctx: HandlerContext, resource: TDiscovery, found: Mapping[ResourceIdStr, TDiscovered]
    ) -> None:
        discovered = [
            {
                "discovered_resource_id": identifier,
                "values": _dump(values),
                "managed_resource_uri": None,
                "discovery_resource_id": resource.id.resource_str(),
            }
            for identifier, values in found.items()
        ]
        for start in range(0, len(discovered), _DISCOVERED_AT_ONCE):
            result = self._orrery_call(
                "discovered_resource_create_batch",
                tid=str(self._agent.environment),
                discovered_resources=discovered[start : start + _DISCOVERED_AT_ONCE],
            )
            if result.code != 200:
                raise Exception(f"The discovered resources were refused: {result.result}")
        ctx.debug("Reported %(count)d discovered resources", count=len(discovered))


def _dump(values: Any) -> Any:
    if hasattr(values, "model_dump"):
        return values.model_dump(mode="json")
    return values
