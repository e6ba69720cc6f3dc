"""The Python code of the documentation on integrations. Its text is not part of the repository."""

from __future__ import annotations

import hashlib
import os
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inmanta import ast
from inmanta.agent.cache import AgentCache
from inmanta.agent.handler import CRUDHandler, HandlerContext
from inmanta.resources import Id, Resource, resource

ROOT = Path(__file__).resolve().parents[4]
SEEDS = Path(os.environ.get("ORRERY_SEEDS", ROOT.parent / "shared" / "seeds"))
SEED = next(iter(sorted(SEEDS.glob("002*"))), None)

pytestmark = pytest.mark.skipif(
    SEED is None, reason=f"the text is not in {SEEDS}; ORRERY_SEEDS can say in which directory it is"
)


def blocks() -> list[str]:
    assert SEED is not None
    pattern = re.compile(r"\.\. code-block:: python\n((?:    :.*\n)?)\n((?:(?:    .*)?\n)+)")
    return [textwrap.dedent(match[2]) for match in pattern.finditer(SEED.read_text() + "\n")]


def run(block: str, **names: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "inmanta_plugins.seed", **names}
    exec(compile(block, "seed", "exec"), namespace)
    return namespace


def test_there_are_five_blocks() -> None:
    assert len(blocks()) == 5


def test_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads: list[tuple[str, str]] = []
    exporter: Any = SimpleNamespace(
        upload_file=lambda identifier, content: uploads.append((identifier, content))
    )
    md5sum = lambda text: hashlib.md5(text.encode()).hexdigest()  # noqa: E731
    file_class: Any = run(blocks()[0], md5sum=md5sum)["File"]
    assert resource.get_class("std::File") == (file_class, {"agent": "host.name", "name": "path"})
    resource.validate()
    assert file_class.fields[-7:] == ("path", "owner", "hash", "group", "permissions", "purged", "reload")
    instance: Any = SimpleNamespace(content="text", path="/x", host=SimpleNamespace(name="web"))
    digest = md5sum("text")
    assert file_class.map_field(exporter, "std::File", "hash", instance) == digest
    assert uploads == [(digest, "text")]
    # `x` is not defined there, so the field has an error.
    with pytest.raises(ast.ExternalException, match="'permissions' for export on 'std::File'") as caught:
        file_class.map_field(exporter, "std::File", "permissions", instance)
    assert isinstance(caught.value.__cause__, NameError)
    assert (
        str(file_class.object_to_id(instance, "std::File", "path", "host.name")) == "std::File[web,path=/x]"
    )


def test_logging() -> None:
    class Some(Resource):
        fields = ("name",)

    create = run(blocks()[1], HandlerContext=HandlerContext, ELB=Some, sg_id="sg-1")["create_resource"]
    ctx = HandlerContext(Some(Id("t::R", "a", "name", "x")))
    create(None, ctx, None)
    assert ctx.logs[0].msg == "Creating loadbalancer with security group sg-1"
    assert ctx.logs[0].kwargs == {"sg": "sg-1"}


class Connection:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("number", [2, 3, 4])
def test_caching(number: int) -> None:
    from inmanta.agent.handler import cache

    now = [0.0]
    connection = Connection()
    method = run(blocks()[number], cache=cache, connection=connection)["get_client_connection"]
    handler_class: Any = type("Handler", (CRUDHandler,), {"connect": method})
    kept = AgentCache(clock=lambda: now[0])
    handler = handler_class(None)
    handler.set_cache(kept)
    arguments = ("device",) if number == 2 else ("device", 1)
    assert handler.connect("ctx", *arguments) is handler.connect("other", *arguments) is connection
    assert len(kept) == 1
    if number == 2:
        kept.close_versions_before(2)
        assert len(kept) == 1
        now[0] = 119
        kept.clean_stale_entries()
        assert len(kept) == 1
        now[0] = 120
        kept.clean_stale_entries()
        assert len(kept) == 0
        return
    handler.connect("ctx", "device", 2)
    assert len(kept) == 2
    kept.close_versions_before(2)
    assert len(kept) == 1
    assert connection.closed == (1 if number == 4 else 0)
    now[0] = 120
    kept.clean_stale_entries()
    assert len(kept) == 0
    assert connection.closed == (2 if number == 4 else 0)
