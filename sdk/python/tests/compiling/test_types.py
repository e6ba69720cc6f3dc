"""The types of the language as seen by modules, and the structure of entities."""

from __future__ import annotations

import pytest

from compiling.fake_core import ENTITY, attribute, entity, relation
from inmanta.ast import RuntimeException, TypingException
from inmanta.ast.attribute import RelationAttribute
from inmanta.ast.type import (
    TYPES,
    Any,
    Bool,
    Dict,
    Float,
    Integer,
    List,
    Literal,
    LiteralDict,
    LiteralList,
    Null,
    NullableType,
    Number,
    OrReferenceType,
    ReferenceType,
    String,
    Type,
    TypedDict,
    TypedList,
    Union,
    create_union,
    parse_type,
)
from inmanta.execute.util import NoneValue, Unknown
from orrery_sdk.compiling.types import TypeTable

STRINGS = TypedList(String())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (String(), "a"), (String(), Unknown(None)), (Integer(), True), (Integer(), 3), (Float(), 1.0),
        (Number(), 1), (Number(), True), (Bool(), False), (List(), [object()]), (Dict(), {"a": object()}),
        (STRINGS, ["a", Unknown(None)]), (NullableType(String()), NoneValue()), (Null(), NoneValue()), (Any(), 3),
        (Literal(), [1, {"a": "b"}]), (LiteralList(), [1, NoneValue()]), (Union([String(), Integer()]), 1),
        (TypedDict(Integer()), {"a": 1}),
    ],
)  # fmt: skip
def test_values_that_fit(kind: Type, value: object) -> None:
    assert kind.validate(value) is True


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (String(), 3, "Invalid value '3', expected string"),
        (Integer(), "x", "Invalid value 'x', expected int"),
        (Float(), 1, "Invalid value '1', expected float"),
        (Number(), "x", "Invalid value 'x', expected number"),
        (Bool(), 1, "Invalid value '1', expected bool"),
        (List(), 3, "Invalid value '3', expected list"),
        (Dict(), [], "Invalid value '[]', expected dict"),
        (STRINGS, [1], "Invalid value '1', expected string"),
        (STRINGS, 1, "Invalid value '1', expected string[]"),
        (TypedDict(String()), {"a": 1}, "Invalid value '1', expected string"),
        (NullableType(String()), 1, "Invalid value '1', expected string"),
        (NullableType(String()), None, "Invalid value 'None', expected string"),
        (Null(), 1, "Invalid value '1', expected null"),
        (Union([String(), Integer()]), [], "Invalid value '[]', expected Union[string,int]"),
    ],
)
def test_values_that_do_not_fit(kind: Type, value: object, message: str) -> None:
    with pytest.raises(RuntimeException) as found:
        kind.validate(value)
    assert str(found.value) == message


def test_literals_hold_no_objects() -> None:
    for kind, value in ((LiteralList(), [object()]), (LiteralDict(), {"a": object()})):
        with pytest.raises(TypingException, match="expected Literal"):
            kind.validate(value)


@pytest.mark.parametrize(
    ("kind", "written", "internal"),
    [
        (List(), "list", "list"),
        (STRINGS, "string[]", "string[]"),
        (TypedDict(String()), "dict", "dict[string, string]"),
        (NullableType(STRINGS), "string[]?", "string[]?"),
        (TypedList(NullableType(String())), "string?[]", "string?[]"),
        (Union([String(), Integer()]), None, "Union[string,int]"),
        (ReferenceType(String()), None, "Reference[string]"),
        (OrReferenceType(String()), "string", "string"),
        (Any(), None, "any"),
        (Null(), "null", "null"),
    ],
)
def test_how_types_are_written(kind: Type, written: str | None, internal: str) -> None:
    assert (kind.type_string(), kind.type_string_internal()) == (written, internal)
    assert str(kind) == (internal if written is None else written)


def test_casts() -> None:
    assert [String().cast(True), String().cast(NoneValue()), Integer().cast("3"), Bool().cast("")] == [
        "true", "null", 3, False,
    ]  # fmt: skip
    assert [Float().cast("1"), Number().cast("1.5"), Number().cast(True)] == [1.0, 1.5, 1]
    with pytest.raises(RuntimeException, match="Failed to cast 'x' to int"):
        Integer().cast("x")


