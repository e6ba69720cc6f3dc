"""Loading of modules, and their manifest."""

from __future__ import annotations

from typing import Any

import pytest

from compiling.fake_core import FakeCore, attribute, entity


def types_of(plugin: dict[str, Any]) -> list[str]:
    return [*[param["type"] for param in plugin["params"]], plugin["returns"]]


def test_names_and_options_of_plugins(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin, deprecated
        @plugin
        def a() -> "int":
            return 1
        @plugin()
        def b(): ...
        @plugin("renamed")
        def c(): ...
        @plugin(allow_unknown=True)
        def d(): ...
        @deprecated(replaced_by="m::a")
        @plugin
        def e(): ...
        @deprecated
        @plugin
        def f(x: "int" = object()): ...
        """,
        sub="from inmanta.plugins import plugin\n@plugin\ndef g(): ...\n",
    )
    loaded = core.start()
    assert loaded["problems"] == []
    plugins = {plugin["name"]: plugin for plugin in loaded["plugins"]}
    assert list(plugins) == ["m::a", "m::b", "m::renamed", "m::d", "m::e", "m::f", "m::sub::g"]
    assert plugins["m::a"]["file"].endswith("libs/m/plugins/__init__.py") and plugins["m::a"]["line"] == 4
    assert plugins["m::b"]["returns"] == "any"
    assert plugins["m::d"]["allow_unknown"] is True
    assert [plugins[name]["deprecated"] for name in ("m::a", "m::e", "m::f")] == [None, "m::a", ""]
    assert plugins["m::f"]["params"][0]["default"] == {}


def test_python_annotations_are_types_of_the_language(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import dataclasses, numbers, typing
        from collections.abc import Mapping, Sequence
        from typing import Annotated, Any, Optional, Union
        from inmanta.plugins import plugin, ModelType
        from inmanta.references import Reference
        from inmanta.execute.proxy import DynamicProxy
        @dataclasses.dataclass(frozen=True)
        class Pt:
            x: int
        @dataclasses.dataclass(frozen=True)
        class NoEntity:
            x: int
        class SecRef(Reference[str]):
            pass
        @plugin
        def plain(a: str, b: int, c: float, d: bool, e: numbers.Number, f: object, g: Any, h: None) -> str: ...
        @plugin
        def lists(a: list, b: list[str], c: Sequence[int], d: Sequence, e: list[int | None], f: typing.List[int]): ...
        @plugin
        def dicts(a: dict, b: Mapping[str, int], c: dict[str, list[int]]): ...
        @plugin
        def unions(a: int | None, b: Optional[str], c: Union[int, str], d: int | str | None, e: list[int | str]): ...
        @plugin
        def refs(a: Reference[str], b: str | Reference[str], c: Reference, d: SecRef | str, e: dict[str, int] | None):
            ...
        @plugin
        def words(a: Annotated[int, ModelType["std::port"]], b: Annotated[DynamicProxy, ModelType["m::Pt"]], c: "T[]?"):
            ...
        @plugin
        def classes(a: Pt, b: NoEntity, c: set) -> list[Pt]: ...
        @plugin
        def datarefs(a: Pt | Reference[Pt], b: Reference[Pt] | None) -> Reference[Pt]: ...
        """,
        model="entity Pt extends std::Dataclass:\n  int x\nend\n",
    )
    loaded = core.start()
    plugins = {plugin["name"].removeprefix("m::"): types_of(plugin) for plugin in loaded["plugins"]}
    assert plugins["plain"] == ["string", "int", "float", "bool", "number", "any", "any", "null", "string"]
    assert plugins["lists"] == ["list", "string[]", "int[]", "list", "int?[]", "int[]", "any"]
    assert plugins["dicts"] == ["dict[string, any]", "dict[string, int]", "dict[string, int[]]", "any"]
    assert plugins["unions"] == [
        "int?", "string?", "Union[int,string]", "(Union[int,string])?", "(Union[int,string])[]", "any",
    ]  # fmt: skip
    assert plugins["refs"] == [
        "Reference[string]", "Union[string,Reference[string]]", "Reference[any]",
        "Union[Reference[string],string]", "(dict[string, int])?", "any",
    ]  # fmt: skip
    assert plugins["words"] == ["std::port", "m::Pt", "T[]?", "any"]
    assert plugins["classes"] == ["m::Pt", "any", "any", "m::Pt[]"]
    assert plugins["datarefs"] == ["m::Pt", "m::Pt?", "m::Pt"]
    assert [warning.split(" was ")[0] for warning in loaded["warnings"]] == [
        "InmantaWarning: Python type <class 'inmanta_plugins.m.NoEntity'>",
        "InmantaWarning: Python type <class 'set'>",
    ]


