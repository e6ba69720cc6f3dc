"""Outcomes of deploys in a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from inmanta import const
from inmanta.agent.handler import HandlerContext
from inmanta.resources import Resource


def _format_log(ctx: HandlerContext) -> str:
    """The log of an operation, for the message of a failing test."""
    return "\n".join(
        f"  {line.log_level.name}: {line.msg} {line.kwargs.get('traceback', '')}" for line in ctx.logs
    )


class DeployResult:
    """The outcome of one resource."""

    def __init__(self, resource: Resource, ctx: HandlerContext, discovered: list[Any]) -> None:
        self.resource = resource
        self.ctx = ctx
        self.discovered_resources = discovered

    @property
    def status(self) -> const.ResourceState | None:
        return self.ctx.status

    @property
    def change(self) -> const.Change:
        return self.ctx.change

    @property
    def changes(self) -> dict[str, Any]:
        return self.ctx.changes

    @property
    def logs(self) -> list[Any]:
        return self.ctx.logs

    def assert_status(
        self, status: const.ResourceState = const.ResourceState.deployed, change: const.Change | None = None
    ) -> DeployResult:
        assert self.ctx.status == status, (
            f"{self.resource.id} is {self.ctx.status}, not {status}\n{_format_log(self.ctx)}"
        )
        if change is not None:
            assert self.ctx.change == change, (
                f"{self.resource.id}: {self.ctx.change}, not {change}\n{_format_log(self.ctx)}"
            )
        return self

    def assert_has_logline(self, pattern: str) -> bool:
        """Asserts that a log line matches this regular expression."""
        lines = [line.msg for line in self.ctx.logs]
        assert any(re.search(pattern, line) for line in lines), (
            f"no line has {pattern!r}:\n{_format_log(self.ctx)}"
        )
        return True


class Result:
    """The outcomes of several resources."""

    def __init__(self, results: Mapping[Resource, HandlerContext]) -> None:
        self.results = results

    def assert_all(
        self,
        status: const.ResourceState = const.ResourceState.deployed,
        change: const.Change | None = None,
    ) -> Result:
        for resource, ctx in self.results.items():
            DeployResult(resource, ctx, []).assert_status(status, change)
        return self

    def assert_has_no_changes(self) -> Result:
        changed = {str(resource.id): ctx.changes for resource, ctx in self.results.items() if ctx.changes}
        assert not changed, f"something would change: {changed}"
        return self

    def assert_resources_of_type(
        self,
        resource_type: str,
        status: const.ResourceState = const.ResourceState.deployed,
        change: const.Change | None = None,
    ) -> Result:
        chosen = {r: c for r, c in self.results.items() if r.id.entity_type == resource_type}
        assert chosen, f"there is no resource of type {resource_type}"
        Result(chosen).assert_all(status, change)
        return self

    def get_contexts_for(self, resource_type: str, **filter_args: object) -> set[HandlerContext]:
        return {
            ctx for resource, ctx in self.results.items() if matches(resource, resource_type, filter_args)
        }

    def get_context_for(self, resource_type: str, **filter_args: object) -> HandlerContext:
        found = self.get_contexts_for(resource_type, **filter_args)
        assert len(found) == 1, f"there are {len(found)} resources like this: {resource_type} {filter_args}"
        return found.pop()


def matches(resource: Resource, resource_type: str, filter_args: Mapping[str, object]) -> bool:
    """True if a resource has this model type and these values."""
    model = getattr(resource, "model", None)
    names = {resource.id.entity_type} if model is None else {model._type().get_full_name()}
    if resource_type not in names:
        return False
    return all(getattr(resource, name, None) == value for name, value in filter_args.items())
