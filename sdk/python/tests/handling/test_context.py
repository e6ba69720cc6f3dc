"""The context of a handler: changes, states, facts, logging."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest

import inmanta
from inmanta import const
from inmanta.agent.handler import HandlerContext, InvalidOperation, PythonLogger
from inmanta.resources import Id, PurgeableResource, resource

State = const.HandlerResourceState


@pytest.fixture
def ctx() -> HandlerContext:
    @resource("t::R", agent="a", id_attribute="name")
    class Thing(PurgeableResource):
        fields = ("name",)

    return HandlerContext(Thing(Id.parse_id("t::R[ag,name=x],v=3")))


def changes(ctx: HandlerContext) -> dict[str, Any]:
    return {name: (change.current, change.desired) for name, change in ctx.changes.items()}


def test_the_kind_of_change_is_set_once(ctx: HandlerContext) -> None:
    assert not ctx.changed
    ctx.set_created()
    for again in (ctx.set_created, ctx.set_updated, ctx.set_purged):
        with pytest.raises(InvalidOperation, match="already set"):
            again()
    assert ctx.changed and ctx.change is ctx._change is const.Change.created


def test_changes_of_fields(ctx: HandlerContext) -> None:
    ctx.add_change("a", 1)
    ctx.add_change("a", 4, 2)
    ctx.add_changes(b=1, c=None)
    ctx.update_changes({"d": {"current": 1, "desired": 2}})
    ctx.update_changes({"e": (1, 2)})
    ctx.update_changes({"f": ctx.changes["e"]})
    ctx.update_changes({})
    ctx.fields_updated("name")
    assert changes(ctx) == {
        "a": (2, 4),
        "b": (None, 1),
        "c": (None, None),
        "d": (1, 2),
        "e": (1, 2),
        "f": (1, 2),
        "name": (None, None),
    }
    assert not ctx.changed, "differences are not yet a change"
    for bad in ({"p": (1, 2, 3)}, {"p": 3}, {"p": [1, 2]}):
        with pytest.raises(InvalidOperation, match="Reported changes for p not"):
            ctx.update_changes(bad)


def test_states(ctx: HandlerContext) -> None:
    with pytest.raises(InvalidOperation, match="before changes are set"):
        ctx.set_resource_state(State.non_compliant)
    ctx.add_change("a", 1)
    for state in State:
        ctx.set_resource_state(state)
        assert ctx.resource_state is state
        expected = "skipped" if state is State.skipped_for_dependency else state.value
        assert ctx.status is not None and ctx.status.value == expected


def test_the_old_way_to_set_a_state(ctx: HandlerContext, caplog: pytest.LogCaptureFixture) -> None:
    for state in const.ResourceState:
        caplog.clear()
        ctx.set_status(state)
        assert ctx.status is state
        known = state.value in [item.value for item in State]
        assert ctx.resource_state is (State[state.value] if known else State.failed)
        assert bool(caplog.records) != known


def test_scratch_values_and_facts(ctx: HandlerContext) -> None:
    ctx.set("a", 1)
    assert (ctx.get("a"), ctx.contains("a"), ctx.contains("b")) == (1, True, False)
    with pytest.raises(KeyError):
        ctx.get("b")
    ctx.set_fact("name", "value")
    ctx.set_fact("name2", "value", expires=False)
    assert [(fact["id"], fact["value"], fact["expires"]) for fact in ctx.facts] == [
        ("name", "value", True),
        ("name2", "value", False),
    ]
    assert ctx.facts[0]["resource_id"] == "t::R[ag,name=x]"


def test_log_lines_are_formatted_with_values_by_name(ctx: HandlerContext) -> None:
    ctx.debug("hello %(a)s %(b)r", a=1, b="x")
    ctx.info("ids %(l)s", l=[uuid.UUID(int=2)])
    ctx.warning("plain")
    ctx.error("error")
    ctx.critical("critical")
    assert [line.msg for line in ctx.logs] == [
        "hello 1 'x'",
        "ids ['00000000-0000-0000-0000-000000000002']",
        "plain",
        "error",
        "critical",
    ]
    assert [line.log_level.name for line in ctx.logs] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    assert ctx.logs[0].kwargs == {"a": 1, "b": "x"}
    assert ctx.logs[1].kwargs == {"l": ["00000000-0000-0000-0000-000000000002"]}


def test_exceptions_have_their_traceback(ctx: HandlerContext) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        ctx.exception("oops %(a)s", a=1)
        ctx.info("also", exc_info=True)
    for line in ctx.logs:
        assert line.kwargs["traceback"].endswith("ValueError: broken\n")


def test_bad_formats_raise(ctx: HandlerContext) -> None:
    with pytest.raises(Exception, match="Args not supported"):
        ctx.debug("x %s", 1)
    with pytest.raises(KeyError):
        ctx.debug("x %(q)s", a=1)
    with pytest.raises(ValueError):
        ctx.debug("100%")
    assert ctx.logs == []


def test_what_json_has_no_word_for_becomes_text_or_an_error_in_tests(ctx: HandlerContext) -> None:
    ctx.debug("value %(x)s", x={1, 2})
    assert ctx.logs[0].msg == "value {1, 2}" and ctx.logs[0].kwargs == {"x": "{1, 2}"}
    ctx.add_change("s", {1, 2}, object)
    assert changes(ctx) == {"s": ("<class 'object'>", "{1, 2}")}
    inmanta.RUNNING_TESTS = True
    with pytest.raises(Exception, match="Failed to serialize argument for log message x="):
        ctx.debug("value %(x)s", x={1, 2})
    with pytest.raises(Exception, match="Failed to serialize attribute"):
        ctx.add_change("s", {1, 2})


def test_a_logger_of_python_has_the_same_interface(caplog: pytest.LogCaptureFixture) -> None:
    logger = PythonLogger(logging.getLogger("some"))
    with caplog.at_level(logging.DEBUG):
        logger.info("a %(b)s", b=1)
        logger.warning("100%")
    assert [record.getMessage() for record in caplog.records] == ["a 1", "100%"]
    with pytest.raises(Exception, match="Args not supported"):
        logger.info("a %s", 1)