@pytest.mark.skipif("sys.version_info < (3, 12)")
def test_aliases(core: FakeCore) -> None:
    core.module("m", "from inmanta.plugins import plugin\ntype A = int | str\n@plugin\ndef f(a: A): ...\n")
    assert types_of(core.start()["plugins"][0]) == ["Union[int,string]", "any"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def f(x): ...", "All arguments of plugin 'm::f' should be annotated: 'x' has no annotation"),
        ("def f(*x): ...", "All arguments of plugin 'm::f' should be annotated: 'x' has no annotation"),
        (
            "def f(x: dict[int, str]): ...",
            "invalid type dict[int, str], the keys of any dict should be 'str', got <class 'int'> instead",
        ),
        ("def f(x: set[str]): ...", "invalid type set[str], set is not supported on the plugin boundary"),
    ],
)
def test_plugins_that_the_language_cannot_call(core: FakeCore, code: str, problem: str) -> None:
    core.module(
        "m",
        f"from inmanta.plugins import plugin\n@plugin\n{code}\n@plugin\ndef good() -> int:\n    return 3\n",
    )
    loaded = core.start()
    assert [plugin["problem"] for plugin in loaded["plugins"]] == [problem, None]
    core.types()
    assert core.call(1)["v"] == 3


def test_modules_that_do_not_load(core: FakeCore) -> None:
    core.module("bad", "import nonexistent_zz\n")
    core.module("m", "print('m is loaded')\n", sub="def f():\n    raise ValueError('no')\nf()\n", zz__y="")
    core.module("ends", "import sys\nsys.exit(4)\n")
    core.module("syntax", "x = = 3\n")
    core.module("good", "from inmanta.plugins import plugin\n@plugin\ndef f(): ...\n")
    loaded = core.start()
    where = str(core.directory / "libs")
    assert [(p["module"], p["problems"]) for p in loaded["problems"]] == [
        (
            "bad",
            [
                "ModuleNotFoundError while loading plugin module inmanta_plugins.bad: "
                f"No module named 'nonexistent_zz' ({where}/bad/plugins/__init__.py:1)"
            ],
        ),
        (
            "m",
            [
                f"ValueError while loading plugin module inmanta_plugins.m.sub: no ({where}/m/plugins/sub.py:2)"
            ],
        ),
        (
            "ends",
            [
                f"SystemExit while loading plugin module inmanta_plugins.ends: 4 ({where}/ends/plugins/__init__.py:2)"
            ],
        ),
        ("syntax", loaded["problems"][3]["problems"]),
    ]
    assert loaded["problems"][3]["problems"][0].startswith("SyntaxError while loading plugin module")
    assert core.printed == "m is loaded\n"
    assert [plugin["name"] for plugin in loaded["plugins"]] == ["good::f"]


