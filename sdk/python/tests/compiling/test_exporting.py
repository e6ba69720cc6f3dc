"""The export: serializers, dependency managers, exporters and finalizers."""

from __future__ import annotations

import hashlib
import json

from compiling.fake_core import FakeCore, attribute, entity, relation

RES = entity(
    "m::Res",
    attribute("name", "string"),
    attribute("agent", "string"),
    attribute("content", "string"),
    attribute("tags", "list"),
    relation("other", "m::Res", 0, 1),
)
CODE = """
from inmanta.ast import UnknownException
from inmanta.compiler import finalizer
from inmanta.execute.util import Unknown
from inmanta.export import dependency_manager, export, unknown_parameters
from inmanta.plugins import plugin, PluginException
from inmanta.references import Reference, reference
from inmanta.resources import IgnoreResourceException, Resource, resource

@reference("m::Secret")
class Secret(Reference[str]):
    def __init__(self, name):
        super().__init__()
        self.name = name
    def resolve(self, logger):
        return self.name

@plugin
def secret(name: str) -> Reference[str]:
    return Secret(name)

@plugin
def read(x: "m::Res") -> "any":
    return x.content

@resource("m::Res", agent="agent", id_attribute="name")
class Res(Resource):
    fields = ("name", "agent", "content", "hash", "tags", "own")
    @staticmethod
    def get_hash(exporter, obj):
        return exporter.upload_file(obj.content)
    @staticmethod
    def get_tags(exporter, obj):
        return [*obj.tags, {"k": obj.content}]
    @staticmethod
    def get_name(exporter, obj):
        if obj.name == "ignored":
            raise IgnoreResourceException("not this one")
        return obj.name
    @staticmethod
    def get_own(exporter, obj):
        match obj.name:
            case "plugin":
                raise PluginException("no good")
            case "python":
                raise ValueError("broken")
            case "optional":
                return obj.other.name
            case "instance":
                return {"a": [obj]}
            case "attribute":
                return obj.nope
            case "two":
                return exporter.upload_file("my-id", b"bytes")
        return 1.5
"""

NAME = {"$": ["i", 1]}


def resource(name: object, content: object = "text", tags: object = ()) -> list[object]:
    return [[], [], name, "ag", content, list(tags) if isinstance(tags, tuple) else tags, {"$": ["n"]}]


def serialize(
    core: FakeCore, values: list[object], fields: list[str], wants_id: bool = False
) -> dict[str, object]:
    message = {"k": "serialize", "r": [[0, 1, fields, wants_id]], "x": [[1, 1, values]]}
    reply = core.request(message, "serialized")
    return reply["r"][0]


