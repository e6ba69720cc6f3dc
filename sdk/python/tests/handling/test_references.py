"""References: ids and JSON against recorded values, paths, resolution."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from inmanta import references
from inmanta.agent.handler import PythonLogger
from inmanta.references import AttributeReference, Reference, ReferenceCycleException
from inmanta.resources import PurgeableResource, ReferenceCollector, Resource, ResourceException, resource
from orrery_sdk import destination

LOGGER = PythonLogger(logging.getLogger("test"))
ENVIRONMENT_ID = "6b663842-ce13-3838-b51d-aea244c07f43"


@dataclasses.dataclass(frozen=True)
class Login:
    user: str
    number: int


class Environment(Reference[str]):
    calls = 0

    def __init__(self, name: Any) -> None:
        super().__init__()
        self.name = name

    def resolve(self, logger: Any) -> str:
        type(self).calls += 1
        return "v:" + self.resolve_other(self.name, logger)


class Many(Reference[str]):
    def __init__(self, name: Any, other: Any, l: Any, d: Any, b: Any, f: Any, n: Any, t: Any) -> None:  # noqa: E741
        super().__init__()
        self.name, self.other, self.l, self.d = name, other, l, d
        self.b, self.f, self.n, self.t = b, f, n, t
        self._private = 3

    def resolve(self, logger: Any) -> str:
        return repr([self.resolve_other(self.other, logger), self.d, self.t])


class LoginReference(Reference[Login]):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def resolve(self, logger: Any) -> Login:
        return Login(self.name, 5)


@pytest.fixture(autouse=True)
def registered() -> None:
    Environment.calls = 0
    references.reference("std::Environment")(Environment)
    references.reference("std::Env2")(Many)
    references.reference("std::DCRef")(LoginReference)


@pytest.fixture
def secret() -> type[Resource]:
    @resource("t::R", agent="a", id_attribute="name")
    class Secret(PurgeableResource):
        fields = ("name", "val", "lst")

    return Secret


def exported(**fields: Any) -> dict[str, Any]:
    base = {"id": "t::R[ag,name=x],v=3", "name": "x", "val": None, "lst": None, "purged": False}
    return {**base, "purge_on_delete": False, "send_event": True, "requires": [], **fields}


def test_the_id_is_the_known_one() -> None:
    model = Environment("PROBE_TOKEN").serialize()
    assert str(model.id) == ENVIRONMENT_ID
    assert model.to_json() == {
        "type": "std::Environment",
        "args": [{"type": "literal", "name": "name", "value": "PROBE_TOKEN"}],
        "id": ENVIRONMENT_ID,
    }


def test_all_kinds_of_arguments() -> None:
    inner = Environment("PROBE_TOKEN")
    nested = {"a": [inner, {"q'u\"o.te[": inner}]}
    model = Many("a", inner, [1, 2], nested, True, 1.5, None, str).serialize()
    assert str(model.id) == "7aa63b39-0f64-3fe1-91ae-49e16afb5243"
    by_name = {argument["name"]: argument for argument in model.to_json()["args"]}
    assert list(by_name) == ["name", "other", "l", "d", "b", "f", "n", "t"]
    assert by_name["other"] == {"type": "reference", "name": "other", "id": ENVIRONMENT_ID}
    assert by_name["l"] == {"type": "json", "name": "l", "value": [1, 2]}
    assert by_name["t"] == {"type": "python_type", "name": "t", "value": "str"}
    assert by_name["d"]["type"] == "mjson"
    assert by_name["d"]["value"] == {"a": [None, {"q'u\"o.te[": None}]}
    assert list(by_name["d"]["references"]) == ["$.'a'[0]", "$.'a'[1].'q\\'u\"o.te['"]


@pytest.mark.parametrize("value", [object(), (1, 2), {1, 2}, b"x", dict, {1: 2}])
def test_other_arguments_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        Environment(value).serialize()
    with pytest.raises(ValueError, match="not json serializable"):
        Environment([object()]).serialize()


def test_a_cycle_is_reported_as_a_chain() -> None:
    first = Environment("x")
    first.name = [first]
    with pytest.raises(ReferenceCycleException) as short:
        first.serialize()
    assert str(short.value) == f"Reference cycle detected: {first} -> {first}"
    second = Many("d", first, None, None, None, None, None, None)
    first.name = second
    with pytest.raises(ReferenceCycleException) as longer:
        first.serialize()
    assert str(longer.value) == f"Reference cycle detected: {first} -> {second} -> {first}"
    first.name = "y"
    assert second.serialize().to_json()["args"][1]["type"] == "reference"


def test_references_are_neither_true_nor_false_and_equal_by_arguments() -> None:
    with pytest.raises(NotImplementedError, match="is an inmanta reference, not a boolean"):
        bool(Environment("a"))
    assert Environment("a") == Environment("a") != Environment("b")
    assert Environment("a") != LoginReference("a")


def test_what_a_reference_resolves_to() -> None:
    assert Environment.get_reference_type() is str
    assert LoginReference.is_dataclass_reference() and not Environment.is_dataclass_reference()
    assert references.is_reference_of(Environment("a"), str)
    assert not references.is_reference_of(Environment("a"), int)
    assert not references.is_reference_of("a", str)

    class Derived(Environment):
        pass

    assert Derived.get_reference_type() is str


def test_attributes_of_dataclasses() -> None:
    attribute = AttributeReference(LoginReference("root"), "number")
    model = attribute.serialize().to_json()
    assert model["type"] == "core::AttributeReference"
    assert [argument["name"] for argument in model["args"]] == ["attribute_name", "reference"]
    assert attribute.get(LOGGER) == 5


def test_a_value_is_asked_for_once() -> None:
    found = Environment("a")
    assert found.get(LOGGER) == found.get(LOGGER) == "v:a"
    assert Environment.calls == 1


def test_a_frozen_dataclass_can_be_a_reference() -> None:
    @references.reference("t::Frozen")
    @dataclasses.dataclass(frozen=True)
    class Frozen(Reference[str]):
        name: str

        def resolve(self, logger: Any) -> str:
            return self.name * 2

    found = Frozen("ab")
    assert found.get(LOGGER) == "abab" and found.arguments == {"name": "ab"}
    assert found.serialize().to_json()["args"] == [{"type": "literal", "name": "name", "value": "ab"}]


def collect(secret: type[Resource], **fields: Any) -> dict[str, Any]:
    """The exported form of these fields."""
    created = Resource.deserialize(exported())
    collector = ReferenceCollector(created)
    plain = {name: collector.collect_references(value, name) for name, value in fields.items()}
    return exported(
        **plain,
        references=[model.to_json() for model in collector.get_references_sorted()],
        mutators=[model.to_json() for model in collector.get_mutators_sorted()],
    )


def test_a_resource_with_references(secret: type[Resource]) -> None:
    written = collect(
        secret, val=Environment("q"), lst={"a": [Environment("q"), 1], "b'c": Environment(Environment("z"))}
    )
    assert (written["val"], written["lst"]) == (None, {"a": [None, 1], "b'c": None})
    assert [item["id"] for item in written["references"]] == sorted(
        item["id"] for item in written["references"]
    )
    assert len(written["references"]) == 3
    assert {item["args"][2]["value"] for item in written["mutators"]} == {"val", "lst.'a'[0]", "lst.'b\\'c'"}
    assert written["mutators"][0]["args"][0] == {
        "type": "resource",
        "name": "resource",
        "id": "t::R[ag,name=x]",
    }

    read = Resource.deserialize(written)
    read.resolve_all_references(LOGGER)
    assert (read.val, read.lst) == ("v:q", {"a": ["v:q", 1], "b'c": "v:v:z"})  # type: ignore[attr-defined]
    assert Environment.calls == 3
    read.clone().resolve_all_references(LOGGER)
    read.resolve_all_references(LOGGER)
    assert Environment.calls == 3


def test_mutators_are_in_the_known_order(secret: type[Resource]) -> None:
    references.reference("std::Env")(Environment)
    written = collect(secret, lst={"a": [Environment("q")]}, val=Environment("q"))
    ids = [str(references.MutatorModel(**item).get_id()) for item in written["mutators"]]
    assert ids == ["42de7fdb-5bfd-309f-9037-b66b0c54a9b4", "8c8d69c7-32cd-3268-b18f-b2dfd99c1ebc"]


def test_nested_arguments_are_resolved(secret: type[Resource]) -> None:
    many = Many("a", Environment("o"), [], {"deep": [Environment("p")]}, True, 1.5, None, int)
    read = Resource.deserialize(collect(secret, val=many))
    read.resolve_all_references(LOGGER)
    assert read.val == "['v:o', {'deep': ['v:p']}, <class 'int'>]"  # type: ignore[attr-defined]


def test_what_is_missing_is_an_error(secret: type[Resource]) -> None:
    written = collect(secret, val=Environment("q"))
    with pytest.raises(KeyError, match="is not defined in resource"):
        Resource.deserialize({**written, "references": []}).resolve_all_references(LOGGER)
    gone = [{**item, "type": "std::Gone"} for item in written["references"]]
    with pytest.raises(references.ReferenceMissingError, match="std::Gone"):
        Resource.deserialize({**written, "references": gone}).resolve_all_references(LOGGER)
    broken = [{**item, "type": "core::Gone"} for item in written["mutators"]]
    with pytest.raises(references.MutatorMissingError, match="core::Gone"):
        Resource.deserialize({**written, "mutators": broken}).resolve_all_references(LOGGER)


def test_references_that_need_each_other_do_not_hang(secret: type[Resource]) -> None:
    written = collect(secret, val=Environment(Environment("q")))
    outer = next(item for item in written["references"] if item["args"][0]["type"] == "reference")
    outer["args"][0]["id"] = outer["id"]
    with pytest.raises(ValueError, match="needs its own value"):
        Resource.deserialize(written).resolve_all_references(LOGGER)


def test_references_may_not_identify_a_resource(secret: type[Resource]) -> None:
    from types import SimpleNamespace

    identified: Any = SimpleNamespace(name=Environment("a"), a="x")
    with pytest.raises(ResourceException, match="id attribute"):
        secret.object_to_id(identified, "t::R", "name", "a")
    deployed: Any = SimpleNamespace(name="n", a=Environment("a"))
    with pytest.raises(ResourceException, match="agent"):
        secret.object_to_id(deployed, "t::R", "name", "a")


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("val", ["val"]),
        ("lst[3]", ["lst", 3]),
        ("lst.'a'[0].'b'", ["lst", "a", 0, "b"]),
        ("lst.'it\\'s'", ["lst", "it's"]),
        ("lst.'a\\\\'", ["lst", "a\\"]),
        ("lst.'a\\b'", ["lst", "a\\b"]),
        ("lst.'x.y[0]'", ["lst", "x.y[0]"]),
    ],
)
def test_destinations(path: str, steps: list[Any]) -> None:
    assert destination.parse(path) == steps


@pytest.mark.parametrize("key", ["a", "it's", "a\\", "\\'", "''", "]", ".", "", "é\n"])
def test_every_key_can_be_a_destination(key: str) -> None:
    root = {"lst": {key: None}}
    destination.assign(root, destination.dict_item("lst", key), 1)
    assert root == {"lst": {key: 1}}


@pytest.mark.parametrize(
    "path", ["", "[0]", "a.b", "a[x]", "a[", "a.'b", "nope", "lst[9]", "lst.'k'", "val.'x'", "lst[0]x"]
)
def test_bad_destinations_are_errors(path: str) -> None:
    with pytest.raises(destination.BadDestination):
        destination.assign({"val": 3, "lst": [1]}, path, 1)