def test_resources_and_their_getters(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.resources import ManagedResource, PurgeableResource, Resource, resource
        @resource("m::Plain", agent="host.name", id_attribute="path")
        class Plain(PurgeableResource):
            fields = ("path", "mode")
        @resource("m::Full", "name", "agent")
        class Full(ManagedResource):
            fields = ("name", "hash", "mapped")
            map = {"mapped": lambda exporter, obj: 1}
            @staticmethod
            def get_hash(exporter, obj):
                return "h"
            @staticmethod
            def get_send_event(exporter, obj):
                return True
            @staticmethod
            def get_name(exporter, obj):
                return obj.name
        @resource("m::Bad", agent="a", id_attribute="name")
        class Bad(Resource):
            fields = ("name", "version")
        """,
    )
    plain, full, bad = core.start()["resources"]
    assert plain == {
        "entity": "m::Plain", "module": "m", "agent": "host.name", "id": "path", "problem": None, "getters": [],
        "fields": ["send_event", "receive_events", "references", "mutators", "report_only", "purged",
                   "purge_on_delete", "path", "mode"],
        "flags": ["send_event", "receive_events", "report_only"],
    }  # fmt: skip
    assert full["getters"] == ["send_event", "name", "hash", "mapped"]
    assert full["flags"] == ["receive_events", "report_only", "managed"]
    assert (
        bad["problem"] == "Resource version is a reserved keyword and not a valid field name, reported in Bad"
    )


def test_dataclasses_are_paired_by_name(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import dataclasses
        from inmanta.references import Reference
        @dataclasses.dataclass(frozen=True)
        class Pt:
            x: int
            label: str | None
            tags: list[str]
            secret: str | Reference[str]
            more: dict[str, object]
            untyped: list
        @dataclasses.dataclass
        class Loose:
            x: int
        class Nothing:
            pass
        @dataclasses.dataclass(frozen=True)
        class NoEntity:
            x: int
        """,
        model="""
        entity Pt extends std::Dataclass:
        end
        entity Loose extends std::Dataclass:
        end
        entity Nothing extends std::Dataclass:
        end
        """,
    )
    found = {entry["entity"]: entry for entry in core.start()["dataclasses"]}
    assert sorted(found) == ["m::Loose", "m::Nothing", "m::Pt"]
    assert found["m::Pt"]["fields"] == [
        ["x", "int"], ["label", "string?"], ["tags", "string[]"], ["secret", "Union[string,Reference[string]]"],
        ["more", "dict[string, any]"], ["untyped", None],
    ]  # fmt: skip
    assert found["m::Pt"]["problem"] is None and found["m::Pt"]["line"] == 4
    assert found["m::Loose"]["problem"] == {"kind": "not_frozen"}
    assert found["m::Nothing"]["problem"] == {"kind": "not_dataclass"}


DATACLASS = entity("std::Dataclass")
POINT = entity(
    "m::Pt", attribute("x", "int"), attribute("label", "string?"), attribute("tags", "string[]"), parents=(1,)
)
POINT_CODE = """
import dataclasses
from typing import Annotated
from inmanta.plugins import plugin, ModelType
from inmanta.execute.proxy import DynamicProxy
from inmanta.references import Reference, reference
@dataclasses.dataclass(frozen=True)
class Pt:
    x: int
    label: str | None
    tags: list[str]
@reference("m::PtRef")
class PtRef(Reference[Pt]):
    def __init__(self):
        super().__init__()
@plugin
def make() -> Pt:
    return Pt(1, None, ["t"])
@plugin
def show(p: Pt) -> str:
    return repr(p)
@plugin
def by_name(p: "Pt") -> str:
    return repr(p)
@plugin
def several(p: list[Pt], q: "Pt[]") -> str:
    return repr([p, q])
@plugin
def proxy(p: Annotated[DynamicProxy, ModelType["m::Pt"]], q: "any") -> str:
    return type(p).__name__ + type(q).__name__
@plugin
def ref() -> Reference[Pt]:
    return PtRef()
@plugin
def either(p: Reference[Pt] | Pt) -> str:
    return type(p).__name__
@plugin
def shapes(p: Pt | list[Pt] | dict[str, Pt] | None) -> str:
    return type(p).__name__
"""
POINT_MODEL = "entity Pt extends std::Dataclass:\nend\n"


def test_dataclasses_are_converted(core: FakeCore) -> None:
    core.module("m", POINT_CODE, POINT_MODEL)
    core.start()
    core.types(DATACLASS, POINT)
    word, name, fields, handle = core.call(0)["v"]["$"]
    assert (word, name, fields) == ("c", "m::Pt", {"x": 1, "label": None, "tags": ["t"]})
    told = [[1, 2, [[], [], 1, None, ["t"]]], [2, 2, [[], [], 4, "l", []]]]
    made = {"$": ["c", 1, handle]}
    written = {"$": ["i", 2]}
    assert core.call(1, made, x=told)["v"] == "Pt(x=1, label=None, tags=['t'])"
    assert core.call(1, written)["v"] == "Pt(x=4, label='l', tags=[])"
    assert core.call(2, written)["v"] == "Pt(x=4, label='l', tags=[])"
    both = "[[Pt(x=1, label=None, tags=['t'])], [Pt(x=4, label='l', tags=[])]]"
    assert core.call(3, [made], [written])["v"] == both
    assert core.call(4, made, made)["v"] == "DynamicProxyDynamicProxy"
    shapes = [core.call(7, value)["v"] for value in (made, [made], {"a": made}, None)]
    assert shapes == ["Pt", "list", "dict", "NoneType"]


