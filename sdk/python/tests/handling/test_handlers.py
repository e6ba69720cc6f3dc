"""Handlers: order of calls, outcomes of exceptions, and lookup for a resource."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest

from inmanta import const
from inmanta.agent import handler as handlers
from inmanta.agent.executor import AgentInstance
from inmanta.agent.handler import (
    Commander,
    CRUDHandler,
    CRUDHandlerGeneric,
    DiscoveryHandler,
    HandlerContext,
    HandlerNotAvailableException,
    ResourceHandler,
    ResourcePurged,
    SkipResource,
    SkipResourceForDependencies,
    provider,
)
from inmanta.config import Config
from inmanta.resources import DiscoveryResource, HostNotFoundException, PurgeableResource, Resource, resource
from orrery_sdk import server

State = const.HandlerResourceState


class Agent(AgentInstance):
    environment = uuid.UUID(int=5)
    name = "ag"
    uri = "local:"
    eventloop = None

    def is_stopped(self) -> bool:
        return False


AGENT = Agent()


@pytest.fixture(autouse=True)
def thing() -> type[Resource]:
    @resource("t::R", agent="a", id_attribute="name")
    class Thing(PurgeableResource):
        fields = ("name", "value", "free")

    return Thing


def desired(**fields: Any) -> Any:
    base = {"id": "t::R[ag,name=x],v=3", "name": "x", "value": 1, "free": None, "purged": False}
    return Resource.deserialize(
        {**base, "purge_on_delete": False, "send_event": True, "requires": [], **fields}
    )


class Recorder(CRUDHandler[Any]):
    """A scripted handler that records its calls."""

    def __init__(self, exists: bool = True, value: int = 1, raises: BaseException | None = None) -> None:
        super().__init__(AGENT)
        self.exists, self.value, self.raises = exists, value, raises
        self.asked: list[str] = []
        self.post_raises: Exception | None = None

    def pre(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("pre")

    def post(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("post")
        if self.post_raises:
            raise self.post_raises

    def read_resource(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("read")
        if self.raises:
            raise self.raises
        if not self.exists:
            raise ResourcePurged()
        resource.value = self.value
        resource.free = "whatever"

    def create_resource(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("create")
        ctx.set_created()

    def update_resource(self, ctx: HandlerContext, changes: dict[str, dict[str, Any]], resource: Any) -> None:
        self.asked.append(f"update {sorted(changes)}")
        changes.clear()
        ctx.set_updated()

    def delete_resource(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("delete")
        ctx.set_purged()


VALUE = {"value": {"current": 2, "desired": 1}}
PURGE = {"purged": {"current": False, "desired": True}}
CREATE = {"purged": {"current": True, "desired": False}}

# purged, exists, differs, read fails: calls, reports, state, kind of change
TRUTH: dict[tuple[bool, bool, bool, bool], tuple[list[str], dict[str, Any], State, str]] = {
    (False, True, False, False): ([], {}, State.deployed, "nochange"),
    (False, True, True, False): (["update ['value']"], VALUE, State.deployed, "updated"),
    (False, False, False, False): (["create"], CREATE, State.deployed, "created"),
    (False, False, True, False): (["create"], CREATE, State.deployed, "created"),
    (True, True, False, False): (["delete"], PURGE, State.deployed, "purged"),
    (True, True, True, False): (["delete"], {**PURGE, **VALUE}, State.deployed, "purged"),
    (True, False, False, False): ([], {}, State.deployed, "nochange"),
    (True, False, True, False): ([], {}, State.deployed, "nochange"),
    **{
        (*case, True): ([], {}, State.failed, "nochange")
        for case in itertools.product((False, True), repeat=3)
    },
}


@pytest.mark.parametrize(
    ("purged", "exists", "differs", "fails"), list(itertools.product((False, True), repeat=4))
)
@pytest.mark.parametrize("mode", ["real", "dry", "report", "report dry"])
def test_crud(purged: bool, exists: bool, differs: bool, fails: bool, mode: str) -> None:
    calls, changes, state, change = TRUTH[purged, exists, differs, fails]
    handler = Recorder(exists, 2 if differs else 1, ValueError("broken") if fails else None)
    wanted = desired(purged=purged, report_only="report" in mode)
    ctx = HandlerContext(wanted, dry_run="dry" in mode)
    handler.execute(ctx, wanted, dry_run="dry" in mode)
    if mode != "real":
        calls, change = [], "nochange"
    if not fails and mode == "dry":
        state = State.dry
    if not fails and "report" in mode and changes:
        state = State.non_compliant
    assert handler.asked == ["pre", "read", *calls, "post"]
    assert {name: item.dict() for name, item in ctx.changes.items()} == changes
    assert (ctx.resource_state, ctx.change.value) == (state, change)
    assert wanted.value == 1, "reading works on a copy"


def test_steps_are_announced() -> None:
    wanted = desired()
    ctx = HandlerContext(wanted)
    Recorder(value=2).execute(ctx, wanted)
    assert [line.msg for line in ctx.logs] == ["Calling read_resource", "Calling update_resource"]
    assert ctx.logs[1].kwargs == {"changes": VALUE}


@pytest.mark.parametrize(
    ("error", "state", "level", "text"),
    [
        (SkipResource("later"), State.skipped, "WARNING", "was skipped: ['later']"),
        (SkipResourceForDependencies("a"), State.skipped_for_dependency, "WARNING", "was skipped: ['a']"),
        (ValueError("bo%om"), State.failed, "ERROR", "(exception: ValueError('bo%om'))"),
        (HostNotFoundException("h", "root", "no"), State.unavailable, "ERROR", "Failed to access host h"),
    ],
)
def test_what_follows_from_exceptions(error: Exception, state: State, level: str, text: str) -> None:
    wanted = desired()
    ctx = HandlerContext(wanted)
    handler = Recorder(raises=error)
    handler.execute(ctx, wanted)
    assert ctx.resource_state is state and handler.asked[-1] == "post"
    assert ctx.logs[-1].log_level.name == level and text in ctx.logs[-1].msg
    assert ("traceback" in ctx.logs[-1].kwargs) == (level == "ERROR")


def test_exceptions_of_post_change_nothing() -> None:
    wanted = desired()
    ctx = HandlerContext(wanted)
    handler = Recorder()
    handler.post_raises = ValueError("post failed")
    handler.execute(ctx, wanted)
    assert ctx.resource_state is State.deployed
    assert "An error occurred after deployment of t::R[ag,name=x]" in ctx.logs[-1].msg


def test_system_exit_passes_after_post() -> None:
    wanted = desired()
    handler = Recorder(raises=SystemExit(3))
    with pytest.raises(SystemExit):
        handler.execute(HandlerContext(wanted), wanted)
    assert handler.asked == ["pre", "read", "post"]


def test_none_is_not_managed() -> None:
    wanted = desired(value=None)
    ctx = HandlerContext(wanted)
    Recorder(value=2).execute(ctx, wanted)
    assert ctx.changes == {}


def test_resource_handlers_compare_and_change() -> None:
    class Comparing(ResourceHandler[Any]):
        done: Any = None

        def check_resource(self, ctx: HandlerContext, resource: Any) -> Any:
            return resource.clone(value=7)

        def do_changes(self, ctx: HandlerContext, resource: Any, changes: Any) -> None:
            self.done = changes

    wanted = desired()
    ctx, handler = HandlerContext(wanted), Comparing(AGENT)
    handler.execute(ctx, wanted)
    assert handler.done == {"value": {"current": 7, "desired": 1}} and ctx.resource_state is State.deployed
    ctx, handler = HandlerContext(wanted), Comparing(AGENT)
    handler.execute(ctx, wanted, dry_run=True)
    assert handler.done is None and ctx.resource_state is State.dry and list(ctx.changes) == ["value"]
    silent = HandlerContext(wanted)
    ResourceHandler(AGENT).execute(silent, wanted)
    assert silent.resource_state is State.failed


REQUIRES = [
    ("deployed", State.deployed, None),
    ("failed", State.skipped_for_dependency, "INFO"),
    ("skipped", State.skipped_for_dependency, "INFO"),
    ("cancelled", State.skipped_for_dependency, "INFO"),
    ("available", State.skipped_for_dependency, "INFO"),
    ("deploying", State.skipped_for_dependency, "INFO"),
    ("undefined", State.skipped_for_dependency, "WARNING"),
    ("skipped_for_undefined", State.skipped_for_dependency, "WARNING"),
    ("dry", State.skipped_for_dependency, "WARNING"),
]


@pytest.mark.parametrize(("required", "state", "level"), REQUIRES)
def test_requirements_come_first(required: str, state: State, level: str | None) -> None:
    wanted = desired()
    ctx = HandlerContext(wanted)
    requires: Any = {
        "t::R[ag,name=y]": const.ResourceState[required],
        "t::R[ag,name=z]": const.ResourceState.deployed,
    }
    Recorder().deploy(ctx, wanted, requires)
    assert ctx.resource_state is state
    if level is not None:
        assert ctx.logs[-1].log_level.name == level and "t::R[ag,name=y]" in ctx.logs[-1].msg
        assert "name=z" not in ctx.logs[-1].msg
        assert ctx.status is const.ResourceState.skipped
    only_reported = desired(report_only=True)
    ctx = HandlerContext(only_reported)
    Recorder().deploy(ctx, only_reported, requires)
    assert ctx.resource_state is State.deployed


class Reloading(Recorder):
    def can_reload(self) -> bool:
        return True

    def do_reload(self, ctx: HandlerContext, resource: Any) -> None:
        self.asked.append("reload")


@pytest.mark.parametrize(
    ("value", "changed", "switch", "reloads"),
    [
        (1, ["a"], None, True),
        (1, [], None, False),
        (2, ["a"], None, False),
        (2, ["a"], "true", True),
        (2, [], "true", False),
    ],
)
def test_reload(value: int, changed: list[str], switch: str | None, reloads: bool) -> None:
    if switch is not None:
        Config.set("handlers", "reload_after_change", switch)
    wanted = desired()
    ctx = HandlerContext(wanted)
    ctx._changed_requires = changed
    handler = Reloading(value=value)
    handler.deploy(ctx, wanted, {})
    assert ("reload" in handler.asked) == reloads
    failing = Reloading(raises=ValueError("x"))
    failing.deploy(ctx, wanted, {})
    assert "reload" not in failing.asked


def test_whether_to_reload_is_asked_if_nobody_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answer(method: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        asked.append((method, arguments))
        return 200, {"data": True}

    monkeypatch.setattr(server, "_carrier", answer)
    handler = Reloading()
    handler.deploy(HandlerContext(desired()), desired(), {})
    assert handler.asked[-1] == "reload"
    assert asked == [
        ("resource_did_dependency_change", {"tid": str(AGENT.environment), "rvid": "t::R[ag,name=x],v=3"})
    ]


def test_facts() -> None:
    class Facts(Recorder):
        def facts(self, ctx: HandlerContext, resource: Any) -> dict[str, str]:
            if self.raises:
                raise self.raises
            return {"a": "b"}

    assert Facts().check_facts(HandlerContext(desired()), desired()) == {"a": "b"}
    failing = Facts(raises=ValueError("x"))
    with pytest.raises(ValueError):
        failing.check_facts(HandlerContext(desired()), desired())
    assert failing.asked == ["pre", "post"]


def test_the_last_handler_wins_unless_they_say_which_are_available() -> None:
    @provider("t::R", name="one")
    class One(CRUDHandler[Any]):
        pass

    @provider("t::R")
    class Two(CRUDHandlerGeneric[Any]):
        pass

    assert type(Commander.get_provider(AGENT, desired())) is Two
    assert Commander.get_handlers() == {"t::R": Two}

    closed: list[str] = []

    @provider("t::R", name="one")
    class Choosy(CRUDHandler[Any]):
        def available(self, resource: Any) -> bool:
            return bool(resource.value == 1)

        def close(self) -> None:
            closed.append("choosy")

    @provider("t::R", name="two")
    class Other(CRUDHandler[Any]):
        def available(self, resource: Any) -> bool:
            return bool(resource.value == 2)

    # A handler without `available` is always available.
    with pytest.raises(HandlerNotAvailableException, match="more than one handler"):
        Commander.get_provider(AGENT, desired())
    Commander._providers["t::R"].pop(f"{Two.__module__}.{Two.__qualname__}")
    assert type(Commander.get_provider(AGENT, desired(value=1))) is Choosy
    closed.clear()
    assert type(Commander.get_provider(AGENT, desired(value=2))) is Other
    assert closed == ["choosy"]
    with pytest.raises(HandlerNotAvailableException, match="no handler"):
        Commander.get_provider(AGENT, desired(value=3))


def test_io_is_given_to_those_who_take_it() -> None:
    class New(CRUDHandler[Any]):
        def __init__(self, agent: Any) -> None:
            super().__init__(agent)

    class Old(CRUDHandler[Any]):
        def __init__(self, agent: Any, io: Any = None) -> None:
            super().__init__(agent, io)

    class Whatever(CRUDHandler[Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    kinds: list[tuple[Any, Any]] = [(New, None), (Old, "io"), (Whatever, "io"), (CRUDHandler, "io")]
    for cls, expected in kinds:
        provider("t::R", name="one")(cls)
        assert Commander.get_provider(AGENT, desired(), "io")._io == expected
        assert Commander.get_provider(AGENT, desired())._io is None


def test_without_a_handler() -> None:
    with pytest.raises(
        HandlerNotAvailableException, match="No resource handler registered for resource of type t::R"
    ):
        Commander.get_provider(AGENT, desired())


def test_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    @resource("t::D", agent="a", id_attribute="name")
    class Discovery(DiscoveryResource):
        fields = ("name",)

    class Discovering(DiscoveryHandler[Any, Any]):
        def discover_resources(self, ctx: HandlerContext, discovery_resource: Any) -> Any:
            if discovery_resource.name == "skip":
                raise SkipResource("not now")
            return {"t::R[ag,name=found]": {"a": 1}}

    calls: list[Any] = []

    def answer(method: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        calls.append((method, arguments))
        return 200, {}

    monkeypatch.setattr(server, "_carrier", answer)

    def run(name: str, dry_run: bool = False) -> HandlerContext:
        wanted = Resource.deserialize({"id": f"t::D[ag,name={name}],v=1", "name": name, "send_event": False})
        ctx = HandlerContext(wanted)
        Discovering(AGENT).execute(ctx, wanted, dry_run)
        return ctx

    assert run("x", dry_run=True).resource_state is State.dry and calls == []
    assert run("skip").resource_state is State.skipped and calls == []
    assert run("x").resource_state is State.deployed
    found = calls[0][1]["discovered_resources"]
    assert calls[0][0] == "discovered_resource_create_batch"
    assert [(item["discovered_resource_id"], item["values"]) for item in found] == [
        ("t::R[ag,name=found]", {"a": 1})
    ]
    assert found[0]["discovery_resource_id"] == "t::D[ag,name=x]"


def test_awaiting_something() -> None:
    async def answer() -> int:
        import asyncio

        await asyncio.sleep(0)
        return 42

    assert Recorder().run_sync(answer) == 42


def test_names_that_modules_import() -> None:
    assert handlers.HandlerABC is handlers.HandlerAPI
    for name in ("HandlerContext", "LoggerABC", "PythonLogger", "InvalidOperation", "SkipResource"):
        assert getattr(handlers, name).__module__ == "inmanta.agent.handler"


def test_private_names_of_handlers_are_theirs() -> None:
    """Handlers have helpers with such names; the base classes must not call them."""

    def own(*_: Any, **__: Any) -> None:
        raise AssertionError("a method of the handler's own was called")

    names = (
        "_execute",
        "_finish",
        "_reload",
        "_report",
        "_call",
        "_cache",
        "_run",
        "_read",
        "_should_reload",
    )
    helpers: dict[str, Any] = dict.fromkeys(names, own)
    private: Any = type("Private", (Reloading,), helpers)
    wanted = desired()
    ctx = HandlerContext(wanted)
    ctx._changed_requires = ["x"]
    handler = private()
    handler.deploy(ctx, wanted, {})
    assert handler.asked == ["pre", "read", "post", "reload"]
    public = {name for cls in DiscoveryHandler.__mro__ + CRUDHandler.__mro__ for name in vars(cls)}
    ours = {
        name for name in public if name.startswith("_") and not name.startswith(("__", "_orrery_", "_abc_"))
    }
    assert ours <= {"_diff", "_is_protocol"}, "new private names have to begin with _orrery_"
