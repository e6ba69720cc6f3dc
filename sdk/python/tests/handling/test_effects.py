"""Unrepeatable effects: requests to the core, and reports about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handler_host import HandlerHost, Outcome, resource, write_module

from inmanta.agent.handler import CRUDHandler, HandlerContext, InvalidOperation
from inmanta.resources import Id, PurgeableResource

CODE = """
from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


@resource("once::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "do")


@provider("once::Thing", name="thing")
class Handler(CRUDHandler):
    unrepeatable = ("create_resource",)

    def read_resource(self, ctx, resource):
        if resource.do == "denies" and ctx.effect_unknown:
            ctx.effect_did_not_happen()
        if resource.do != "finds":
            raise ResourcePurged()

    def create_resource(self, ctx, resource):
        ctx.info("it happens")
        if resource.do == "fails":
            raise RuntimeError("nobody knows")
        if resource.do == "refused":
            ctx.effect_did_not_happen()
            raise RuntimeError("it was refused")
        ctx.set_created()
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HandlerHost]:
    with HandlerHost(write_module(tmp_path, "once", CODE)) as started:
        yield started


def run(host: HandlerHost, do: str, code: int = 200, **members: Any) -> tuple[Outcome, dict[str, Any]]:
    """Runs an operation with one call of the core, answered with a code; also returns the call's arguments."""
    number = host.start(resource("once::Thing[a,name=x],v=1", name="x", do=do), **members)
    call = host.wait_for("server")
    assert call["method"] == "begin_effect" and call["c"] == number
    host.send({"k": "reply", "q": call["q"], "code": code, "result": {"message": "a reason"}})
    return host.wait(number), call["args"]


def test_an_effect_is_recorded_before_it_happens(host: HandlerHost) -> None:
    done, asked = run(host, "create")
    assert (done.state, asked) == ("deployed", {"did_not_happen": False})
    assert done.report["effect_undone"] is False


@pytest.mark.parametrize("code", [409, 410, 503])
def test_what_is_not_recorded_does_not_happen(host: HandlerHost, code: int) -> None:
    done, _ = run(host, "create", code, unknown_effect=True)
    assert done.state == "failed" and done.report["effect_undone"] is True
    assert "It was not begun: a reason" in done.texts("error")
    assert "it happens" not in done.texts()


def test_a_failure_says_whether_it_happened(host: HandlerHost) -> None:
    done, _ = run(host, "fails")
    assert done.state == "failed" and done.report["effect_undone"] is False
    done, _ = run(host, "refused")
    assert done.state == "failed" and done.report["effect_undone"] is True


def test_a_handler_tells_what_it_reads_back(host: HandlerHost) -> None:
    done, asked = run(host, "denies", unknown_effect=True)
    assert (done.state, asked) == ("deployed", {"did_not_happen": True})
    found = host.run(resource("once::Thing[a,name=x],v=1", name="x", do="finds"), unknown_effect=True)
    assert found.state == "deployed" and "effect_undone" not in found.report


def test_a_dry_run_records_nothing(host: HandlerHost) -> None:
    done = host.run(resource("once::Thing[a,name=x],v=1", name="x", do="create"), op="dryrun")
    assert done.state == "dry"
    thing = PurgeableResource(Id("once::Thing", "a", "name", "x"))
    with pytest.raises(InvalidOperation, match="changes nothing"):
        HandlerContext(thing, dry_run=True).begin_effect()
    ctx = HandlerContext(thing)
    ctx.begin_effect()
    assert not ctx.effect_unknown


def test_a_method_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="unrepeatable names 'create'"):
        type("Wrong", (CRUDHandler,), {"unrepeatable": ("create",)})