def test_types_are_compared_and_combined() -> None:
    assert Integer() == Integer() and Integer() != String() and hash(STRINGS) == hash(TypedList(String()))
    assert Integer().issubtype(Number()) and String().issubtype(Any()) and not String().issubtype(Integer())
    assert str(create_union([String(), Null()])) == "string?"
    assert str(create_union([String(), Integer(), Null()])) == "Union[string,int]?"
    assert str(create_union([String()])) == "string"
    assert str(STRINGS.get_base_type()) == "string" and str(STRINGS.with_base_type(Integer())) == "int[]"
    assert parse_type("int[]?", lambda _: None) == NullableType(TypedList(TYPES["int"]))
    assert parse_type("nope::T", lambda _: None) is None


def table() -> TypeTable:
    made = TypeTable(lambda _: [], lambda typedef, value: value > 0)  # type: ignore[operator]
    made.load(
        {
            "entities": [
                ENTITY,
                entity(
                    "m::T",
                    attribute("n", "string"),
                    attribute("lo", "string[]?"),
                    attribute("p", "port?"),
                    relation("rels", "m::T"),
                    relation("req", "m::T", 1, 2, "back"),
                    relation("back", "m::T", 0, None, "req"),
                    indexes=[["n", "lo"]],
                    doc=" about T ",
                ),
                entity("m::sub::Child", parents=(1,), slots=["requires", "provides", "n", "lo"]),
            ],
            "typedefs": [{"name": "m::port", "base": "int"}],
            "namespaces": ["m", "m::sub"],
        }
    )
    return made


def test_entities() -> None:
    types = table()
    parent, child = types.entity_named("m::T"), types.entity_named("m::sub::Child")
    assert parent is not None and child is not None
    assert [str(parent), repr(parent), parent.name, parent.comment] == [
        "m::T",
        "Entity(m::T)",
        "T",
        " about T ",
    ]
    assert child.get_all_parent_names() == ["m::T", "std::Entity"]
    assert child.namespace.get_full_name() == "m::sub" and str(child.location) == "/m.cf:7"
    assert parent.get_all_child_entities() == {child} and parent.child_entities == [child]
    assert (
        child.is_subclass(parent)
        and not parent.is_subclass(parent)
        and parent.is_subclass(parent, strict=False)
    )
    assert parent.get_indices() == [["lo", "n"]]
    assert child.get_attribute("n") is parent.get_attribute("n") and child.get_attribute("nope") is None
    assert list(child.attributes) == [] and child.get_all_attribute_names() == [
        "requires",
        "provides",
        "n",
        "lo",
    ]
    assert types.seen_from("T", "m::sub") is parent and types.seen_from("T", "other") is None
    with pytest.raises(RuntimeException, match="Invalid type for value '3', should be type m::T"):
        parent.validate(3)


def test_attributes_and_relations() -> None:
    entity = table().entity_named("m::T")
    assert entity is not None
    several, rels, req = (entity.get_attribute(name) for name in ("lo", "rels", "req"))
    assert several is not None and rels is not None
    assert (several.is_optional(), several.is_multi(), str(several.type)) == (True, True, "string[]?")
    assert isinstance(rels, RelationAttribute) and isinstance(req, RelationAttribute)
    assert (rels.low, rels.high, rels.end, rels.is_multi(), rels.is_optional()) == (0, None, None, True, True)
    assert [repr(rels), str(rels), repr(req)] == ["[0:] rels", "m::T.rels", "[1:2] req"]
    assert req.end is not None and req.end.name == "back" and req.end.end is req and rels.type is entity


def test_typedefs_are_checked_by_the_core() -> None:
    entity = table().entity_named("m::T")
    assert entity is not None
    attribute = entity.get_attribute("p")
    assert attribute is not None and str(attribute.type) == "m::port?"
    assert attribute.type.validate(5) and attribute.type.validate(NoneValue())
    with pytest.raises(RuntimeException, match=r"Invalid value -1, does not match constraint `m::port`"):
        attribute.type.validate(-1)
    with pytest.raises(RuntimeException, match="expected int"):
        attribute.type.validate("x")
