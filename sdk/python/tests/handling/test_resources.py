"""Resource classes: fields, getters, errors, JSON."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inmanta import ast
from inmanta.execute.util import Unknown
from inmanta.resources import (
    Id,
    IgnoreResourceException,
    ManagedResource,
    PurgeableResource,
    Resource,
    ResourceException,
    resource,
)

BASE = ("send_event", "receive_events", "references", "mutators", "report_only")


def test_fields_of_bases_come_first_and_once() -> None:
    class First(Resource):
        fields = ("x", "y")

    class Second(Resource):
        fields = ["y", "z"]

    class Both(Second, First):
        fields = ("w", "x")

    assert Both.fields == (*BASE, "y", "z", "x", "w")
    assert PurgeableResource.fields == (*BASE, "purged", "purge_on_delete")
    assert ManagedResource.fields == (*BASE, "managed")


@pytest.mark.parametrize("fields", [3, "abc", {"a"}])
def test_fields_has_to_be_a_tuple_or_a_list(fields: Any) -> None:
    with pytest.raises(Exception, match="fields attribute of Bad should be a tuple or list"):
        type("Bad", (Resource,), {"fields": fields})


def test_classes_that_cannot_be_used_are_found_before_the_export() -> None:
    with pytest.raises(ResourceException, match="has to be a string"):
        resource("t::R", agent=3, id_attribute="n")  # type: ignore[arg-type]
    for name in (
        "_a",
        "id",
        "version",
        "model",
        "requires",
        "unknowns",
        "set_version",
        "clone",
        "is_type",
        "serialize",
    ):
        bad = type("Bad", (Resource,), {"fields": (name,)})
        resource("t::Bad", "n", "a")(bad)
        with pytest.raises(ResourceException, match="reported in Bad"):
            resource.validate()

    class Slip(resource):
        fields = ("a",)

    resource("t::Bad", agent="a", id_attribute="n")(Slip)
    with pytest.raises(
        ast.RuntimeException, match=r"inheriting from the inmanta\.resources\.resource decorator"
    ):
        resource.validate()


def test_the_registry() -> None:
    @resource("t::R", "name", "host.name")
    class First(Resource):
        fields = ("name",)

    assert resource.get_class("t::R") == (First, {"agent": "host.name", "name": "name"})
    assert resource.get_class("t::S") == (None, None)
    assert list(resource.get_entity_resources()) == ["t::R"]
    assert list(resource.get_resources()) == [("t::R", First)]

    @resource("t::R", "name", "host.name")
    class Second(Resource):
        fields = ("name",)

    assert resource.get_class("t::R")[0] is Second


class Mapped(Resource):
    fields = ("computed", "mapped", "plain", "failing", "complaining", "ignoring", "unsure", "unset")
    map = {"mapped": lambda _exporter, obj: f"map {obj.plain}", "computed": lambda _e, _o: "never"}

    @staticmethod
    def get_computed(exporter: Any, obj: Any) -> str:
        return f"getter {exporter} {obj.plain}"

    @classmethod
    def get_failing(cls, exporter: Any, obj: Any) -> int:
        return 1 // obj.zero

    @staticmethod
    def get_complaining(exporter: Any, obj: Any) -> None:
        raise ast.PluginException("not like this")

    @staticmethod
    def get_ignoring(exporter: Any, obj: Any) -> None:
        raise IgnoreResourceException()

    @staticmethod
    def get_unsure(exporter: Any, obj: Any) -> None:
        raise ast.UnknownException(obj.unknown)

    @staticmethod
    def get_unset(exporter: Any, obj: Any) -> None:
        raise ast.RuntimeException(None, "unset")


INSTANCE = SimpleNamespace(plain="p", zero=0, unknown=Unknown(None))


def field(name: str, instance: Any = INSTANCE) -> object:
    return Mapped.map_field("exporter", "t::M", name, instance)  # type: ignore[arg-type]


def test_a_getter_goes_before_the_map_and_that_before_the_attribute() -> None:
    assert field("computed") == "getter exporter p"
    assert field("mapped") == "map p"
    assert field("plain") == "p"


def test_errors_of_getters_name_the_field_and_the_entity() -> None:
    message = "Failed to get attribute 'failing' for export on 't::M'"
    with pytest.raises(ast.ExternalException, match=message) as external:
        field("failing")
    assert isinstance(external.value.__cause__, ZeroDivisionError)
    with pytest.raises(ast.ExplicitPluginException, match="'complaining' for export"):
        field("complaining")
    with pytest.raises(ast.ExternalException) as missing:
        field("plain", SimpleNamespace())
    assert isinstance(missing.value.__cause__, AttributeError)
    with pytest.raises(IgnoreResourceException):
        field("ignoring")
    with pytest.raises(ast.RuntimeException, match="unset"):
        field("unset")
    assert field("unsure") is INSTANCE.unknown
    assert field("unknown") is INSTANCE.unknown


def test_three_attributes_need_not_be_there() -> None:
    empty = SimpleNamespace()
    values = [field(name, empty) for name in ("send_event", "receive_events", "report_only")]
    assert values == [False, True, False]
    other = SimpleNamespace(send_event=True, receive_events=False, report_only=True)
    assert [field(name, other) for name in ("send_event", "receive_events", "report_only")] == [
        True,
        False,
        True,
    ]


def test_what_is_not_managed_is_ignored() -> None:
    with pytest.raises(IgnoreResourceException):
        ManagedResource.map_field(None, "t::M", "managed", SimpleNamespace(managed=False))  # type: ignore[arg-type]


def identify(instance: Any, attribute: str = "name", agent: str = "host.name") -> str:
    class Some(Resource):
        fields = ("name",)

    return str(Some.object_to_id(instance, "t::S", attribute, agent))


def host(name: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name)


def test_the_id_of_an_instance() -> None:
    assert identify(SimpleNamespace(name=3, host=host("web"))) == "t::S[web,name=3]"
    assert identify(SimpleNamespace(name="n", host=[host("a"), host("b")])) == "t::S[a,name=n]"
    with pytest.raises(Exception, match=r"In path host\.nope, 'nope' does not exist"):
        identify(SimpleNamespace(name="n", host=host("a")), agent="host.nope")
    with pytest.raises(Exception, match=r"In path host\.name, 'name' does not exist"):
        identify(SimpleNamespace(name="n", host=[]))
    with pytest.raises(ResourceException, match="should lead to a string, got 3"):
        identify(SimpleNamespace(name="n", host=host(3)))
    with pytest.raises(ast.UnknownException):
        identify(SimpleNamespace(name=Unknown(None), host=host("a")))
    with pytest.raises(ast.UnknownException):
        identify(SimpleNamespace(name="n", host=host(Unknown(None))))
    with pytest.raises(ValueError, match="cannot contain ']'"):
        identify(SimpleNamespace(name="a]", host=host("a")))


@pytest.fixture
def pair() -> type[Resource]:
    @resource("t::P", agent="a", id_attribute="name")
    class Pair(PurgeableResource):
        fields = ("name", "value")

    return Pair


def exported(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "t::P[a,name=x],v=3",
        "name": "x",
        "value": {"k": [1]},
        "purged": False,
        "purge_on_delete": False,
    }
    return {**base, "send_event": True, "requires": ["t::P[a,name=y],v=3"], **fields}


def test_json_there_and_back(pair: type[Resource]) -> None:
    read = Resource.deserialize(exported(version=7))
    assert isinstance(read, pair)
    assert read.requires == {Id.parse_id("t::P[a,name=y],v=3")}
    assert (read["receive_events"], read["report_only"], read["references"], read["mutators"]) == (
        True,
        False,
        [],
        [],
    )
    assert Resource.deserialize(read.serialize()).serialize() == read.serialize()
    assert list(read.serialize())[-2:] == ["requires", "id"]
    lacking = exported()
    del lacking["value"]
    with pytest.raises(Exception, match="does not have field value"):
        Resource.deserialize(lacking)
    with pytest.raises(TypeError, match="No resource class registered for entity t::Q"):
        Resource.deserialize(exported(id="t::Q[a,name=x]"))


def test_a_clone_shares_nothing_but_the_values_of_references(pair: type[Resource]) -> None:
    read = Resource.deserialize(exported())
    copy = read.clone(purged=True, extra=1)
    assert copy.purged and copy.extra == 1 and not read.purged  # type: ignore[attr-defined]
    copy.value["k"].append(2)  # type: ignore[attr-defined]
    assert read.value == {"k": [1]}  # type: ignore[attr-defined]
    assert copy._reference_values is read._reference_values


def test_it_is_like_a_mapping_of_its_fields(pair: type[Resource]) -> None:
    read = Resource.deserialize(exported())
    assert "name" in read and "id" not in read
    assert read["name"] == read.get("name") == dict(read.items())["name"] == "x"
    assert read.get("nope", 4) == 4
    read["name"] = "z"
    assert read.name == "z"  # type: ignore[attr-defined]
    for broken in (lambda: read["nope"], lambda: read.__setitem__("nope", 1)):
        with pytest.raises(KeyError):
            broken()
    for refused in (read.clear, lambda: read.__delitem__("name")):
        with pytest.raises(Exception, match="not allowed"):
            refused()


def test_unknown_values_are_noted(pair: type[Resource]) -> None:
    read = Resource.deserialize(exported())
    read.value = Unknown(None)  # type: ignore[attr-defined]
    assert read.unknowns == {"value"}


def test_a_requirement_of_another_handler_may_have_brackets() -> None:
    @resource("t::Follows", agent="a", id_attribute="n")
    class Follows(Resource):
        fields = ("n",)

    command = 'exec::Run[a,command=sh -c "[ -e x ] &&\necho [1]"]'
    fields = dict.fromkeys(BASE, True)
    created = Resource.deserialize({"id": "t::Follows[a,n=1],v=2", "n": "1", "requires": [command], **fields})
    assert [str(entry) for entry in created.requires] == [command]
    assert created.serialize()["requires"] == [command]
    with pytest.raises(ValueError, match="Invalid id"):
        Resource.deserialize({"id": "t::Follows[a,n=1]", "n": "1", "requires": ["exec::Run[a]"], **fields})