def test_dataclasses_with_values_that_are_missing(core: FakeCore) -> None:
    core.module("m", POINT_CODE, POINT_MODEL)
    core.start()
    core.types(DATACLASS, POINT)
    assert core.call(1, {"$": ["i", 3]}, x=[[3, 2, [[], [], {"$": ["p", 5]}, None, []]]]) == {
        "k": "unset",
        "cells": [5],
    }
    reply = core.call(1, {"$": ["i", 4]}, x=[[4, 2, [[], [], {"$": ["u", 5]}, None, []]]])
    assert (reply["kind"], reply["message"]) == (
        "runtime",
        "Encountered unknown in field 'x'. Unknowns are not currently supported in dataclass instances in the Python "
        "domain.",
    )


def test_a_reference_to_a_dataclass_is_an_instance_of_references(core: FakeCore) -> None:
    core.module("m", POINT_CODE, POINT_MODEL)
    core.start()
    core.types(DATACLASS, POINT)
    word, name, fields, handle = core.call(5)["v"]["$"]
    assert (word, name) == ("c", "m::Pt")
    assert {key: value["$"][2]["ref"] for key, value in fields.items()} == {
        "x": "int", "label": "string", "tags": "string[]",
    }  # fmt: skip
    told = [[1, 2, [[], [], fields["x"], fields["label"], fields["tags"]]]]
    assert core.call(6, {"$": ["c", 1, handle]}, x=told)["v"] == "PtRef"
    # A plugin without declared support for references does not get one.
    reply = core.call(1, {"$": ["c", 1, handle]})
    assert (
        reply["kind"] == "runtime"
        and "References are not allowed for values of type `m::Pt`" in reply["message"]
    )
    reply = core.call(1, {"$": ["i", 2]}, x=[[2, 2, [[], [], fields["x"], None, []]]])
    assert "References are not allowed for values of type `int`" in reply["message"]


def test_a_ping_is_answered_in_between(core: FakeCore) -> None:
    core.module("m", "")
    core.start()
    core.send({"k": "ping", "n": 7})
    assert core.receive() == {"k": "pong", "n": 7}


def test_handlers_that_use_the_machine_are_known(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import functools
        from inmanta.agent.handler import CRUDHandler, HandlerAPI, cache, provider
        from inmanta.agent.io import get_io
        from inmanta.resources import Resource, resource

        def declare(name):
            @resource(f"m::{name}", agent="agent", id_attribute="name")
            class Declared(Resource):
                fields = ("name",)
            return provider(f"m::{name}", name=name)

        class Files(CRUDHandler):
            def there(self, path):
                return self._io.file_exists(path)

        @declare("Direct")
        class Direct(CRUDHandler):
            def read_resource(self, ctx, resource):
                self._io.read(resource.name)

        @declare("Inherited")
        class Inherited(Files):
            pass

        @declare("Nested")
        class Nested(CRUDHandler):
            def read_resource(self, ctx, resource):
                return [lambda: self._io.read(name) for name in ()]

        @declare("Decorated")
        class Decorated(CRUDHandler):
            @cache(timeout=10)
            def read_file(self):
                return self._io.read("x")

        @declare("Given")
        class Given(CRUDHandler):
            @staticmethod
            def open(agent):
                return get_io(None, agent.uri)

        @declare("Property")
        class Property(CRUDHandler):
            @property
            def files(self):
                return self._io

        @declare("Api")
        class Api(CRUDHandler):
            def read_resource(self, ctx, resource):
                self.io_free = print
        """,
    )
    loaded = core.start()
    assert loaded["problems"] == []
    names = ["Decorated", "Direct", "Given", "Inherited", "Nested", "Property"]
    assert loaded["machine_handlers"] == [f"m::{name}" for name in names]
    assert "m::Api" in loaded["handlers"]
