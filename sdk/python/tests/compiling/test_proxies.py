"""Proxies in isolation: lists, dicts, callables and contexts."""

from __future__ import annotations

import json

import pytest

from inmanta.ast import RuntimeException, UnexpectedReference, UnknownException
from inmanta.execute.proxy import (
    CallProxy,
    DictProxy,
    DynamicProxy,
    IteratorProxy,
    ProxyContext,
    SequenceProxy,
    exportcontext,
)
from inmanta.execute.util import NoneValue, Unknown
from inmanta.plugins import allow_reference_values
from inmanta.references import Reference
from inmanta.util import api_boundary_json_encoder


class Secret(Reference[str]):
    """A reference for these tests."""


def proxy(value: object, **context: object) -> DynamicProxy:
    return DynamicProxy.return_value(value, context=ProxyContext(path="it", **context))  # type: ignore[arg-type]


def test_plain_values_stay_what_they_are() -> None:
    for value in (None, "a", 3, 1.5, True, (1, None)):
        assert DynamicProxy.return_value(value) is value
    assert DynamicProxy.return_value(NoneValue()) is None


def test_lists() -> None:
    items = proxy([1, NoneValue(), [2], {"a": 1}])
    assert isinstance(items, SequenceProxy) and not isinstance(items, list)
    assert repr(items) == "@[1, null, [2], {'a': 1}]" and len(items) == 4
    assert [items[0], items[1], items[-1]["a"], list(items[2])] == [1, None, 1, [2]]
    assert isinstance(iter(items), IteratorProxy) and iter(items)._is_sequence()
    assert repr(items[1:3]) == "@[null, [2]]" and 1 in items
    assert proxy([1]) == proxy([1]) and proxy([1]) == [1] and not proxy([])
    with pytest.raises(AttributeError, match="'list' object has no attribute 'get_attribute'"):
        items.append(1)
    with pytest.raises(Exception, match="Readonly object"):
        items.x = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(items)


def test_dicts() -> None:
    items = proxy({"a": 1, "b": NoneValue(), "c": [1]})
    assert isinstance(items, DictProxy) and dict(items)["b"] is None
    assert list(items) == ["a", "b", "c"] and items.get("zz", 3) == 3 and "a" in items
    assert items["c"]._get_context().path == "it['c']"
    with pytest.raises(KeyError):
        items["zz"]


def test_unknown_values_are_noticed_when_they_are_read() -> None:
    unknown = Unknown(source=None)
    items = proxy([1, unknown])
    assert items[0] == 1 and len(items) == 2
    with pytest.raises(UnknownException) as found:
        list(items)
    assert found.value.unknown is unknown and list(unknown) == []
    with pytest.raises(UnknownException):
        proxy({"a": unknown})["a"]


def test_callables_and_other_objects() -> None:
    assert isinstance(proxy(lambda: 3), CallProxy) and proxy(lambda: 3)() == 3
    assert type(proxy(object())) is DynamicProxy and type(proxy({1})) is SequenceProxy


def test_references_are_guarded() -> None:
    reference = Secret()
    guarded = proxy([reference, [reference]], validated=False)
    with pytest.raises(UnexpectedReference, match=r"Encountered at it\[0\] \(= `<.*Secret object"):
        guarded[0]
    assert allow_reference_values(guarded)[0] is reference
    with pytest.raises(UnexpectedReference, match=r"it\[1\]\[0\]"):
        allow_reference_values(guarded)[1][0]
    with exportcontext:
        assert guarded[0] is reference
    with pytest.raises(UnexpectedReference):
        guarded[0]
    # A value that was checked against its annotation is allowed at any depth.
    assert proxy([[reference]])[0][0] is reference
    assert allow_reference_values(3) == 3


def test_values_for_the_model() -> None:
    assert repr(DynamicProxy.unwrap([1, None, proxy([2]), {"a": None}])) == "[1, null, [2], {'a': null}]"
    with pytest.raises(RuntimeException) as found:
        DynamicProxy.unwrap({1: 2})
    assert str(found.value) == "dict keys should be strings, got 1 of type <class 'int'> with dict value 2"


def test_methods_can_be_replaced_while_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def watched(self: DynamicProxy, value: object, *, relative_path: str) -> object:
        seen.append(relative_path)
        return DynamicProxy.return_value(
            value, context=self._get_context().nested(relative_path=relative_path)
        )

    monkeypatch.setattr(DynamicProxy, "_return_value", watched)
    items = proxy({"a": [Secret()]}, validated=False)
    assert isinstance(items["a"][0], Secret)
    assert [type(one) for one in items["a"]] == [Secret]
    assert seen == ["['a']", "[0]", "['a']", "[0]"]


def test_proxies_can_be_written_as_json() -> None:
    value = proxy({"a": [1, NoneValue(), {"b": True}]})
    assert json.dumps(value, default=api_boundary_json_encoder) == '{"a": [1, null, {"b": true}]}'