def test_fields_and_files(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    digest = hashlib.sha1(b"text").hexdigest()
    assert serialize(core, resource("a", tags=(None, 1)), ["hash", "tags", "own"], True) == {
        "id": "a",
        "fields": {"hash": digest, "tags": [None, 1, {"k": "text"}], "own": 1.5},
    }
    assert (core.directory / "contents" / digest).read_bytes() == b"text"


def test_a_file_under_a_name_of_its_own(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    assert serialize(core, resource("two"), ["own"]) == {"fields": {"own": "my-id"}}
    assert (core.directory / "contents" / "my-id").read_bytes() == b"bytes"


def test_unknown_values(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    unknown = {"$": ["u", 3]}
    answer = serialize(core, resource("a", unknown, ()), ["hash", "own"], True)
    assert answer == {"id": "a", "fields": {"own": 1.5}, "unknown": {"hash": unknown}}


def test_resources_that_are_left_out(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    assert serialize(core, resource("ignored"), ["hash"], True) == {"ignored": "not this one"}


def test_an_unknown_id_drops_the_resource(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    assert serialize(core, resource({"$": ["u", 3]}), ["hash"], True) == {"dropped": True}


def test_errors_of_fields(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    core.answers["where"] = {
        "k": "where",
        "file": "/m.cf",
        "line": 3,
        "text": "m::Res (instantiated at /m.cf:3)",
    }
    found = {}
    for number, name in enumerate(("plugin", "python", "optional", "instance", "attribute"), 10):
        message = {"k": "serialize", "r": [[0, number, ["own"], False]], "x": [[number, 1, resource(name)]]}
        error = core.request(message, "serialized")["r"][0]["error"]
        found[name] = (error["field"], error["kind"], error["class"], error["message"])
    assert found["plugin"] == ("own", "plugin", "inmanta.ast.PluginException", "no good")
    assert found["python"] == ("own", "other", "ValueError", "broken")
    assert found["optional"] == (
        None,
        "runtime",
        "OptionalValueException",
        "Optional variable accessed that has no value (attribute `m::Res.other` of `m::Res (instantiated at /m.cf:3)`)",
    )
    assert found["instance"][:3] == ("own", "other", "TypeError")
    assert "is not JSON serializable at path own" in found["instance"][3]
    assert found["attribute"] == ("own", "other", "AttributeError", "(None, 'nope')")


def test_references_leave_the_fields(core: FakeCore) -> None:
    core.module("m", CODE)
    core.start()
    core.types(RES)
    secret = core.call(0, "pw")["v"]
    assert secret["$"][2]["ref"] == "string"
    # It is hidden from plugins, visible to serializers.
    reply = core.call(1, NAME, x=[[1, 1, resource("a", secret)]])
    assert reply["kind"] == "runtime" and "unexpected reference value" in reply["message"]
    answer = serialize(core, resource("a", {"$": secret["$"][:2]}), ["content", "tags"])
    assert answer["fields"] == {"content": None, "tags": [{"k": None}]}
    (model,) = answer["references"]
    assert model["type"] == "m::Secret" and model["args"][0]["value"] == "pw"
    destinations = [
        arg["value"] for m in answer["mutators"] for arg in m["args"] if arg["name"] == "destination"
    ]
    assert sorted(destinations) == ["content", "tags[0].'k'"]
    resources = {arg["id"] for m in answer["mutators"] for arg in m["args"] if arg["name"] == "resource"}
    assert len(resources) == 1


MANAGERS = """
@dependency_manager
def add(model, resources):
    print(sorted(str(one) for one in resources), model["m::Res"].get_full_name())
    by_name = {one.name: one for one in resources.values()}
    assert by_name["b"].resource_requires == {by_name["a"]}
    assert by_name["b"].model.name == "b"
    by_name["c"].requires.add(by_name["a"])
    by_name["c"].requires.add(by_name["b"].id)
    by_name["a"].requires.add("m::Other[ag,name=x]")

@dependency_manager
def not_yet(model, resources):
    raise UnknownException(Unknown(None))
"""


def some_resources() -> dict[str, object]:
    fields = [{"id": f"m::Res[ag,name={name}]", "name": name, "agent": "ag"} for name in "abc"]
    return {
        "k": "requires",
        "r": [[0, 1, fields[0], []], [0, 2, fields[1], [0]], [0, 3, fields[2], []]],
        "x": [[n, 1, resource(name)] for n, name in enumerate("abc", 1)],
    }


def test_dependency_managers(core: FakeCore) -> None:
    core.module("m", CODE + MANAGERS)
    assert core.start()["managers"] == 2
    core.types(RES)
    whole = some_resources()
    # The list may come in parts, of which only the last is answered.
    core.send({"k": "requires", "r": whole["r"][:1], "more": True, "x": whole["x"]})
    reply = core.request({"k": "requires", "r": whole["r"][1:], "more": False}, "required")
    assert reply == {
        "k": "required",
        "r": [[0, ["m::Other[ag,name=x]"]], [2, ["m::Res[ag,name=a]", "m::Res[ag,name=b]"]]],
        "error": None,
    }
    assert core.printed == "['m::Res[ag,name=a]', 'm::Res[ag,name=b]', 'm::Res[ag,name=c]'] m::Res\n"


def test_resources_of_the_core_itself(core: FakeCore) -> None:
    code = """
from inmanta.export import dependency_manager
@dependency_manager
def show(model, resources):
    print([(type(one).__name__, one.value) for one in resources.values()])
"""
    core.module("m", code)
    core.start()
    core.types(RES)
    fields = {"id": "core::Own[ag,name=x]", "value": 5, "requires": []}
    message = {"k": "requires", "r": [[None, 1, fields, []]], "x": [[1, 1, resource("x")]]}
    assert core.request(message, "required") == {"k": "required", "r": [], "error": None}
    assert core.printed == "[('Resource', 5)]\n"


def test_dependency_managers_that_fail(core: FakeCore) -> None:
    core.module(
        "m",
        CODE
        + "\n@dependency_manager\ndef bad(model, resources):\n    next(iter(resources.values())).requires.add(3)\n",
    )
    core.start()
    core.types(RES)
    assert core.request(some_resources(), "required")["error"]["message"] == (
        "A dependency manager inserted the object 3 of type <class 'int'> into a requires relation. However, only "
        "string, Resource or Id are allowable types "
    )


def test_exporters(core: FakeCore) -> None:
    core.module(
        "m",
        CODE
        + """
@export("typed", "m::Res")
def typed(exporter, types=None):
    print([one.name for one in types["m::Res"]])
@export("bare")
def bare(exporter):
    print(exporter.types["m::Res"].get_full_name())
    1 / 0
""",
    )
    assert core.start()["exporters"] == ["typed", "bare"]
    core.types(RES)
    core.answers["instances"] = {"k": "instances", "i": [1]}
    core.answers["get"] = {"k": "got", "x": [[1, 1, resource("a")]]}
    assert core.request({"k": "exporters", "names": ["typed"]}, "exported") == {
        "k": "exported",
        "error": None,
    }
    error = core.request({"k": "exporters", "names": ["bare"]}, "exported")["error"]
    assert (error["class"], error["message"]) == ("ZeroDivisionError", "division by zero")
    error = core.request({"k": "exporters", "names": ["nope"]}, "exported")["error"]
    assert error["message"] == "Export function nope does not exist."
    assert core.printed == "['a']\nm::Res\n"


def test_finalizers_and_unknown_parameters(core: FakeCore) -> None:
    core.module(
        "m",
        CODE
        + """
@finalizer
def first():
    print("first")
    raise Exception("bad end")
@finalizer
def second():
    print("second")
    unknown_parameters.append({"resource": "m::Res[a,name=b]", "parameter": "ip", "source": "fact"})
""",
    )
    assert core.start()["finalizers"] == 2
    core.types()
    assert core.request({"k": "finalize", "ok": True}, "finalized") == {
        "k": "finalized",
        "errors": ["bad end"],
        "unknowns": [{"resource": "m::Res[a,name=b]", "parameter": "ip", "source": "fact"}],
    }
    assert core.printed == "first\nsecond\n"


def test_calls_of_the_server(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin, Context
        @plugin
        def ask(ctx: Context) -> "any":
            client = ctx.get_client()
            result = ctx.run_sync(lambda: client.get_param(tid="e", id="p"))
            return [result.code, result.result["parameter"]["value"]]
        """,
    )
    core.start()
    core.types()
    core.answers["server"] = {"k": "reply", "code": 200, "result": {"parameter": {"value": "v"}}}
    assert core.call(0)["v"] == [200, "v"]
    assert core.asked == [{"k": "server", "method": "get_param", "args": {"tid": "e", "id": "p"}}]


def test_a_second_compile_in_the_process_begins_afresh(core: FakeCore, tmp_path_factory) -> None:
    code = """
    from inmanta.plugins import plugin
    count = [0]
    def inmanta_reset_state():
        count[0] = 0
    @plugin
    def step() -> int:
        count[0] += 1
        return count[0]
    """
    core.module("m", code)
    core.start()
    core.types()
    assert [core.call(0)["v"], core.call(0)["v"]] == [1, 2]
    again = FakeCore(core.directory)
    again.modules = core.modules
    again.start()
    again.types()
    assert again.call(0)["v"] == 1
    # Other code with the same name replaces the first, as in tests.
    other = FakeCore(tmp_path_factory.mktemp("other"))
    other.module(
        "m", "from inmanta.plugins import plugin\n@plugin\ndef other() -> str:\n    return 'other'\n"
    )
    assert [plugin["name"] for plugin in other.start()["plugins"]] == ["m::other"]
    other.types()
    assert json.dumps(other.call(0)["v"]) == '"other"'
    other.close()
    again.wire.close()
