"""Paths into nested dicts and lists."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from inmanta.resources import Id, Resource, resource
from inmanta.util.dict_path import (
    ComposedPath,
    ContainerStructureException,
    DictPath,
    InDict,
    InvalidPathException,
    KeyedList,
    NormalValue,
    NullPath,
    WildCardValue,
    WildComposedPath,
    WildInDict,
    WildKeyedList,
    to_path,
    to_wild_path,
)

DOCUMENT: dict[str, Any] = {
    "a": {"b": {"c": 1}},
    "l": [
        {"k": "1", "v": "one", "n": None, "m": 2},
        {"k": "2", "v": "two", "m": 2, "n": 3},
        {"k": 3, "v": "three", "m": 2.0},
    ],
    "s": "x",
    "nl": [{"l": [{"x": "1"}, {"x": "2"}], "k": "1"}, {"k": "2", "l": []}],
    "e": {},
    "num": [1, 2],
}


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        (".a", ["a"]),
        ("a..b", ["a", "b"]),
        ("a.", ["a"]),
        ("a[b=c].d", ["a[b=c]", "d"]),
        ("a[b=c][d=e].f", ["a[b=c][d=e]", "f"]),
        ("a[b=]", ["a[b=]"]),
        ("a\\.b", ["a\\.b"]),
        ("a\\[b", ["a\\[b"]),
        ("a[b\\=c=d]", ["a[b\\=c=d]"]),
        ("a[b=c.d]", ["a[b=c\\.d]"]),
        ("a[b=\\0]", ["a[b=\\0]"]),
        ("a\\*", ["a\\*"]),
        ("a b", ["a b"]),
        ("a\\\\b", ["a\\\\b"]),
        ("a.b[c=d].e[f=g]", ["a", "b[c=d]", "e[f=g]"]),
        (".", []),
    ],
)
def test_paths_are_read(text: str, sections: list[str]) -> None:
    for read in (to_path(text), to_wild_path(text)):
        assert [section.to_str() for section in read.get_path_sections()] == sections
    assert isinstance(to_path(text), NullPath if text == "." else ComposedPath)


@pytest.mark.parametrize(
    "text",
    ["", "..", "a[=c]", "a[b]", "a[]", "a]", "a[b=c", "a[b=c=d]", "a=b", "a\\0", "a[\\0=c]", "\\a", "a[b=c]d", "[a=b]",
     "*[b=c]", "a.*[b=c]", "a\\"],
)  # fmt: skip
def test_other_texts_are_no_paths(text: str) -> None:
    for read in (to_path, to_wild_path):
        with pytest.raises(InvalidPathException):
            read(text)


@pytest.mark.parametrize("text", ["*", "a.*", "a[*=c]", "a[b=*]"])
def test_wildcards_are_only_for_wild_paths(text: str) -> None:
    with pytest.raises(InvalidPathException, match="Wildcard"):
        to_path(text)
    assert to_wild_path(text).to_str() == text


def test_keys_of_any_kind_can_be_written_and_read() -> None:
    seed = random.randrange(2**32)
    source = random.Random(seed)
    for _ in range(1000):
        key, value = (
            "".join(source.choice("ab\\[].*=0é ") for _ in range(source.randint(1, 6))) for _ in range(2)
        )
        escaped = NormalValue(key).escape()
        container = {key: 1, "l": [{key: value, "found": True}]}
        assert to_path(escaped).get_element(container) == 1, f"seed {seed}"
        found = to_path(f"l[{escaped}={NormalValue(value).escape()}]").get_element(container)
        assert found["found"], f"seed {seed}"


MISSING = KeyError
WRONG = ContainerStructureException

# path; result; result with `construct`; the document after setting "new"; after removing
CASES: list[tuple[str, Any, Any, Any, Any]] = [
    ("a.b.c", 1, 1, {"a": {"b": {"c": "new"}}}, {"a": {"b": {}}}),
    ("a.x", MISSING, {}, {"a": {"b": {"c": 1}, "x": "new"}}, {}),
    ("x.y", MISSING, {}, {"x": {"y": "new"}}, {}),
    ("s.x", MISSING, WRONG, WRONG, WRONG),
    ("l.x", MISSING, WRONG, WRONG, WRONG),
    ("l[k=1].v", "one", "one", {"l": [{"k": "1", "v": "new", "n": None, "m": 2}, *DOCUMENT["l"][1:]]},
     {"l": [{"k": "1", "n": None, "m": 2}, *DOCUMENT["l"][1:]]}),
    ("l[k=3].v", "three", "three", {"l": [*DOCUMENT["l"][:2], {"k": 3, "v": "new", "m": 2.0}]},
     {"l": [*DOCUMENT["l"][:2], {"k": 3, "m": 2.0}]}),
    ("l[m=2.0][k=1]", DOCUMENT["l"][0], DOCUMENT["l"][0], {"l": ["new", *DOCUMENT["l"][1:]]},
     {"l": DOCUMENT["l"][1:]}),
    ("l[n=\\0].v", "one", "one", {"l": [{"k": "1", "v": "new", "n": None, "m": 2}, *DOCUMENT["l"][1:]]},
     {"l": [{"k": "1", "n": None, "m": 2}, *DOCUMENT["l"][1:]]}),
    ("l[k=9]", MISSING, {"k": "9"}, {"l": [*DOCUMENT["l"], "new"]}, {}),
    ("l[m=2]", MISSING, MISSING, {"l": [*DOCUMENT["l"], "new"]}, {"l": []}),
    ("new[k=1][j=2]", MISSING, {"k": "1", "j": "2"}, {"new": ["new"]}, {}),
    ("new[k=1].z", MISSING, {}, {"new": [{"k": "1", "z": "new"}]}, {}),
    ("nl[k=2].l[x=5]", MISSING, {"x": "5"}, {"nl": [DOCUMENT["nl"][0], {"k": "2", "l": ["new"]}]}, {}),
    ("s[k=1]", MISSING, WRONG, WRONG, WRONG),
    ("a[k=1]", MISSING, WRONG, WRONG, WRONG),
    ("num[k=1]", MISSING, {"k": "1"}, {"num": [1, 2, "new"]}, {}),
]  # fmt: skip


def check(expected: Any, action: Any) -> None:
    if isinstance(expected, type) and issubclass(expected, Exception):
        with pytest.raises(expected):
            action()
    else:
        assert action() == expected


@pytest.mark.parametrize(("text", "found", "made", "after_set", "after_remove"), CASES)
def test_single_places(text: str, found: Any, made: Any, after_set: Any, after_remove: Any) -> None:
    path = to_path(text)

    def changed(action: Any) -> Any:
        document = copy.deepcopy(DOCUMENT)
        action(document)
        return {
            key: value for key, value in document.items() if key not in DOCUMENT or DOCUMENT[key] != value
        }

    def without(action: Any) -> Any:
        document = copy.deepcopy(DOCUMENT)
        action(document)
        return {key: value for key, value in document.items() if DOCUMENT[key] != value}

    check(found, lambda: path.get_element(copy.deepcopy(DOCUMENT)))
    check(made, lambda: path.get_element(copy.deepcopy(DOCUMENT), construct=True))
    check(after_set, lambda: changed(lambda document: path.set_element(document, "new")))
    check(after_remove, lambda: without(path.remove))
    everything = path.get_elements(copy.deepcopy(DOCUMENT))
    assert everything == ([] if isinstance(found, type) else [found])


def test_setting_without_making() -> None:
    with pytest.raises(KeyError):
        to_path("x.y").set_element({}, 1, construct=False)
    document: dict[str, Any] = {}
    to_path("x").set_element(document, 1, construct=False)
    assert document == {"x": 1}


@pytest.mark.parametrize(
    ("text", "elements", "paths"),
    [
        ("*", list(DOCUMENT.values()), list(DOCUMENT)),
        ("a.*.c", [1], ["a.b.c"]),
        ("l[*=1]", [DOCUMENT["l"][0]], NotImplementedError),
        ("l[k=*].v", ["one", "two", "three"], ["l[k=1].v", "l[k=2].v", "l[k=3].v"]),
        ("l[*=*]", DOCUMENT["l"], NotImplementedError),
        ("nl[k=*].l[x=*].x", ["1", "2"], ["nl[k=1].l[x=1].x", "nl[k=1].l[x=2].x"]),
        ("l[n=*]", DOCUMENT["l"][:2], ["l[n=\\0]", "l[n=3]"]),
        ("x.*", [], []),
        ("s.*", WRONG, WRONG),
        ("*.b", WRONG, WRONG),
        ("a.b", [{"c": 1}], ["a.b"]),
        ("zz[k=1]", [], []),
        (".", [DOCUMENT], ["."]),
    ],
)
def test_many_places(text: str, elements: Any, paths: Any) -> None:
    path = to_wild_path(text)
    check(elements, lambda: path.get_elements(DOCUMENT))
    check(paths, lambda: [found.to_str() for found in path.resolve_wild_cards(DOCUMENT)])


def test_adding_paths() -> None:
    assert str(to_path("a.b") + to_path("c[d=e]")) == "a.b.c[d=e]"
    assert str(to_path(".") + to_path("a")) == str(to_path("a") + to_path(".")) == "a"
    assert isinstance(to_path(".") + to_path("."), NullPath)
    assert str(to_wild_path("a") + to_path("b")) == "a.b"
    for other in (3, to_wild_path("*")):
        with pytest.raises(TypeError):
            to_path("a") + other


def test_equal_paths_are_equal() -> None:
    assert to_path("a.b") == to_path("a.b") and hash(to_path("a.b")) == hash(to_path("a.b"))
    assert to_path("a.b") != to_path("a.c") and to_path("a") != "a"


def test_sections_made_by_hand() -> None:
    assert InDict("a.b").to_str() == "a\\.b" and InDict("a\\.b").get_key() == "a.b"
    assert KeyedList("r", "a", "b").to_str() == KeyedList("r", [("a", "b")]).to_str() == "r[a=b]"
    assert KeyedList("r", [("a", "\\0")]).get_key_value_pairs() == [("a", None)]
    assert KeyedList("r", [("a", "b")]).get_key() == "r"
    assert ComposedPath(path=[InDict("a"), InDict("b")]).to_str() == "a.b"
    assert WildComposedPath(path=[WildInDict("*"), WildKeyedList("r", [("*", "*")])]).to_str() == "*.r[*=*]"
    for broken in (lambda: InDict("*"), lambda: KeyedList("r", [("a", "*")]), lambda: KeyedList("r", [])):
        with pytest.raises(ValueError):
            broken()
    with pytest.raises(InvalidPathException):
        KeyedList("*", [("a", "b")])
    with pytest.raises(NotImplementedError):
        to_path("a").get_key()
    with pytest.raises(Exception, match="doesn't have an actual data value"):
        WildCardValue().value  # noqa: B018
    assert InDict.parse("a.b") is None and KeyedList.parse("a") is None


@pytest.mark.parametrize(
    ("text", "matching"),
    [("1", [1, 1.0, "1", True]), ("1.0", [1, 1.0, "1.0", True]), ("True", [True, "True"]), ("true", []),
     ("None", ["None"]), ("", [""]), ("nan", [])],
)  # fmt: skip
def test_values_match_as_text_or_as_numbers(text: str, matching: list[Any]) -> None:
    candidates = [1, 1.0, "1", "1.0", True, False, None, "True", "None", "", [1]]
    found = [value for value in candidates if NormalValue(text).matches(value)]
    assert list(map(repr, found)) == list(map(repr, matching))


def test_the_container_itself() -> None:
    document = {"a": 1}
    to_path(".").set_element(document, {"b": 2})
    assert document == {"a": 1, "b": 2} and to_path(".").get_element(document) is document
    with pytest.raises(NotImplementedError):
        to_path(".").remove(document)
    with pytest.raises(ContainerStructureException):
        to_path(".").set_element(document, "text")


def test_resources_are_containers() -> None:
    @resource("t::R", agent="a", id_attribute="name")
    class Thing(Resource):
        fields = ("name", "value")

    thing = Thing(Id("t::R", "a", "name", "x"))
    thing.value = {"a": 1}  # type: ignore[attr-defined]
    path: DictPath = to_path("value.b")
    path.set_element(thing, 3)
    assert thing.value == {"a": 1, "b": 3} and path.get_element(thing) == 3  # type: ignore[attr-defined]
